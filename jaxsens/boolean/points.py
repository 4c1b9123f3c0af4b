"""The cube {−1, +1}^d, its points and its characters.

Point b, 0 ≤ b < 2^d, has x_i = −1 where bit i of b is set; a set U of coordinates is the number
whose bit i is set for i ∈ U. Then χ_U(x_b) = (−1)^{number of bits of U & b}.

Assumption: tables handed to other modules are in this "binary" order. A table in another order has
the same sensitivities only by accident.
"""

import operator
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, Shaped

from jaxsens.core import memory

PointOrder = Literal["binary", "gray", "weight"]


def cube(d: int, *, order: PointOrder = "binary", dtype: Any = jnp.float32) -> Num[Array, "N d"]:
    """All N = 2^d points of the cube.

    Args:
      d: number of coordinates.
      order: "binary": point b is row b. "gray": neighbouring rows differ in one coordinate.
        "weight": by the number of −1s, points of one weight in binary order.
      dtype: type of the ±1 entries.

    Returns:
      The points, one per row.

    Raises:
      ValueError: d is not positive, the order is unknown, or the points do not fit into memory.

    >>> cube(2).tolist()
    [[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]
    """
    itemsize = np.dtype(dtype).itemsize
    memory.require(2 * itemsize * d * 2 ** _checked(d), f"the cube of d={d}")
    return jnp.asarray(_points(_ordered(d, order), d, dtype))


def _points(points: Int[np.ndarray, " N"], d: int, dtype: Any) -> Num[np.ndarray, "N d"]:
    bits = (points[:, None] >> np.arange(d)) & 1
    return (1 - 2 * bits).astype(dtype)


def _ordered(d: int, order: PointOrder) -> Int[np.ndarray, " N"]:
    points = np.arange(2**d)
    if order == "binary":
        return points
    if order == "gray":
        return points ^ (points >> 1)
    if order == "weight":
        return np.argsort(np.bitwise_count(points), kind="stable")
    raise ValueError(f"order must be 'binary', 'gray' or 'weight'; got {order!r}")


def index_of(x: Num[Array | np.ndarray, "*batch d"]) -> Int[Array, "*batch"]:
    """The indices of points: b = Σ_i 2^i 1[x_i < 0].

    >>> index_of(cube(3, order="gray")).tolist()
    [0, 1, 3, 2, 6, 7, 5, 4]
    """
    x = jnp.asarray(x)
    return jnp.sum(jnp.where(x < 0, 2 ** jnp.arange(x.shape[-1]), 0), axis=-1)


def flip(x: Num[Array, "*batch d"], coordinate: int) -> Num[Array, "*batch d"]:
    """The points with one coordinate flipped: x^{⊕i}.

    >>> flip(cube(1), 0).tolist()
    [[-1.0], [1.0]]
    """
    return x.at[..., coordinate].multiply(jnp.asarray(-1, x.dtype))


def mask_of(coordinates: Iterable[int]) -> int:
    """The set U of coordinates as a number.

    Raises:
      ValueError: a coordinate is negative or given twice.

    >>> mask_of([0, 2])
    5
    """
    members = list(coordinates)
    if len(set(members)) != len(members) or any(i < 0 for i in members):
        raise ValueError(f"expected different coordinates >= 0, got {members}")
    return reduce(operator.or_, (1 << i for i in members), 0)


def coordinates_of(mask: int) -> tuple[int, ...]:
    """The inverse of `mask_of`.

    >>> coordinates_of(5)
    (0, 2)
    """
    return tuple(i for i in range(int(mask).bit_length()) if mask >> i & 1)


def degrees(d: int) -> Int[np.ndarray, " N"]:
    """|U| for every set U of d coordinates, by its number.

    Raises:
      ValueError: d is not positive, or the table does not fit into memory.

    >>> degrees(3).tolist()
    [0, 1, 1, 2, 1, 2, 2, 3]
    """
    memory.require(16 * 2 ** _checked(d), f"the degrees of d={d}")
    return np.bitwise_count(np.arange(2**d)).astype(np.int32)


def character(x: Num[Array, "*batch d"], coordinates: Iterable[int]) -> Num[Array, "*batch"]:
    """χ_U(x) = ∏_{i∈U} x_i; the empty set gives 1.

    Args:
      x: points, coordinates last.
      coordinates: the set U.

    Returns:
      The character at each point.

    Raises:
      ValueError: a coordinate is not one of the points'.

    >>> character(cube(2), [0, 1]).tolist()
    [1.0, -1.0, -1.0, 1.0]
    """
    members = coordinates_of(mask_of(coordinates))
    if members and members[-1] >= x.shape[-1]:
        raise ValueError(f"coordinate {members[-1]} is not one of the {x.shape[-1]} coordinates")
    return jnp.prod(x[..., np.array(members, int)], axis=-1, dtype=x.dtype)


def table_of(
    function: Callable[[Float[Array, "n d"]], Shaped[Array, " n"]], d: int, *, rows: int = 2**18
) -> Shaped[Array, " N"]:
    """The table of values of a function of points, block by block.

    Args:
      function: maps (n, d) points to (n,) values.
      d: number of coordinates.
      rows: points in a block, so that no (2^d, d) array exists.

    Returns:
      The 2^d values, in binary order.

    Raises:
      ValueError: the function does not give one value per point, or 2^d values do not fit.

    >>> table_of(lambda x: x[:, 0] * x[:, 1], 2).tolist()
    [1.0, -1.0, -1.0, 1.0]
    """
    memory.require(8 * 2 ** _checked(d), f"the table of a function of d={d}")
    blocks = []
    for start in range(0, 2**d, rows):
        stop = min(start + rows, 2**d)
        x = jnp.asarray(_points(np.arange(start, stop), d, jnp.float32))
        values = function(x)
        if jnp.shape(values) != (len(x),):
            raise ValueError(
                f"expected one value for each of {len(x)} points, got shape {jnp.shape(values)}"
            )
        blocks.append(values)
    return jnp.concatenate(blocks)


def dimension_of(values: Shaped[Array | np.ndarray, "*batch N"]) -> int:
    """The d of tables with 2^d values.

    Raises:
      ValueError: the number of values is not a power of two, or is 1.

    >>> dimension_of(np.zeros(8))
    3
    """
    num = values.shape[-1]
    d = num.bit_length() - 1
    if d < 1 or num != 2**d:
        raise ValueError(f"expected 2^d values with d >= 1, got {num}")
    return d


def neighbour(
    values: Shaped[Array, "*batch N"], coordinate: int | Int[Array, ""]
) -> Shaped[Array, "*batch N"]:
    """The table of x ↦ f(x^{⊕i}).

    >>> neighbour(jnp.array([5, 6, 7, 8]), 1).tolist()
    [7, 8, 5, 6]
    """
    return jnp.asarray(values)[..., jnp.arange(values.shape[-1]) ^ (1 << coordinate)]


def _checked(d: int) -> int:
    if not isinstance(d, int | np.integer) or isinstance(d, bool) or d < 1:
        raise ValueError(f"d must be a whole number >= 1; got {d!r}")
    return int(d)


#: One of several kinds of arrays that hold a table.
Table = jax.Array | np.ndarray
