"""What a run folder says of itself, for a page over many of them; damaged folders say so.

A folder may be of an earlier version, half written, or not ours to judge: whatever it holds, a
`RunCard` comes of it and no error. Nothing is written.

Assumption: results.json was finished when it was last changed, which is when the run ended. A copy
that does not keep times is dated by its copying.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from jaxsens.reporting.plain_json import leaves
from jaxsens.reporting.results import Claim, Figure, Results

UNKNOWN = "–"
#: Files larger than this are no results of a run.
MAX_FILE = 64 << 20
#: How deep below the folder that is asked for run folders are looked for.
MAX_DEPTH = 6
_MAX_NUMBERS = 300
_MAX_THUMBNAILS = 3
_THUMBNAIL = (360, 240)

State = Literal["finished", "failed", "unfinished", "damaged"]


@dataclasses.dataclass(frozen=True)
class RunCard:
    """A run on the page.

    Attributes:
      folder: its path from the page.
      state: finished; failed, if a sweep or an error.log says so; unfinished; or damaged.
      detail: more of the state in words.
      experiment: its name; like the next three, a dash if it is not known.
      dataset: the field `dataset`, `datasets` or `data` of its config.
      preset: the preset of its command, with ", changed" if other flags follow.
      commit: what made it.
      when: when it ended or was last written, in seconds since 1970.
      seconds: how long it took.
      title: of its results, like all that follows.
      summary: a sentence.
      claims: and whether they hold.
      config: its fields, nested ones dotted, as text.
      numbers: the single numbers among its values and claims, by name.
      thumbnails: captions, and small pictures as data URIs.
      has_report: whether there is a report.html.
    """

    folder: str
    state: State
    detail: str
    experiment: str = UNKNOWN
    dataset: str = UNKNOWN
    preset: str = UNKNOWN
    commit: str = UNKNOWN
    when: float | None = None
    seconds: float | None = None
    title: str = ""
    summary: str = ""
    claims: tuple[Claim, ...] = ()
    config: dict[str, str] = dataclasses.field(default_factory=dict)
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)
    thumbnails: tuple[tuple[str, str], ...] = ()
    has_report: bool = False

    @property
    def num_holds(self) -> int:
        """How many of its claims hold."""
        return sum(claim.holds for claim in self.claims)


def find_runs(root: Path) -> Iterator[Path]:
    """The run folders below a folder, which are not looked into any further.

    Links to folders and hidden folders are passed over.
    """
    for path, names, _ in os.walk(root):
        folder = Path(path)
        if folder != root and is_run(folder):
            names.clear()
            yield folder
            continue
        deep = len(folder.relative_to(root).parts) >= MAX_DEPTH
        names[:] = [] if deep else sorted(name for name in names if not name.startswith("."))


def is_run(folder: Path) -> bool:
    """Whether this is a run folder, whole or damaged: other programs have a config.json too."""
    if (folder / "results.json").exists():
        return True
    if not (folder / "config.json").exists():
        return False
    try:
        identity = _read_json(folder / "config.json")
    except ValueError:
        return True
    return isinstance(identity, dict) and "experiment" in identity


def read_card(folder: Path, root: Path) -> RunCard:
    """Reads a run folder.

    Args:
      folder: the run.
      root: the folder of the page.
    """
    name, when = folder.relative_to(root).as_posix(), _last_written(folder)
    try:
        if (folder / "results.json").exists():
            return _finished(folder, name)
        return _unfinished(folder, name, when)
    except (ValueError, OSError, RecursionError) as error:
        said = " ".join(str(error).split())
        return RunCard(name, "damaged", f"{said:.200}", **_identity(folder), when=when)


def _finished(folder: Path, name: str) -> RunCard:
    file = folder / "results.json"
    results = Results.from_json(_read_text(file))
    _check(results)
    return RunCard(
        folder=name,
        state="finished",
        detail="",
        experiment=results.experiment,
        dataset=_dataset(results.config),
        preset=preset_of(results.command),
        commit=str(results.environment.get("commit", UNKNOWN)),
        when=file.stat().st_mtime,
        seconds=float(results.seconds),
        title=results.title,
        summary=results.summary,
        claims=results.claims,
        config=_texts(results.config),
        numbers=_numbers(results),
        thumbnails=tuple(_thumbnails(folder, results.figures)),
        has_report=(folder / "report.html").is_file(),
    )


def _unfinished(folder: Path, name: str, when: float | None) -> RunCard:
    identity = _identity(folder)
    if not identity:
        _read_json(folder / "config.json")
        raise ValueError("config.json does not say which experiment and config it is of")
    failure = folder.with_name(f"{folder.name}.failed")
    if failure.is_file():
        state, detail = "failed", " ".join(_read_text(failure).split())[:200]
    elif (folder / "error.log").is_file():
        state, detail = "failed", "its error.log has the traceback"
    else:
        state, detail = "unfinished", "begun; the same command goes on"
    return RunCard(
        folder=name,
        state=state,  # type: ignore[arg-type]
        detail=detail,
        when=when,
        **identity,
    )


def _identity(folder: Path) -> dict[str, Any]:
    """What config.json says of a run, as fields of its card; nothing if it cannot be read."""
    try:
        said = _read_json(folder / "config.json")
        config = said["config"]
        return {
            "experiment": str(said["experiment"]),
            "dataset": _dataset(config),
            "config": _texts(config),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def preset_of(command: str) -> str:
    """The preset of a command that `jaxsens.run` wrote down, and whether other flags follow.

    >>> preset_of("python -m jaxsens.run --exp vision --preset small --epochs 2")
    'small, changed'
    >>> preset_of("python -m jaxsens.run --exp vision"), preset_of("")
    ('quick', '–')
    >>> preset_of("python -m jaxsens.measure --model net.py:apply_fn")  # it has none
    '–'
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return UNKNOWN
    if words[2:4] != ["jaxsens.run", "--exp"]:
        return UNKNOWN
    preset, words = "quick", words[5:]
    if words[:1] == ["--preset"] and len(words) > 1:
        preset, words = words[1], words[2:]
    return f"{preset}, changed" if words else preset


