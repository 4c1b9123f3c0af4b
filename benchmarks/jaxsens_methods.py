"""jaxsens as the benchmark runs it, and the weights that all methods share.

python -m benchmarks.jaxsens_methods JOB.json     (started by `benchmarks.compare`)
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

import jaxsens
import jaxsens.models
from benchmarks.workload import Setting, Weights, Workload, save_arrays
from jaxsens.measurement.batching import ByteBudget, max_batch_within

#: Every edit through the whole model, whatever `jaxsens.sensitivity` does by default.
PLAIN: dict[str, Any] = {"incremental": False}


def default(workload: Workload, num_threads: int) -> "JaxsensMethod":
    """`jaxsens.sensitivity` as it comes."""
    return JaxsensMethod(workload)


def plain(workload: Workload, num_threads: int) -> "JaxsensMethod":
    """Every edit through the whole model, in blocks that fit the cache."""
    return JaxsensMethod(workload, **PLAIN)


def all_at_once(workload: Workload, num_threads: int) -> "JaxsensMethod":
    """All T·S edits of an image in one pass, like PyTorch's batched method."""
    return JaxsensMethod(workload, chunk_bytes=_one_image_bytes(workload), **PLAIN)


class JaxsensMethod:
    """`jaxsens.sensitivity` with some options, on one device."""

    def __init__(self, workload: Workload, **options: Any):
        self._workload = workload
        self._options = options
        self._perturbation = perturbation(workload.setting)
        self._apply = apply_function(workload.setting)
        self._logits = jax.jit(self._apply)
        # PyTorch uses one device; so does this.
        self._device = jax.local_devices()[0]
        self._variables = jax.device_put(variables(workload.weights), self._device)
        self.device = f"{self._device.platform}: {self._device.device_kind}"

    def tune(self, x: np.ndarray) -> None:
        """Nothing to choose."""

    def logits(self, x: np.ndarray) -> np.ndarray:
        """(n, C) of clean inputs, in full float32."""
        with jax.default_matmul_precision("highest"):
            return np.asarray(self._logits(self._variables, x, *masks(self._workload.setting, x)))

    def flips(self, x: np.ndarray, seed: int) -> np.ndarray:
        """(n, T): how many of the S draws at each position changed the prediction."""
        found = self.estimate(x, seed)
        self._reuse = found.provenance.incremental
        return np.asarray(found.totals)

    def estimate(self, x: np.ndarray, seed: int, **options: Any) -> jaxsens.SensitivityEstimate:
        """The measurement itself; `options` are added to the method's own."""
        return jaxsens.sensitivity(
            self._apply,
            self._variables,
            x,
            self._perturbation,
            self._workload.num_samples,
            key=jax.random.key(seed),
            context=next(iter(masks(self._workload.setting, x)), None),
            devices=[self._device],
            **self._options,
            **options,
        )

    def peak_device_bytes(self) -> int | None:
        """Most memory used on an accelerator so far; None on a CPU."""
        if self._device.platform == "cpu":
            return None
        return (self._device.memory_stats() or {}).get("peak_bytes_in_use")

    def matmul(self, size: int) -> Callable[[], Any]:
        """A call that multiplies two size×size matrices and returns when it is done."""
        square = jax.device_put(np.ones((size, size), np.float32), self._device)
        multiply = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
        return lambda: multiply(square).block_until_ready()

    def probe(self, x: np.ndarray) -> dict[str, float]:
        """Whether work was reused; if not, the method is the plain one."""
        return {"reuse": self._reuse}


def make_model(setting: Setting) -> nn.Module:
    """The Flax model."""
    return getattr(jaxsens.models, setting.architecture)(**setting.sizes)


def apply_function(setting: Setting) -> Any:
    """`apply(variables, x, *masks) -> logits` in eval mode; of a text from its embeddings on."""
    model = make_model(setting)

    def apply(variables, *inputs):
        method = "from_embeddings" if setting.takes_mask else None
        return model.apply(variables, *inputs, method=method)

    return apply


