"""Conjugate and tangent kernels of finite networks, at initialisation or after training.

    CK(x, y)  = ⟨h(x), h(y)⟩                            h: what the last layer sees, with its scale
    NTK(x, y) = (1/C) Σ_c ⟨∂_θ f_c(x), ∂_θ f_c(y)⟩       C outputs

Any JAX function works: `apply_fn(params, x)`, of Flax or not. For a model in the usual
parametrisation the CK needs h divided by the square root of its width to have a limit.

Assumption: `apply_fn` treats the inputs of a batch independently and has no randomness of its own.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsens.core.intervals import student_half_width
from jaxsens.perturbations import weight_noise

#: (params, x) → (n,), (n, C) outputs or (n, width) features.
ApplyFn = Callable[[Any, Array], Array]

#: Bytes that the gradients of a block of inputs may take.
JACOBIAN_BYTES = 2**29


def empirical_ck(feature_fn: ApplyFn, params: Any, x: Float[Array, "n ..."]) -> Float[Array, "n n"]:
    """⟨h(x_i), h(x_j)⟩ for all pairs of inputs.

    Args:
      feature_fn: (params, x) → features (n, …), with their scale.
      params: its parameters.
      x: inputs.

    Returns:
      The kernel matrix.

    >>> empirical_ck(lambda w, x: x @ w, jnp.eye(2), jnp.array([[1.0, 0.0], [1.0, 1.0]])).tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """
    features = feature_fn(params, x).reshape(len(x), -1)
    with jax.default_matmul_precision("highest"):
        return features @ features.T


def empirical_ntk(
    apply_fn: ApplyFn,
    params: Any,
    x: Float[Array, "n ..."],
    *,
    mask: Any = None,
    jacobian_bytes: int = JACOBIAN_BYTES,
) -> Float[Array, "n n"]:
    """(1/C) Σ_c ⟨∂_θ f_c(x_i), ∂_θ f_c(x_j)⟩ for all pairs of inputs.

    Args:
      apply_fn: (params, x) → (n,) or (n, C). Pass the same function object again and nothing is
        compiled again.
      params: its parameters, any pytree.
      x: inputs.
      mask: which leaves are weights, θ: a pytree of bools with the structure of `params` or a
        prefix of it, default all of floating point. Running statistics are not weights: for
        Flax variables with BatchNorm give `{"params": True, "batch_stats": False}`.
      jacobian_bytes: where the gradients of all inputs take more than this, they are made in
        blocks, each more than once.

    Returns:
      The kernel matrix.

    Raises:
      ValueError: the gradients of a single input take more than `jacobian_bytes`, or the mask
        does not fit.

    >>> empirical_ntk(lambda w, x: x @ w, jnp.ones(2), jnp.array([[1.0, 0.0], [1.0, 1.0]])).tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """
    outputs = jax.eval_shape(apply_fn, params, x)
    num_outputs = math.prod(outputs.shape[1:])
    selected = weight_noise.select(params, mask)
    weights = _weights(params, selected)
    sizes = sum(leaf.size * leaf.dtype.itemsize for leaf in weights)
    # The gradients of two blocks are alive at the same time.
    block = min(len(x), jacobian_bytes // (2 * sizes * num_outputs))
    if block < 1:
        raise ValueError(
            f"the gradients of one input need {2 * sizes * num_outputs} bytes, more than "
            f"jacobian_bytes={jacobian_bytes}"
        )
    parts = [x[start : start + block] for start in range(0, len(x), block)]
    with jax.default_matmul_precision("highest"):
        rows = [
            [_products(apply_fn, selected, params, left, None if r is left else r) for r in parts]
            for left in parts
        ]
    whole = jnp.concatenate([jnp.concatenate(row, axis=1) for row in rows])
    return whole / jnp.asarray(num_outputs, whole.dtype)


def _weights(params: Any, selected: tuple[bool, ...]) -> list[Array]:
    leaves = jax.tree.leaves(params)
    return [jnp.asarray(leaf) for leaf, bit in zip(leaves, selected, strict=True) if bit]


@partial(jax.jit, static_argnums=(0, 1))
def _products(
    apply_fn: ApplyFn,
    selected: tuple[bool, ...],
    params: Any,
    left: Float[Array, "n ..."],
    right: Float[Array, "m ..."] | None,
) -> Float[Array, "n m"]:
    """Sums of products of the gradients of two blocks of inputs, or of one block with itself."""
    one = _gradients(apply_fn, selected, params, left)
    other = one if right is None else _gradients(apply_fn, selected, params, right)
    products = [jnp.einsum("ncp,mcp->nm", a, b) for a, b in zip(one, other, strict=True)]
    return jnp.sum(jnp.stack(products), axis=0)


def _gradients(
    apply_fn: ApplyFn, selected: tuple[bool, ...], params: Any, x: Array
) -> list[Float[Array, "n C size"]]:
    def single(weights, one):
        return apply_fn(weight_noise.with_weights(params, selected, weights), one[None]).reshape(-1)

    jacobian = jax.vmap(jax.jacrev(single), in_axes=(None, 0))(_weights(params, selected), x)
    return [leaf.reshape(len(x), leaf.shape[1], -1) for leaf in jacobian]


@dataclass(frozen=True)
class SeedAverage:
    """A kernel averaged over random initialisations.

    Attributes:
      mean: the average.
      stderr: standard error of each entry.
      num_seeds: how many were averaged.

    >>> average = SeedAverage(mean=np.full((1, 1), 2.0), stderr=np.full((1, 1), 0.5), num_seeds=11)
    >>> [round(end.item(), 3) for end in average.ci()]
    [0.886, 3.114]
    """

    mean: Float[np.ndarray, "n m"]
    stderr: Float[np.ndarray, "n m"]
    num_seeds: int

    def ci(self, level: float = 0.95) -> tuple[Float[np.ndarray, "n m"], Float[np.ndarray, "n m"]]:
        """Student's interval of every entry: (lower, upper)."""
        half = student_half_width(self.stderr, self.num_seeds - 1, level)
        return self.mean - half, self.mean + half


def average_over_seeds(kernels: Iterable[Float[Array | np.ndarray, "n m"]]) -> SeedAverage:
    """The average of kernels of differently initialised (or trained) networks.

    Assumption: the seeds are independent. Kernels of one training at several epochs would get
    intervals that are too narrow.

    Args:
      kernels: one kernel per seed; a generator keeps only one of them in memory.

    Returns:
      Mean and standard error, in float64.

    Raises:
      ValueError: there are fewer than two.

    >>> average = average_over_seeds(np.full((1, 1), value) for value in (1.0, 2.0, 3.0))
    >>> average.mean.item(), round(average.stderr.item(), 4)
    (2.0, 0.5774)
    """
    num, mean, squares = 0, np.zeros(()), np.zeros(())
    for kernel in kernels:
        num += 1
        # Welford's update: no difference of large sums.
        change = np.asarray(kernel, np.float64) - mean
        mean = mean + change / num
        squares = squares + change * (np.asarray(kernel, np.float64) - mean)
    if num < 2:
        raise ValueError(f"expected kernels of at least 2 seeds, got {num}")
    return SeedAverage(mean, np.sqrt(squares / (num - 1) / num), num)
