"""Draws the suite "scaling".

python -m benchmarks.scaling_figure JOB.json     (started by `benchmarks.scaling`)
"""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.frame import Row
from benchmarks.scaling import AXES
from jaxsens import figures


def draw(rows: list[Row]) -> Figure:
    """One panel for each axis, one line for each method."""
    panels = {
        AXES[along][0]: {
            row["method"]: (row["sizes"], row["best_seconds"])
            for row in rows
            if row["along"] == along
        }
        for along in dict.fromkeys(row["along"] for row in rows)
    }
    return figures.growth(panels, ylabel="Seconds a measurement")


def main(path: str) -> None:
    """Draws the job in the file `path`."""
    job = json.loads(Path(path).read_text())
    figures.save(draw(job["rows"]), job["folder"], job["name"])


if __name__ == "__main__":
    main(sys.argv[1])
