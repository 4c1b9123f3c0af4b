"""jaxsens as the benchmark runs it, and the weights that all methods share.

python -m benchmarks.jaxsens_methods JOB.json     (started by `benchmarks.sensitivity`)
"""

import json
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

import jaxsens
import jaxsens.models
from benchmarks.workload import Setting, Weights, Workload, save_arrays
from jaxsens.chunking import rows_within


def blocks(workload: Workload, num_threads: int) -> "JaxsensMethod":
    """The default: blocks of positions that fit the cache."""
    return JaxsensMethod(workload, chunk_bytes=None)


def all_at_once(workload: Workload, num_threads: int) -> "JaxsensMethod":
    """All T·S edits of an image in one pass, like PyTorch's batched method."""
    return JaxsensMethod(workload, chunk_bytes=_one_image_bytes(workload))


class JaxsensMethod:
    """`jaxsens.sensitivity` with a byte budget, on one device."""

    def __init__(self, workload: Workload, chunk_bytes: int | None):
        self._workload = workload
        self._chunk_bytes = chunk_bytes
        self._perturbation = perturbation(workload.setting)
        self._apply = apply_function(workload.setting)
        self._logits = jax.jit(self._apply)
        # PyTorch uses one device; so does this.
        self._device = jax.local_devices()[0]
        self._variables = jax.device_put(variables(workload.weights), self._device)
        self.device = f"{self._device.platform}: {self._device.device_kind}"

    def logits(self, x: np.ndarray) -> np.ndarray:
        """(n, C) of clean inputs, in full float32."""
        with jax.default_matmul_precision("highest"):
            return np.asarray(self._logits(self._variables, x))

    def flips(self, x: np.ndarray, seed: int) -> np.ndarray:
        """(n, T): how many of the S draws at each position changed the prediction."""
        estimate = jaxsens.sensitivity(
            self._apply,
            self._variables,
            x,
            self._perturbation,
            self._workload.num_samples,
            key=jax.random.key(seed),
            chunk_bytes=self._chunk_bytes,
            devices=[self._device],
        )
        return np.asarray(estimate.totals)

    def peak_device_bytes(self) -> int | None:
        """Most memory used on an accelerator so far; None on a CPU."""
        if self._device.platform == "cpu":
            return None
        return (self._device.memory_stats() or {}).get("peak_bytes_in_use")


def make_model(setting: Setting) -> nn.Module:
    """The Flax model."""
    return getattr(jaxsens.models, setting.architecture)(**setting.sizes)


def apply_function(setting: Setting) -> Any:
    """`apply(variables, x) -> logits` in eval mode."""
    model = make_model(setting)

    def apply(variables, x):
        return model.apply(variables, x)

    return apply


def perturbation(setting: Setting) -> jaxsens.Perturbation:
    """The setting's window edit in jaxsens' terms."""
    grid = jaxsens.Patches(setting.window[0]) if len(setting.shape) == 3 else jaxsens.Tokens()
    if grid.window_shape(setting.shape) != setting.window:
        raise ValueError(f"no grid of jaxsens has windows {setting.window} on {setting.shape}")
    return jaxsens.Perturbation(grid, jaxsens.Gaussian(variance=setting.variance))


def random_weights(setting: Setting, seed: int) -> dict[str, np.ndarray]:
    """The model's initial variables by path, kernels times the setting's gain."""
    example = jnp.zeros((1, *setting.shape))
    key = jax.random.key(seed, impl="unsafe_rbg")  # compiles faster than the default
    tree = jax.jit(make_model(setting).init)(key, example)
    return {
        name: np.asarray(leaf) * np.float32(setting.gain if name.endswith("/kernel") else 1)
        for name, leaf in flatten_dict(tree, sep="/").items()
    }


def variables(weights: Weights) -> Any:
    """The tree that `random_weights` flattened."""
    return unflatten_dict(dict(weights), sep="/")


def _one_image_bytes(workload: Workload) -> int:
    """The smallest budget that lets all T·S edits of one image through the model together.

    A larger one would take several images at once; a huge one the whole chunk of 256, padded.
    """
    example = jax.ShapeDtypeStruct(workload.setting.shape, workload.x.dtype)
    apply, tree = apply_function(workload.setting), variables(workload.weights)
    ample = 1 << 60
    bytes_per_row = ample // rows_within(ample, apply, tree, example)
    return bytes_per_row * workload.setting.num_positions * workload.num_samples


def main(path: str) -> None:
    """Writes the weights of the job in the file `path`."""
    job = json.loads(Path(path).read_text())
    save_arrays(Path(job["out"]), random_weights(Setting.from_json(job["setting"]), job["seed"]))


if __name__ == "__main__":
    main(sys.argv[1])
