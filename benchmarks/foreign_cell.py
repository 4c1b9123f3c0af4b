"""One model of the suite "foreign" in a process of its own.

python -m benchmarks.foreign_cell JOB.json     (started by `benchmarks.foreign`)
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

import jaxsens
from benchmarks.foreign_case import Foreign
from benchmarks.foreign_models import CASES
from benchmarks.frame import Row
from jaxsens.incremental import flops


def perturbation(foreign: Foreign) -> jaxsens.Perturbation:
    """Normal noise on a patch or on a token."""
    noise = jaxsens.Gaussian(sigma=foreign.sigma)
    if foreign.channels is None:
        return jaxsens.Perturbation(jaxsens.Tokens(), noise)
    grid = jaxsens.Patches(foreign.window, channels=foreign.channels)
    return jaxsens.Perturbation(grid, noise)


def as_written(foreign: Foreign) -> float:
    """Operations of one pass of the model as it is, but for those on parameters alone."""
    apply_fn, params = foreign.model
    inputs = [np.asarray(each)[:1] for each in (foreign.x, foreign.context) if each is not None]
    jaxpr = jax.make_jaxpr(apply_fn)(params, *inputs).jaxpr
    return flops.count_from(jaxpr, jaxpr.invars[len(jax.tree.leaves(params)) :])


def measure(name: str, num_samples: int, seed: int) -> Row:
    """Counts the operations of a model, and draws with and without reuse."""
    foreign = CASES[name].make()
    noise, context = perturbation(foreign), foreign.context
    found = jaxsens.explain(*foreign.model, foreign.x, noise, num_samples, context=context)
    plain, reused = (
        jaxsens.sensitivity(
            *foreign.model, foreign.x, noise, num_samples, key=jax.random.key(seed),
            context=context, incremental=incremental,
        )
        for incremental in (False, True)
    )  # fmt: skip
    written = as_written(foreign)
    return {
        "num_positions": plain.num_positions,
        "as_written": written,
        "plain": found.plain,
        "edit": found.incremental,
        "vs_written": written / found.incremental,
        "vs_plain": found.plain / found.incremental,
        "reuse": "yes" if found.worthwhile else "no",
        "num_draws": plain.num_draws,
        "flips": int(plain.totals.sum()),
        "differ": jaxsens.changed_draws(plain, reused),
        "self_check": reused.provenance.self_check,
    }


def main(path: str) -> None:
    """Runs the job in the file `path`."""
    job = json.loads(Path(path).read_text())
    out = Path(job.pop("out"))
    out.write_text(json.dumps(measure(**job)))


if __name__ == "__main__":
    main(sys.argv[1])
