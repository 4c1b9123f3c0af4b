"""Records finished runs and writes the pages of results: `python -m jaxsens.record [RUN …]`.

    python -m jaxsens.record runs/vision/3f2a1c   keeps its results as experiments/vision/recorded/
                                                  and its figures as docs/results/figures/vision/
    python -m jaxsens.record                      writes docs/results/ from all that is recorded
    make results                                  the same

Works in a checkout: what is recorded is committed with the code. Exit status: 0 done, 2 refused.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from jaxsens.core.files import write_atomic
from jaxsens.reporting import recorded

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Runs the command and returns its exit status."""
    runs = [Path(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    experiments = root / "experiments"
    if not experiments.is_dir():
        print(f"{root} is not a checkout of jaxsens: it has no experiments/", file=sys.stderr)
        return 2
    folder = root / "docs" / "results"
    try:
        for run in runs:
            print(recorded.record(run, experiments))
            recorded.keep_figures(run, folder / "figures")
        found = recorded.pages(experiments, folder / "figures")
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in found.items():
        write_atomic(folder / name, text)
    print(f"{folder}: {len(found)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