def _check(results: Results) -> None:
    """Raises ValueError for results whose parts are not of the types that the page shows."""
    texts = (results.title, results.summary, results.experiment, results.command)
    mappings = (results.config, results.environment, results.values)
    is_number = isinstance(results.seconds, int | float) and math.isfinite(results.seconds)
    told = all(isinstance(c.statement, str) and isinstance(c.measured, str) for c in results.claims)
    if not (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(mapping, dict) for mapping in mappings)
        and all(isinstance(claim.values, dict) for claim in results.claims)
        and is_number
        and told
    ):
        raise ValueError("results.json has parts of other types than a run writes")


def _read_text(file: Path) -> str:
    if file.stat().st_size > MAX_FILE:
        raise ValueError(f"{file.name} has more than {MAX_FILE >> 20} MiB")
    return file.read_text("utf-8")


def _read_json(file: Path) -> Any:
    try:
        return json.loads(_read_text(file))
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"{file.name} cannot be read: {error}") from error


def _dataset(config: dict[str, Any]) -> str:
    # A run of jaxsens.measure names its file or dataset "data".
    given = (config[name] for name in ("dataset", "datasets", "data") if name in config)
    found = next(given, UNKNOWN)
    return ", ".join(map(str, found)) if isinstance(found, list) else str(found)


def _texts(config: dict[str, Any]) -> dict[str, str]:
    def text(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return {name: text(value) for name, value in leaves(config, "", dict) if name}


def _numbers(results: Results) -> dict[str, float]:
    """Single numbers of the values, then those that claims compare; at most so many."""
    found: dict[str, float] = {}
    parts = [("", results.values), *((f"{c.statement}: ", c.values) for c in results.claims)]
    for prefix, values in parts:
        for name, value in leaves(values, "", dict):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and math.isfinite(value) and len(found) < _MAX_NUMBERS:
                found.setdefault(prefix + name, value)
    return found


def _thumbnails(folder: Path, figures: tuple[Figure, ...]) -> Iterator[tuple[str, str]]:
    """Small pictures of the first figures; one that is missing or no picture is left out."""
    for figure in figures[:_MAX_THUMBNAILS]:
        path = (folder / figure.file).resolve()
        if not path.is_relative_to(folder.resolve()):
            continue
        try:
            with Image.open(path) as image:
                small = image.convert("RGBA")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            continue
        page = Image.new("RGB", small.size, "white")
        page.paste(small, mask=small.getchannel("A"))
        page.thumbnail(_THUMBNAIL, Image.Resampling.LANCZOS)
        data = io.BytesIO()
        page.quantize(64).save(data, "PNG", optimize=True)
        encoded = base64.b64encode(data.getvalue()).decode("ascii")
        yield str(figure.caption), f"data:image/png;base64,{encoded}"


def _last_written(folder: Path) -> float | None:
    """When the newest of the folder's own files was changed."""
    times = []
    try:
        for entry in os.scandir(folder):
            times.append(entry.stat(follow_symlinks=False).st_mtime)
    except OSError:
        return None
    return max(times, default=None)
