"""How complicated a function on the cube is: sensitivity, influences, decision trees.

    s(f, x) = #{i : f(x) ≠ f(x^{⊕i})}       Inf_i(f) = P_x[f(x) ≠ f(x^{⊕i})]
    as(f) = E_x s(f, x) = Σ_i Inf_i(f)       s(f) = max_x s(f, x)

Sensitivity as `jaxsens.sensitivity` measures it on the cube, a fraction of the positions, is
as(f)/d. Huang (2019): deg(f) ≤ s(f)² for ±1-valued f.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from jaxsens.boolean.points import Table, dimension_of, neighbour
from jaxsens.core import memory

# Above it, the 3^d subcubes take more than a few seconds.
_LARGEST_TREE_D = 13


def pointwise_sensitivity(values: Shaped[Table, "*batch N"]) -> Int[Array, "*batch N"]:
    """s(f, x) = #{i : f(x) ≠ f(x^{⊕i})} at every point.

    Args:
      values: tables in binary order, the points last; any values that can be compared.

    Returns:
      Whole numbers from 0 to d.

    Raises:
      ValueError: the number of values is no power of two.

    >>> pointwise_sensitivity(np.array([1, 1, 1, -1])).tolist()
    [0, 1, 1, 2]
    """
    return _pointwise_sensitivity(jnp.asarray(values), dimension_of(values))


@partial(jax.jit, static_argnums=1)
def _pointwise_sensitivity(values: Shaped[Array, "*batch N"], d: int) -> Int[Array, "*batch N"]:
    def add(i, count):
        return count + (values != neighbour(values, i)).astype(count.dtype)

    return jax.lax.fori_loop(0, d, add, jnp.zeros(values.shape, jnp.int32))


def influences(values: Shaped[Table, "*batch N"]) -> Float[Array, "*batch d"]:
    """Inf_i(f) = P_x[f(x) ≠ f(x^{⊕i})] of every coordinate.

    Args:
      values: tables in binary order, the points last.

    Returns:
      The influences, the coordinate last; float32, exact up to d = 24.

    >>> influences(np.array([1, -1, 1, -1])).tolist()
    [1.0, 0.0]
    """
    return _influences(jnp.asarray(values), dimension_of(values))


@partial(jax.jit, static_argnums=1)
def _influences(values: Shaped[Array, "*batch N"], d: int) -> Float[Array, "*batch d"]:
    counts = [jnp.sum(values != neighbour(values, i), axis=-1) for i in range(d)]
    return jnp.stack(counts, axis=-1).astype(jnp.float32) / jnp.float32(values.shape[-1])


def average_sensitivity(values: Shaped[Table, "*batch N"]) -> Float[np.ndarray, "*batch"]:
    """as(f) = 2^{−d} Σ_x s(f, x), from the exact count.

    Args:
      values: tables in binary order, the points last.

    Returns:
      float64, one number per table; divided by d it is what `jaxsens.sensitivity` measures.

    >>> float(average_sensitivity(np.array([1, -1, -1, 1])))
    2.0
    """
    counts = np.asarray(pointwise_sensitivity(values))
    return np.asarray(counts.mean(axis=-1, dtype=np.float64))


def maximum_sensitivity(values: Shaped[Table, "*batch N"]) -> Int[np.ndarray, "*batch"]:
    """s(f) = max_x s(f, x).

    >>> int(maximum_sensitivity(np.array([1, 1, 1, -1])))
    2
    """
    return np.asarray(np.asarray(pointwise_sensitivity(values)).max(axis=-1))


@dataclass(frozen=True)
class DecisionTree:
    """The smallest decision tree of a function.

    Attributes:
      size: fewest leaves of a tree that queries single coordinates and computes f.
      depth: least depth of such a tree, possibly a different one.

    >>> tree = decision_tree(np.array([1, 1, 1, -1]))
    >>> tree.size, tree.depth
    (3, 2)
    """

    size: int
    depth: int


def decision_tree(values: Shaped[Table, " N"]) -> DecisionTree:
    """Least size and least depth of a decision tree for f, by going through all 3^d subcubes.

        size(C) = 1 if f is constant on the subcube C, else min_i size(C, x_i=+1) + size(C, x_i=−1)

    and the depth with 0 and 1 + max.

    Args:
      values: a table in binary order.

    Returns:
      Both numbers.

    Raises:
      ValueError: d is larger than 13.

    >>> decision_tree(np.array([1, -1, -1, 1]))
    DecisionTree(size=4, depth=2)
    """
    values = np.asarray(values)
    d = dimension_of(values)
    if d > _LARGEST_TREE_D:
        raise ValueError(
            f"a decision tree of d={d} goes through 3^d = {3**d} subcubes, {3**d * (d + 24)} bytes;"
            f" choose d <= {_LARGEST_TREE_D}"
        )
    memory.require(3**d * (d + 24), f"the decision tree of d={d}")
    # Digit i of a subcube in base 3: coordinate i is +1 (0), −1 (1) or free (2).
    place = 3 ** np.arange(d)
    digits = (np.arange(3**d)[:, None] // place % 3).astype(np.int8)
    free = (digits == 2).sum(axis=1)
    constant = _constants(np.unique(values, return_inverse=True)[1], digits, free)
    size, depth = np.where(constant, 1, np.iinfo(np.int64).max), np.where(constant, 0, d)
    for num_free in range(1, d + 1):
        for i in range(d):
            at = np.flatnonzero((free == num_free) & ~constant & (digits[:, i] == 2))
            plus, minus = at - 2 * place[i], at - place[i]
            size[at] = np.minimum(size[at], size[plus] + size[minus])
            depth[at] = np.minimum(depth[at], 1 + np.maximum(depth[plus], depth[minus]))
    return DecisionTree(int(size[-1]), int(depth[-1]))


def _constants(labels: np.ndarray, digits: np.ndarray, free: np.ndarray) -> np.ndarray:
    """For every subcube, whether the function has only one label on it."""
    d = digits.shape[1]
    points = free == 0
    label = np.zeros(len(digits), labels.dtype)
    label[points] = labels[digits[points].astype(int) @ 2 ** np.arange(d)]
    constant = points.copy()
    for num_free in range(1, d + 1):
        at = np.flatnonzero(free == num_free)
        place = 3 ** np.argmax(digits[at] == 2, axis=1)
        plus, minus = at - 2 * place, at - place
        label[at] = label[plus]
        constant[at] = constant[plus] & constant[minus] & (label[plus] == label[minus])
    return constant