def masks(setting: Setting, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """What the model is given beside `x`: for texts that every token is real."""
    return (np.ones(x.shape[:2], bool),) if setting.takes_mask else ()


def forward_flops(setting: Setting, weights: Weights) -> float:
    """Floating-point operations of the plain forward pass of one example, as XLA counts them.

    XLA counts the body of a loop once, however often it runs; without jit JAX unrolls it.
    """
    x = np.zeros((1, *setting.shape), np.float32)
    arguments = (variables(weights), x, *masks(setting, x))
    with jax.disable_jit():
        jaxpr = jax.make_jaxpr(apply_function(setting))(*arguments)
    unrolled = jax.jit(jax.extend.core.jaxpr_as_fun(jaxpr))
    costs = unrolled.lower(*jax.tree.leaves(arguments)).cost_analysis()
    if costs is None or "flops" not in costs:
        raise RuntimeError(f"XLA counted no operations: its cost analysis is {costs}")
    return float(costs["flops"])


def perturbation(setting: Setting) -> jaxsens.Perturbation:
    """The setting's window edit in jaxsens' terms."""
    grid = jaxsens.Patches(setting.window[0]) if len(setting.shape) == 3 else jaxsens.Tokens()
    if grid.window_shape(setting.shape) != setting.window:
        raise ValueError(f"no grid of jaxsens has windows {setting.window} on {setting.shape}")
    return jaxsens.Perturbation(grid, jaxsens.Gaussian(variance=setting.variance))


def first_input(setting: Setting) -> jax.Array:
    """What the model is initialised with: an image, or the tokens of a text."""
    shape = (1, *setting.shape)
    return jnp.ones(shape[:2], jnp.int32) if setting.takes_mask else jnp.zeros(shape)


def random_weights(setting: Setting, seed: int) -> dict[str, np.ndarray]:
    """The model's initial variables by path, kernels times the setting's gain."""
    key = jax.random.key(seed, impl="unsafe_rbg")  # compiles faster than the default
    tree = jax.jit(make_model(setting).init)(key, first_input(setting))
    weights = {
        name: np.asarray(leaf) * np.float32(setting.gain if name.endswith("/kernel") else 1)
        for name, leaf in flatten_dict(tree, sep="/").items()
    }
    return calibrated(setting, weights, seed) if "batch_stats" in tree else weights


def calibrated(setting: Setting, weights: Weights, seed: int) -> dict[str, np.ndarray]:
    """Batch norms with the statistics of random images, and a head whose logits are 0 on average.

    With the initial statistics, 0 and 1, every image would be of the same class by far.
    """
    model, x = make_model(setting), np.random.default_rng(seed).uniform(-1, 1, (16, *setting.shape))
    logits, moved = jax.jit(lambda v, x: model.apply(v, x, train=True, mutable=["batch_stats"]))(
        variables(weights), x.astype(np.float32)
    )
    found = dict(weights)
    for name, new in flatten_dict(dict(moved), sep="/").items():
        # A training step keeps 9/10 of the past.
        found[name] = np.asarray((new - 0.9 * weights[name]) / 0.1, np.float32)
    head = "params/Dense_0/bias"
    found[head] = weights[head] - np.asarray(logits).mean(axis=0)
    return found


def variables(weights: Weights) -> Any:
    """The tree that `random_weights` flattened."""
    return unflatten_dict(dict(weights), sep="/")


def _one_image_bytes(workload: Workload) -> int:
    """The smallest budget that lets an image and all its T·S edits through the model together.

    A larger one would take several images at once; a huge one the whole chunk of 256, padded.
    """
    one = workload.x[:1]
    example = tuple(
        jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in (one, *masks(workload.setting, one))
    )
    apply, tree = apply_function(workload.setting), variables(workload.weights)
    ample = ByteBudget(1 << 60)
    bytes_per_input = ample.total // max_batch_within(ample.widest, apply, tree, example)
    return bytes_per_input * (workload.setting.num_positions * workload.num_samples + 1)


def main(path: str) -> None:
    """Writes the weights of the job in the file `path`, and what a pass costs."""
    job = json.loads(Path(path).read_text())
    setting = Setting.from_json(job["setting"])
    weights = random_weights(setting, job["seed"])
    save_arrays(Path(job["weights"]), weights)
    Path(job["costs"]).write_text(json.dumps({"forward_flops": forward_flops(setting, weights)}))


if __name__ == "__main__":
    main(sys.argv[1])
