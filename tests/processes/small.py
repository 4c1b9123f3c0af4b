"""The smallest experiment that trains, measures in every way and leaves every kind of file."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsens
from jaxsens.reporting.cached import cached_estimate_stage
from jaxsens.reporting.results import Findings
from jaxsens.reporting.run_folder import RunFolder

sys.path.append(str(Path(__file__).parents[1] / "crash"))

import tiny

#: Of "ties" whole passes decide the first example, which one process has and the other has not.
ESTIMATES = ("all", "random", "noise", "ties")


def load(config: Any, data_dir: Any) -> tiny.Points:
    """The points; those of another process may differ."""
    points = tiny.load(config, data_dir)
    if data_dir is not None:
        return dataclasses.replace(points, x=points.x + 1)
    return points


def run(config: Any, data: tiny.Points, folder: RunFolder) -> Findings:
    """What the crash test's experiment does, and measurements."""
    if config.num_samples == 7:
        raise ZeroDivisionError("an error that nobody foresaw")
    if config.num_samples == 8 and jax.process_index() == jax.process_count() - 1:
        raise ZeroDivisionError("an error in the last process alone")
    findings = tiny.run(config, data, folder)
    weights = np.reshape(findings.values["weights"], (3, 2)).astype(np.float32)
    x = np.tile(data.x, (config.num_measured, 1))
    found = {name: estimate(folder, name, weights, x) for name in ESTIMATES}
    return dataclasses.replace(findings, values=findings.values | found)


def _apply(weights: Any, x: Any) -> Any:
    return x @ weights


def estimate(folder: RunFolder, name: str, weights: Any, x: np.ndarray) -> Any:
    """One measurement, kept in a file."""
    key = jax.random.key(3)
    shift = jaxsens.Perturbation(jaxsens.Bits(), jaxsens.Gaussian(sigma=1.0))

    def measure() -> Any:
        if name == "noise":
            noise = jaxsens.Gaussian(sigma=0.1)
            return jaxsens.sharpness(_apply, jnp.asarray(weights), x, noise, 4, key=key)
        if name == "ties":
            tied = np.concatenate([np.zeros_like(x[:1]), x])
            return jaxsens.sensitivity(_apply, weights, tied, shift, 5, key=key, incremental=True)
        positions: Any = name
        return jaxsens.sensitivity(
            _apply, jnp.asarray(weights), x, shift, 5, key=key, positions=positions
        )

    kind = jaxsens.SharpnessEstimate if name == "noise" else jaxsens.SensitivityEstimate
    made = cached_estimate_stage(folder, f"estimates/{name}", kind, measure)
    return json.loads(json.dumps(made.summary()))
