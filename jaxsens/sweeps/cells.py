"""The cells of a sweep: every run that a small TOML file, or a name, asks for.

A file is one block, or several under `[[block]]`. A block has `experiment`, `preset` (default
quick) and any flags of the experiment; a list is a list of alternatives, and the block's cells are
all combinations, the last flag changing fastest:

    experiment = "vision"
    preset = "small"
    models = ["cnn", "vit-small"]
    seed = [0, 1, 2]

are six cells of one model each; `models = [["cnn", "vit-small"]]` would be one alternative of two.
A cell is an ordinary run: its folder is `<runs>/<experiment>/<config hash>`, as if it had been
started by hand. Everything is parsed and checked here, before anything runs or is created.
"""

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxsens.cli import flags
from jaxsens.cli.bounds import declared_fields
from jaxsens.cli.discovery import canonical_name, load_experiment
from jaxsens.cli.wording import nearest, shown
from jaxsens.core.files import UNUSABLE
from jaxsens.reporting.run_folder import default_folder

_NAMED = Path(__file__).parent / "named"
#: A longer list is a slip of the keyboard; schedulers refuse such arrays as well.
MOST_CELLS = 10_000
_OWN = ("experiment", "preset")
#: What belongs to the command line of a sweep, not to its file.
_ELSEWHERE = {field.name for field in dataclasses.fields(flags.Options)} - {"preset"}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
      experiment: its name.
      preset: quick, small or paper.
      given: its other flags, as `--seed`, with their words.
      config: the resolved config.
      folder: the run folder.
      shared: flags that all cells of the experiment in this sweep have alike.
    """

    experiment: str
    preset: str
    given: dict[str, list[str]]
    config: dict[str, Any]
    folder: Path
    shared: frozenset[str] = frozenset()

    @property
    def seed(self) -> Any:
        """The seed that the run has, given or not; None if the experiment has no such field."""
        return self.config.get("seed")

    @property
    def label(self) -> str:
        """The cell in words: what tells it from the others."""
        return self._words(self.shared)

    @property
    def group_label(self) -> str:
        """The same for all cells that differ by their seed alone."""
        return self._words(self.shared | {"--seed"})

    @property
    def group(self) -> tuple[Any, ...]:
        """Equal for cells that differ by their seed alone."""
        others = {flag: tuple(words) for flag, words in self.given.items() if flag != "--seed"}
        return (self.experiment, self.preset, *others.items())

    def _words(self, without: Collection[str]) -> str:
        words = [self.experiment, self.preset]
        for flag, values in self.given.items():
            if flag not in without:
                words.append("=".join(filter(None, [flag.removeprefix("--"), ",".join(values)])))
        return " ".join(words)

    def arguments(self, data_dir: Path | None = None) -> list[str]:
        """The words after `python -m jaxsens.run`."""
        words = ["--exp", self.experiment, "--preset", self.preset]
        for flag, values in self.given.items():
            words += [flag, *values]
        words += ["--workdir", str(self.folder)]
        return words if data_dir is None else [*words, "--data-dir", str(data_dir)]


def sweep_names() -> list[str]:
    """The sweeps that have a name."""
    return sorted(file.stem for file in _NAMED.glob("*.toml"))


def read_cells(sweep: str, runs: Path) -> list[Cell]:
    """All cells of a sweep, checked; reads nothing but the file, and what `--reuse` names.

    Args:
      sweep: the name of one, or a TOML file.
      runs: the folder under which the run folders are.

    Raises:
      ValueError: the file cannot be read, asks for nothing, for something that there is not, or
        for one run twice; the message is one line.
    """
    _check_runs(runs)
    file = _NAMED / f"{sweep}.toml" if sweep in sweep_names() else Path(sweep)
    cells: list[Cell] = []
    for where, block in _blocks(file, sweep):
        try:
            for cell in _product(block, runs):
                cells.append(cell)
                if len(cells) > MOST_CELLS:
                    raise ValueError(f"expected at most {MOST_CELLS} cells; split the sweep")
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    _refuse_doubles(file, cells)
    return [dataclasses.replace(cell, shared=_shared(cell, cells)) for cell in cells]


def _check_runs(runs: Path) -> None:
    """Raises ValueError for a folder in which no run could be."""
    if "://" in str(runs) or ":/" in str(runs):
        raise ValueError(
            f"--runs must be a folder of a file system; got {shown(str(runs))}; mount the bucket, "
            "or run a cell by itself with jaxsens.run --workdir"
        )
    if found := UNUSABLE.search(str(runs.resolve())):
        raise ValueError(f"--runs cannot have {found[0]} in its path: {runs.resolve()}")
    if runs.exists() and not runs.is_dir():
        raise ValueError(f"--runs must be a folder; {runs} is a file")


def _blocks(file: Path, sweep: str) -> list[tuple[str, dict[str, Any]]]:
    """The blocks of a file, each with a name for messages."""
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"there is no sweep and no file {shown(sweep)}{nearest(sweep, sweep_names())}"
        ) from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        # What is no UTF-8 is no TOML either.
        raise ValueError(f"{file} is no TOML file: {error}") from error
    if "block" not in content:
        return [(str(file), content)]
    if len(content) > 1:
        other = next(name for name in content if name != "block")
        raise ValueError(f"{file}: {other} stands beside [[block]]; put it into every block")
    blocks = content["block"]
    if not isinstance(blocks, list) or not all(isinstance(each, dict) for each in blocks):
        raise ValueError(f"{file}: expected blocks under [[block]], with two brackets")
    if not blocks:
        raise ValueError(f"{file}: there is no block in it")
    return [(f"{file}, block {i}", block) for i, block in enumerate(blocks, start=1)]


def _product(block: dict[str, Any], runs: Path) -> Iterator[Cell]:
    """The cells of a block, in the order of its alternatives."""
    if "experiment" not in block:
        near = nearest("experiment", block) if block else ""
        raise ValueError(f"expected an experiment{near if 'did you mean' in near else ''}")
    alternatives = {name: _alternatives(name, value) for name, value in block.items()}
    alternatives = {"preset": ["quick"]} | alternatives
    names = [*_OWN, *(name for name in alternatives if name not in _OWN)]
    if (num := math.prod(len(alternatives[name]) for name in names)) > MOST_CELLS:
        raise ValueError(f"expected at most {MOST_CELLS} cells, got {num}; split the sweep")
    for chosen in itertools.product(*(alternatives[name] for name in names)):
        values = dict(zip(names, chosen, strict=True))
        yield _cell(values.pop("experiment"), values.pop("preset"), values, runs)


def _alternatives(name: str, value: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError(f"{name} has no values, so there are no cells; give at least one")
    return values


def _cell(name: Any, preset: Any, values: dict[str, Any], runs: Path) -> Cell:
    if not isinstance(name, str) or not isinstance(preset, str):
        raise ValueError(f"expected names of an experiment and a preset; got {name!r}, {preset!r}")
    experiment = load_experiment(name)
    known = declared_fields(experiment.Config)
    given: dict[str, list[str]] = {}
    for key, value in values.items():
        field = key.replace("-", "_")
        if field in _ELSEWHERE:
            raise ValueError(f"{key} has no place in a sweep's file; give it on the command line")
        flag = flags.flag_of(field)
        if field in known and flags.is_switch(known[field]) and isinstance(value, bool):
            flag, words = (flag if value else f"--no-{flag.removeprefix('--')}"), []
        else:
            words = _words(key, value)
        if flag in given:
            raise ValueError(f"{flag} is given twice; give it once")
        given[flag] = words
    _, config = flags.parse(experiment, {"--exp": [name], "--preset": [preset], **given})
    fields = dataclasses.asdict(config)
    name = canonical_name(name)
    return Cell(name, preset, given, fields, default_folder(name, fields, runs))


def _words(name: str, value: Any) -> list[str]:
    """A value as the words after its flag."""
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    for each in values:
        if not isinstance(each, str | int | float):
            raise ValueError(
                f"{name}: expected numbers, texts and true or false, or lists of them; "
                f"got {shown(each)}"
            )
        if isinstance(each, str) and each.startswith("--"):
            raise ValueError(f"{name}: a value cannot start with --; got {shown(each)}")
    return [str(each) for each in values]


def _shared(cell: Cell, cells: Sequence[Cell]) -> frozenset[str]:
    """The flags of a cell that all others of its experiment have alike; none if it is alone."""
    others = [each for each in cells if each.experiment == cell.experiment and each is not cell]
    return frozenset(
        flag
        for flag, words in cell.given.items()
        if others and all(each.given.get(flag) == words for each in others)
    )


def _refuse_doubles(file: Path, cells: Sequence[Cell]) -> None:
    first: dict[Path, int] = {}
    for i, cell in enumerate(cells):
        if first.setdefault(cell.folder, i) != i:
            raise ValueError(
                f"{file}: cells {first[cell.folder]} and {i} are the same run ({cell.label}); "
                "ask for it once"
            )
