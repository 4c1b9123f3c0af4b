"""One cell of a benchmark (one model, one method) in a process of its own.

A process of its own gives a clean peak of memory, a cold start for the compile time, and an
accelerator that no other cell holds. The same number of threads is given to every cell in every way
that a library may look for it: by the cores the process may run on and by environment variables.

    python -m benchmarks.cell JOB.json        (started by `launch`, never by hand)
"""

import importlib
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workload import Method, Workload, load_arrays, save_arrays

ROOT = Path(__file__).resolve().parent.parent

#: Large enough for a library's best speed, small enough for a moment.
MATMUL_SIZE = 1536


@dataclass(frozen=True)
class Outcome:
    """What a cell measured.

    Attributes:
      device: what it ran on.
      seconds: of each timed run over all examples.
      compile_seconds: by which the first measurement of one example was slower than the second.
      peak_mb: the most memory the process held, imports included; of the device on an accelerator.
      idle_mb: what of it was held before the method was made; 0 on an accelerator.
      cpu_seconds: of all threads in the best timed run.
      page_faults: minor ones of the best timed run: memory that was given back and taken again.
      matmul_gflops: the most that the method's library reaches on one large product, here.
      probed: what else the method said of itself.
      logits: (n, C) of the clean inputs.
      flips: (n, T) summed over the timed runs.
    """

    device: str
    seconds: list[float]
    compile_seconds: float
    peak_mb: float
    idle_mb: float
    cpu_seconds: float
    page_faults: int
    matmul_gflops: float
    probed: dict[str, float]
    logits: np.ndarray
    flips: np.ndarray


class CellError(RuntimeError):
    """A cell that ended without an outcome."""


def measure(
    factory: Callable[[Workload, int], Method],
    workload: Workload,
    *,
    num_threads: int,
    repeats: int,
    seed: int,
) -> Outcome:
    """Runs one method: cold, then timed; run r draws from `seed` + r."""
    idle = peak_rss_mb()
    method = factory(workload, num_threads)
    method.tune(workload.x)
    # The very call that is timed afterwards: programs and kernels depend on how many images it has.
    cold = _timed(method, workload.x, seed)
    logits = method.logits(workload.x)
    runs = [_timed(method, workload.x, seed + r) for r in range(repeats)]
    best = min(runs, key=lambda run: run.seconds)
    on_device = method.peak_device_bytes()
    peak = peak_rss_mb() if on_device is None else on_device / 1e6
    return Outcome(
        device=method.device,
        seconds=[run.seconds for run in runs],
        compile_seconds=max(0.0, cold.seconds - best.seconds),
        peak_mb=peak,
        idle_mb=idle if on_device is None else 0.0,
        cpu_seconds=best.cpu_seconds,
        page_faults=best.page_faults,
        matmul_gflops=matmul_gflops(method),
        probed=method.probe(workload.x),
        logits=logits,
        flips=np.sum([run.flips for run in runs], axis=0),
    )


def best_seconds(call: Callable[[], Any], repeats: int) -> float:
    """The fastest of a few calls, after one that does not count."""
    call()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def matmul_gflops(method: Method) -> float:
    """The library's speed on one product of two square matrices."""
    return 2e-9 * MATMUL_SIZE**3 / best_seconds(method.matmul(MATMUL_SIZE), repeats=5)


def launch(
    factory: str,
    workload_path: Path,
    spec: dict[str, Any],
    *,
    num_threads: int,
    repeats: int,
    seed: int,
) -> Outcome:
    """`measure` in a new process; `factory` is "module:function".

    Raises:
      CellError: if the process ends without an outcome, with the end of what it said.
    """
    folder = workload_path.parent
    numbers, arrays = folder / "cell.json", folder / "cell.npz"
    for stale in (numbers, arrays):
        stale.unlink(missing_ok=True)
    job = {
        "factory": factory,
        "workload": str(workload_path),
        "spec": spec,
        "num_threads": num_threads,
        "repeats": repeats,
        "seed": seed,
    }
    run_on("benchmarks.cell", job, folder, num_threads=num_threads)
    record: dict[str, Any] = json.loads(numbers.read_text()) | load_arrays(arrays)
    return Outcome(**record)


