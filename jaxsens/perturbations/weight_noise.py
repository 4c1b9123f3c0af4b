"""Noise on the weights: θ' = θ + Δ, for the leaves of a parameter tree that a mask selects.

Every noise here scales one standard normal vector, leaf by leaf:

    θ'_leaf = θ_leaf + c_leaf · ξ_leaf,    ξ ~ N(0, I) over all floating-point leaves in their order

Draw s has ξ from the key fold_in(fold_in(key, s), 0), whatever the mask and the kind of noise: a
mask does not change the noise of the leaves that it selects, and noises of two kinds or sizes share
their directions. ξ is one vector and not one per leaf, because a program with hundreds of random
generators takes minutes to compile.

Assumption: every selected leaf of floating-point numbers is a weight. Running statistics are not,
though they are floating-point numbers: exclude them with the mask.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens.core.scalars import check_hashable, noise_size, one_line
from jaxsens.perturbations.edits import Gaussian
from jaxsens.perturbations.perturbation import Perturbation


@runtime_checkable
class ScaledNoise(Protocol):
    """A noise on weights, given by its scale for each leaf. Implementations are hashable."""

    def scales(
        self, leaves: Sequence[Float[Array, "..."]], xi: Sequence[Float[Array, "..."]]
    ) -> Sequence[float | Float[Array, ""]]:
        """c_leaf for each selected leaf, from the leaves and their shares of ξ."""


#: What may happen to the weights. `Gaussian` is the edit of inputs: c = σ for every leaf.
WeightNoise = Gaussian | ScaledNoise


@dataclass(frozen=True)
class Sphere:
    """Moves all selected weights together, in a uniformly random direction, by exactly `radius`.

        Δ = radius · ξ/‖ξ‖,    with the norm over all selected weights

    N(0, σ²I) on p weights is nearly Sphere(σ√p): its norm differs by a factor 1 ± 1/√(2p).

    Args:
      radius: the norm of the move.

    Raises:
      ValueError: the radius is negative or not finite.

    >>> Sphere(2.0).scales([jnp.zeros(4)], [jnp.ones(4)])[0].item()
    1.0
    """

    radius: float

    def __post_init__(self):
        object.__setattr__(self, "radius", noise_size("Sphere", "radius", self.radius))

    def scales(
        self, leaves: Sequence[Float[Array, "..."]], xi: Sequence[Float[Array, "..."]]
    ) -> Sequence[Float[Array, ""]]:
        """For every leaf radius/‖ξ‖."""
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(part)) for part in xi))
        return [self.radius / norm for _ in leaves]


@dataclass(frozen=True)
class Relative:
    """Adds Gaussian noise in proportion to the norm of each leaf.

        Δ_leaf = scale · ‖leaf‖ · ξ_leaf/√size,    so that E ‖Δ_leaf‖² = scale² ‖leaf‖²

    Each leaf is measured by its own norm, so that a layer with large weights is perturbed as much
    as one with small weights. A leaf of zeros, such as a fresh bias, stays zero.

    Args:
      scale: the expected norm of the noise on a leaf as a share of the leaf's own.

    Raises:
      ValueError: the scale is negative or not finite.

    >>> Relative(0.5).scales([jnp.full(4, 3.0)], [jnp.ones(4)])[0].item()
    1.5
    """

    scale: float

    def __post_init__(self):
        object.__setattr__(self, "scale", noise_size("Relative", "scale", self.scale))

    def scales(
        self, leaves: Sequence[Float[Array, "..."]], xi: Sequence[Float[Array, "..."]]
    ) -> Sequence[Float[Array, ""]]:
        """For each leaf scale · ‖leaf‖/√size."""
        return [self.scale * jnp.sqrt(jnp.mean(jnp.square(leaf))) for leaf in leaves]


def check_noise(noise: Any) -> None:
    """Raises ValueError for what is not a noise on weights, such as an edit of inputs."""
    if isinstance(noise, Perturbation):
        raise ValueError(
            "sharpness perturbs weights, which have no grid: use Gaussian, Relative or Sphere "
            f"without one; got {one_line(noise)}"
        )
    if isinstance(noise, type) or not isinstance(noise, WeightNoise):
        raise ValueError(
            f"perturbation must be Gaussian, Relative or Sphere; got {one_line(noise)}"
        )
    check_hashable("perturbation", noise)


def select(params: Any, mask: Any) -> tuple[bool, ...]:
    """Which leaves of `params` are perturbed, in their order.

    Args:
      params: any pytree.
      mask: a pytree of bools with the structure of `params` or a prefix of it: a bool in place of a
        subtree speaks for all its leaves. None selects everything.

    Returns:
      For each leaf, whether it is selected and of floating-point numbers: integers, bools and
      random keys are never perturbed.

    >>> variables = {"params": {"w": jnp.ones(2), "steps": 3}, "batch_stats": {"mean": jnp.ones(2)}}
    >>> select(variables, {"params": True, "batch_stats": False})
    (False, False, True)
    """
    if mask is None:
        _check_only_weights(params)
        mask = True
    try:
        full = jax.tree.map(lambda bit, part: jax.tree.map(lambda _: bit, part), mask, params)
    except (TypeError, ValueError):
        raise ValueError(
            "mask must have the structure of params or a prefix of it, such as "
            f"{_prefix_of(params)}; got {one_line(mask)}"
        ) from None
    bits = jax.tree.leaves(full)
    strange = [
        bit
        for bit in bits
        if not isinstance(bit, bool) and (np.shape(bit), getattr(bit, "dtype", None)) != ((), bool)
    ]
    if strange:
        raise ValueError(
            f"mask must hold bools, one for a leaf or subtree; got {one_line(strange[0])}"
        )
    leaves = jax.tree.leaves(params)
    selected = tuple(bool(bit) and _is_float(leaf) for bit, leaf in zip(bits, leaves, strict=True))
    if not num_weights(params, selected):
        raise ValueError(
            f"there is no weight to perturb: of {len(leaves)} leaves, {sum(map(bool, bits))} are "
            "selected by the mask, and none of those holds floating-point numbers; check params "
            "and mask"
        )
    return selected


def num_weights(params: Any, selected: Sequence[bool]) -> int:
    """p: how many numbers the selected leaves hold."""
    leaves = jax.tree.leaves(params)
    return sum(np.size(leaf) for leaf, bit in zip(leaves, selected, strict=True) if bit)


def draw_key(key: PRNGKeyArray, sample: int | Int[Array, ""], purpose: int) -> PRNGKeyArray:
    """The key of draw number `sample` for one purpose: 0 for ξ, 1 for a `perturbed_apply_fn`."""
    return jax.random.fold_in(jax.random.fold_in(key, sample), purpose)


def directions(key: PRNGKeyArray, sample: int | Int[Array, ""], params: Any) -> Float[Array, " p"]:
    """ξ of draw number `sample`."""
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(params) if _is_float(leaf))
    return jax.random.normal(draw_key(key, sample, 0), (size,))


def perturb(
    noise: WeightNoise, xi: Float[Array, " p"], params: Any, selected: Sequence[bool]
) -> list[Array]:
    """The selected leaves of θ'.

    >>> theta = {"a": jnp.zeros(3), "b": jnp.zeros(4)}
    >>> xi = directions(jax.random.key(0), 0, theta)
    >>> leaves = perturb(Sphere(2.0), xi, theta, (True, True))
    >>> round(float(sum(jnp.sum(leaf**2) for leaf in leaves)), 5)
    4.0
    """
    leaves, parts, at = [], [], 0
    for leaf, bit in zip(jax.tree.leaves(params), selected, strict=True):
        if bit:
            leaves.append(jnp.asarray(leaf))
            parts.append(xi[at : at + np.size(leaf)].reshape(np.shape(leaf)))
        at += np.size(leaf) if _is_float(leaf) else 0
    # Sums in full precision, before they are rounded to that of a leaf.
    exact = [leaf.astype(xi.dtype) for leaf in leaves]
    scales = _scales(noise, exact, parts)
    moved = [a + c * b for a, b, c in zip(exact, parts, scales, strict=True)]
    return [new.astype(leaf.dtype) for new, leaf in zip(moved, leaves, strict=True)]


def with_weights(params: Any, selected: Sequence[bool], weights: Sequence[Array]) -> Any:
    """The parameters with new arrays in place of the selected leaves."""
    leaves, treedef = jax.tree.flatten(params)
    new = iter(weights)
    merged = [next(new) if bit else leaf for leaf, bit in zip(leaves, selected, strict=True)]
    return jax.tree.unflatten(treedef, merged)


def _scales(noise: WeightNoise, leaves: Sequence[Array], xi: Sequence[Array]) -> Sequence[Any]:
    if isinstance(noise, Gaussian):
        return [noise.sigma for _ in leaves]
    return noise.scales(leaves, xi)


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(jax.typeof(leaf).dtype, jnp.floating)


def _check_only_weights(params: Any) -> None:
    """Raises ValueError for Flax variables with other collections beside the weights."""
    if not (isinstance(params, Mapping) and "params" in params and len(params) > 1):
        return
    others = ", ".join(repr(name) for name in params if name != "params")
    mask = {name: name == "params" for name in params}
    raise ValueError(
        f"params has Flax collections that are not weights ({others}); say so with mask={mask}"
    )


def _prefix_of(params: Any) -> str:
    """A mask that fits the parameters, to show in an error message."""
    if isinstance(params, Mapping):
        return one_line(dict.fromkeys(params, True))
    return "True"
