"""One start of the suite "start": imports, the first result and the second, each timed.

python -m benchmarks.start_cell JOB.json     (started by `benchmarks.start`)
"""

import json
import sys
import time
from pathlib import Path

from benchmarks import cell
from benchmarks.workload import Workload


def main(path: str) -> None:
    """Runs the job in the file `path`."""
    job = json.loads(Path(path).read_text())
    cell.pin(job["num_threads"])
    workload = Workload.load(Path(job["workload"]), job["spec"])
    started = time.perf_counter()
    import jaxsens
    from benchmarks.jaxsens_methods import JaxsensMethod

    imported = time.perf_counter()
    jaxsens.keep_compiled_programs(job["programs"])
    method = JaxsensMethod(workload)
    flips = method.flips(workload.x, job["seed"])
    first = time.perf_counter()
    method.flips(workload.x, job["seed"])
    second = time.perf_counter()
    found = {
        "import_seconds": imported - started,
        "first_seconds": first - imported,
        "second_seconds": second - first,
        "num_flips": float(flips.sum()),
    }
    Path(job["out"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
