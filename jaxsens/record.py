"""Records finished runs and writes the pages of results: `python -m jaxsens.record [RUN …]`.

    python -m jaxsens.record runs/vision/3f2a1c   keeps its results as experiments/vision/recorded/
                                                  and its figures as docs/results/figures/vision/
    python -m jaxsens.record RUN --instead-of quick
                                                  the same, in place of the record of that name
    python -m jaxsens.record                      writes docs/results/ from all that is recorded
    make results                                  the same

A claim whose verdict is another one than in the record that is replaced is shown as changed.

Works in a checkout: what is recorded is committed with the code. Exit status: 0 done, 2 refused.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxsens.core.files import write_atomic
from jaxsens.reporting import recorded

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Runs the command and returns its exit status."""
    options = _parsed(arguments)
    experiments = root / "experiments"
    if not experiments.is_dir():
        print(f"{root} is not a checkout of jaxsens: it has no experiments/", file=sys.stderr)
        return 2
    folder = root / "docs" / "results"
    try:
        for run in options.runs:
            file = recorded.record(run, experiments, options.instead_of)
            print(file)
            recorded.keep_figures(run, folder / "figures")
            if options.instead_of not in (None, file.stem):
                old = folder / "figures" / file.parents[1].name / options.instead_of
                shutil.rmtree(old, ignore_errors=True)
        found = recorded.pages(experiments, folder / "figures")
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in found.items():
        write_atomic(folder / name, text)
    print(f"{folder}: {len(found)} pages")
    return 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m jaxsens.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--instead-of", metavar="LABEL", help="the record that it replaces")
    options = parser.parse_args(arguments)
    if options.instead_of and len(options.runs) != 1:
        parser.error("--instead-of goes with one RUN")
    return options


if __name__ == "__main__":
    sys.exit(main())
