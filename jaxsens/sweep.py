"""Many runs at once: `python -m jaxsens.sweep CELLS [--index N | --list | --status | --collect]`.

CELLS is quick, small or paper (all figures of all papers), or a TOML file such as

    experiment = "vision"
    preset = "small"
    dataset = ["mnist", "fashion_mnist"]
    seed = [0, 1, 2, 3, 4]

whose cells are all combinations: here ten runs. A cell is an ordinary run folder below --runs.

    python -m jaxsens.sweep quick              runs all cells here; finished ones are skipped
    python -m jaxsens.sweep quick --jobs 4     four at a time
    python -m jaxsens.sweep quick --index 3    runs one; SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX
                                               of a scheduler stands for --index
    python -m jaxsens.sweep quick --list       a line for each cell, nothing is run
    python -m jaxsens.sweep quick --status     how far they are, from the folders alone
    python -m jaxsens.sweep quick --collect    one page: claims by seed, means over seeds, reports

Killed at any moment, the same command goes on. A cell that fails is reported and stops no other.

Exit status: 0 done, 1 a cell failed, 2 bad arguments or data, 75 interrupted (the same command goes
on). With an index it is the run's own: 1 and 2 are permanent, 75 and 128 or more to be tried again.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from jaxsens.cli import failures, signals
from jaxsens.cli.wording import nearest, shown
from jaxsens.reporting.progress import say
from jaxsens.sweeps import running
from jaxsens.sweeps.cells import Cell, read_cells
from jaxsens.sweeps.collect import collect
from jaxsens.sweeps.states import state_of

EXIT_FAILED, EXIT_USAGE = 1, 2
#: Where schedulers say which cell is meant.
INDEX_VARIABLES = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")
_MOST_JOBS = 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with signals.leaving_on_signals(), failures.logged(expected=(failures.UsageError,)):
            return _main(arguments)
    except failures.UsageError as error:
        say(str(error))
        return EXIT_USAGE
    except failures.UnforeseenError as error:
        say(str(error))
        return EXIT_FAILED


def _main(arguments: list[str]) -> int:
    with failures.of_usage():
        options = _parsed(arguments)
        cells = read_cells(options.cells, options.runs)
        looking = options.list or options.status or options.collect
        index = None if looking else _index(options.index, os.environ, len(cells))
    if options.list:
        for index, cell in enumerate(cells):
            print(f"{index}  {cell.label}  {cell.folder}")
        return 0
    if options.status:
        for index, cell in enumerate(cells):
            print(f"{index}  {cell.label}  {state_of(cell)}")
        return 0
    if options.collect:
        print(_collected(options, cells))
        return 0
    if index is not None:
        # JAX would take the number of the cell for that of a process, and wait for the others.
        hidden = () if options.index is not None else ("JOB_COMPLETION_INDEX",)
        return running.run_one(cells[index], data_dir=options.data_dir, hidden=hidden)
    status = running.run_all(cells, jobs=options.jobs, data_dir=options.data_dir)
    if any(state_of(cell).results for cell in cells):
        print(_collected(options, cells))
    return status


def _collected(options: argparse.Namespace, cells: Sequence[Cell]) -> str:
    """Writes the page."""
    name = Path(options.cells).stem
    with failures.of_usage():
        return collect(name, cells, options.runs / f"sweep-{name}.html")


def _index(given: int | None, environment: Mapping[str, str], num_cells: int) -> int | None:
    """The cell that is asked for, by the flag or by a scheduler; None for all.

    Raises:
      ValueError: there is no such cell, or two schedulers name different ones.
    """
    named = {"--index": str(given)} if given is not None else {}
    if not named:
        named = {name: environment[name] for name in INDEX_VARIABLES if environment.get(name)}
    if not named:
        return None
    if len(set(named.values())) > 1:
        both = " and ".join(f"{name}={value}" for name, value in named.items())
        raise ValueError(f"{both} name different cells; give --index")
    name, value = next(iter(named.items()))
    if not value.isdecimal() or int(value) >= num_cells:
        raise ValueError(
            f"{name} must be from 0 to {num_cells - 1}, for {num_cells} cells; got {shown(value)}"
        )
    return int(value)


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print in several lines and leave with."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; --help shows how it is called")


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; ValueError, in one line, for bad ones."""
    parser = _Parser(
        prog="python -m jaxsens.sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("cells", metavar="CELLS", help="quick, small, paper, or a TOML file")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--index", type=int, metavar="N", help="run this cell only; the first is 0")
    what.add_argument("--list", action="store_true", help="print the cells")
    what.add_argument("--status", action="store_true", help="print how far the cells are")
    what.add_argument("--collect", action="store_true", help="write one page over all cells")
    parser.add_argument("--jobs", type=int, default=1, metavar="K", help="runs at a time")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), help="folder of the run folders; default runs"
    )
    parser.add_argument("--data-dir", type=Path, help="folder with datasets, for every run")
    options, rest = parser.parse_known_args(arguments)
    for word in rest:
        if not word.startswith("-"):
            raise ValueError(f"expected one CELLS; got {shown(word)} as well")
        flag = word.partition("=")[0]
        known = [each for each in parser._option_string_actions if each.startswith("--")]
        raise ValueError(f"unknown flag {shown(flag)[1:-1]}{nearest(flag, known)}")
    if not 1 <= options.jobs <= _MOST_JOBS:
        raise ValueError(f"--jobs must be from 1 to {_MOST_JOBS}; got {options.jobs}")
    return options


if __name__ == "__main__":
    sys.exit(main())
