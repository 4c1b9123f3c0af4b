"""One model of the suite "tolerance": every mode of `jaxsens.sensitivity` in one process.

python -m benchmarks.tolerance_cell JOB.json     (started by `benchmarks.tolerance`)
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jaxsens
from benchmarks import cell
from benchmarks.frame import Row
from benchmarks.jaxsens_methods import JaxsensMethod
from benchmarks.workload import Workload


def modes(workload: Workload, tolerances: Sequence[float], *, repeats: int, seed: int) -> list[Row]:
    """The exhaustive measurement, then each tolerance: the best of several runs."""
    method = JaxsensMethod(workload)
    # Programs do not depend on the number of examples, so one example compiles them all.
    for options in ({}, {"positions": "random"}):
        method.estimate(workload.x[:1], seed, **options)
    ways: list[dict[str, Any]] = [
        {},
        *({"tolerance": tolerance} for tolerance in tolerances),
        *({"tolerance": tolerance, "population": "fixed"} for tolerance in tolerances),
    ]
    return [_row(method, workload, way, repeats=repeats, seed=seed) for way in ways]


def _row(
    method: JaxsensMethod, workload: Workload, options: dict[str, Any], *, repeats: int, seed: int
) -> Row:
    """Seconds of all runs; the finding of the first, and the means of all."""
    seconds: list[float] = []
    estimates: list[jaxsens.SensitivityEstimate] = []
    for run in range(repeats):
        started = time.perf_counter()
        estimates.append(method.estimate(workload.x, seed + run, **options))
        seconds.append(time.perf_counter() - started)
    first = estimates[0]
    tolerance = options.get("tolerance")
    fixed = ", fixed" if options.get("population") == "fixed" else ""
    return {
        "mode": "exhaustive" if tolerance is None else f"tolerance {tolerance:g}{fixed}",
        "num_images": len(workload.x),
        "num_positions": workload.setting.num_positions,
        "num_samples": workload.num_samples,
        "positions": first.provenance.positions,
        "num_passes": first.provenance.num_passes,
        "seconds": seconds,
        "best_seconds": min(seconds),
        "sensitivity": first.mean,
        "stderr": first.stderr,
        "half_width": first.half_width(),
        "sensitivities": [estimate.mean for estimate in estimates],
    }


def main(path: str) -> None:
    """Runs the job in the file `path`."""
    job = json.loads(Path(path).read_text())
    cell.pin(job["num_threads"])
    workload = Workload.load(Path(job["workload"]), job["spec"])
    rows = modes(workload, job["tolerances"], repeats=job["repeats"], seed=job["seed"])
    Path(job["out"]).write_text(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1])
