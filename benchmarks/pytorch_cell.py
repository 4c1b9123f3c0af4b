"""One cell of the suite "pytorch" in a process of its own.

python -m benchmarks.pytorch_cell JOB.json     (started by `benchmarks.pytorch`)
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import cell
from benchmarks.frame import Row
from benchmarks.torch_reference import batched_flips, loop_flips

PATCH, SIGMA = 4, 1.0


def network(seed: int) -> torch.nn.Module:
    """The module of the README."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, 2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(7200, 10),
    ).eval()


def by_torch(
    flips: Callable[..., torch.Tensor], module: torch.nn.Module, x: torch.Tensor, job: Row
) -> Callable[[], np.ndarray]:
    """A measurement by PyTorch alone: (n, T) flips."""
    torch.set_num_threads(job["num_threads"])
    generator = torch.Generator().manual_seed(job["seed"])
    window = (x.shape[1], PATCH, PATCH)

    def measured() -> np.ndarray:
        with torch.inference_mode():
            return flips(module, x, window, SIGMA, job["num_samples"], generator).numpy()

    return measured


def by_jaxsens(
    module: torch.nn.Module, x: torch.Tensor, job: Row, reused: list[bool], **options: Any
) -> Callable[[], np.ndarray]:
    """The measurement of the README: (n, T) flips."""
    import jax

    import jaxsens

    noise = jaxsens.Perturbation(
        jaxsens.Patches(PATCH, channels="first"), jaxsens.Gaussian(sigma=SIGMA)
    )
    # A module stands for two arguments, which the types do not say.
    sensitivity: Any = jaxsens.sensitivity
    seeds = iter(range(job["seed"], sys.maxsize))

    def measured() -> np.ndarray:
        key = jax.random.key(next(seeds))
        est = sensitivity(module, x, noise, job["num_samples"], key=key, **options)
        reused.append(est.provenance.incremental)
        return est.totals

    return measured


def measure(job: Row) -> Row:
    """Times one method, and says what it measured in the last run."""
    module, method = network(job["seed"]), job["method"]
    x = torch.rand(job["num_images"], 3, 32, 32)
    found: list[np.ndarray] = []
    reused: list[bool] = []
    if method.startswith("torch"):
        flips = loop_flips if method == "torch-loop" else batched_flips
        measured = by_torch(flips, module, x, job)
    else:
        options = {"incremental": False} if method == "jaxsens-plain" else {}
        measured = by_jaxsens(module, x, job, reused, **options)

    def sensitivity() -> float:
        found.append(measured() / job["num_samples"])
        return float(found[-1].mean())

    row = cell.timed(sensitivity, job["repeats"])
    shares, num = found[-1], job["num_samples"]
    return {
        **row,
        "sensitivity": row.pop("loss"),
        "noise": float(np.sqrt((shares * (1 - shares)).sum() / max(1, num - 1)) / shares.size),
        "reuse": {True: "yes", False: "no"}[reused[-1]] if reused else None,
        "peak_mb": cell.peak_rss_mb(),
    }


def main(path: str) -> None:
    """Runs the job in the file `path`."""
    job = json.loads(Path(path).read_text())
    out = Path(job.pop("out"))
    cell.pin(job["num_threads"])
    out.write_text(json.dumps(measure(job)))


if __name__ == "__main__":
    main(sys.argv[1])