def found_by(
    module: str, job: dict[str, Any], folder: Path, *, num_threads: int, **variables: str
) -> Any:
    """What a module in a new process makes of a job: what it writes to the job's file "out".

    The arguments and the error are those of `run_on`.
    """
    out = folder / "found.json"
    out.unlink(missing_ok=True)
    run_on(module, job | {"out": str(out)}, folder, num_threads=num_threads, **variables)
    return json.loads(out.read_text())


def run_on(
    module: str, job: dict[str, Any], folder: Path, *, num_threads: int, **variables: str
) -> None:
    """Runs a module in a new process on a job.

    Args:
      module: its `main` takes the path of the job's file.
      job: what it is told.
      folder: where the file is written.
      num_threads: CPU threads that it may use.
      variables: what else is set in its environment.

    Raises:
      CellError: if it fails, with the end of what it said.
    """
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    run_module(module, str(path), environment=thread_environment(num_threads) | variables)


def run_module(module: str, *arguments: str, environment: dict[str, str]) -> None:
    """`python -m module` with these variables added to the environment.

    Raises:
      CellError: if it fails, with the end of what it said.
    """
    # The command line may have been started from any folder.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode < 0:
        raise CellError(f"killed by signal {-done.returncode}; 9 often means out of memory")
    if done.returncode > 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise CellError(f"exit status {done.returncode}: {said[-1] if said else 'no message'}")


def thread_environment(num_threads: int) -> dict[str, str]:
    """Environment of a cell: equal threads for all, and a cold start."""
    pools = ("NPROC", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return dict.fromkeys(pools, str(num_threads)) | {
        # A program from an earlier run's cache would hide the compile time.
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        # The peak of a pool that is filled beforehand would say nothing.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


def peak_rss_mb() -> float:
    """The most memory that this process held so far.

    Linux's own high-water mark where there is one: getrusage starts from the parent's.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


@dataclass(frozen=True)
class _Run:
    seconds: float
    cpu_seconds: float
    page_faults: int
    flips: np.ndarray


def _timed(method: Method, x: np.ndarray, seed: int) -> _Run:
    faults, cpu, started = _page_faults(), time.process_time(), time.perf_counter()
    flips = method.flips(x, seed)
    seconds = time.perf_counter() - started
    return _Run(seconds, time.process_time() - cpu, _page_faults() - faults, flips)


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def timed(advance: Callable[[], float], repeats: int) -> dict[str, Any]:
    """Times stretches of training, or of what else ends with a number; the first one is cold.

    Args:
      advance: goes through a stretch, waits for its end and gives a loss.
      repeats: timed stretches.

    Returns:
      "seconds" of the stretches after the first, "compile_seconds", by which the first was slower
      than the fastest of them, and the last "loss".

    Raises:
      RuntimeError: the loss is not finite: not a training.
    """
    seconds, loss = [], math.nan
    for _ in range(repeats + 1):
        started = time.perf_counter()
        loss = advance()
        seconds.append(time.perf_counter() - started)
    if not math.isfinite(loss):
        raise RuntimeError(f"the loss is {loss}")
    cold, *warm = seconds
    return {"seconds": warm, "compile_seconds": max(0.0, cold - min(warm)), "loss": loss}


def run_job(path: str, kind: Callable[..., Any]) -> None:
    """Has a function do the job in the file `path`, and writes what it gives to the job's "out".

    Args:
      path: the file: the "factory", a "module:function", with "out" and the arguments of `kind`.
      kind: makes what the function takes, a job; "num_threads" is among its arguments.
    """
    settings = json.loads(Path(path).read_text())
    out, factory = Path(settings.pop("out")), settings.pop("factory")
    pin(settings["num_threads"])
    out.write_text(json.dumps(function_named(factory)(kind(**settings))))


def function_named(name: str) -> Callable[..., Any]:
    """The function that "module:function" names."""
    module, function = name.split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def pin(num_threads: int) -> None:
    """Lets this process use that many cores, where the system can be told so."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:num_threads])


def main(path: str) -> None:
    """Runs the job in the file `path` and writes its outcome beside it."""
    job = json.loads(Path(path).read_text())
    pin(job["num_threads"])
    outcome = measure(
        function_named(job["factory"]),
        Workload.load(Path(job["workload"]), job["spec"]),
        num_threads=job["num_threads"],
        repeats=job["repeats"],
        seed=job["seed"],
    )
    record = dict(vars(outcome))
    folder = Path(path).parent
    save_arrays(folder / "cell.npz", {name: record.pop(name) for name in ("logits", "flips")})
    (folder / "cell.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main(sys.argv[1])
