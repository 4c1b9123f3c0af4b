"""Functions on the cube by name, as functions of points (…, d) → (…); −1 stands for "true".

    table_of(majority, 5) is a table, and lambda params, x: majority(x) a model that
    `jaxsens.sensitivity` can measure.

Assumption: values are ±1, except that `majority` of an even number of coordinates has ties, whose
value is 0 (a class of its own, as everywhere in jaxsens), and that `mean` is real.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num, PRNGKeyArray, Shaped

from jaxsens.boolean.fourier import degree
from jaxsens.boolean.points import Table, character, degrees, dimension_of, index_of

Points = Num[Array, "*batch d"]
Values = Num[Array, "*batch"]

_ATTEMPTS = 1000


def parity(x: Points, coordinates: Iterable[int] | None = None) -> Values:
    """χ_U(x): the parity of all coordinates, or the sparse parity of a few.

    Args:
      x: points, coordinates last.
      coordinates: the set U; default all.

    Returns:
      ±1.

    >>> from jaxsens.boolean import cube
    >>> parity(cube(2)).tolist()
    [1.0, -1.0, -1.0, 1.0]
    """
    return character(x, range(x.shape[-1]) if coordinates is None else coordinates)


def first(x: Points) -> Values:
    """The dictator x_0.

    >>> from jaxsens.boolean import cube
    >>> first(cube(2)).tolist()
    [1.0, -1.0, 1.0, -1.0]
    """
    return x[..., 0]


def mean(x: Points) -> Values:
    """(1/d) Σ_i x_i, a real number; its sign is the majority.

    >>> from jaxsens.boolean import cube
    >>> mean(cube(2)).tolist()
    [1.0, 0.0, 0.0, -1.0]
    """
    return jnp.mean(x, axis=-1)


def majority(x: Points) -> Values:
    """sign(Σ_i x_i), 0 for a tie.

    >>> from jaxsens.boolean import cube
    >>> majority(cube(3)).tolist()
    [1.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0, -1.0]
    """
    return jnp.sign(jnp.sum(x, axis=-1))


def and_(x: Points) -> Values:
    """−1 (true) if all coordinates are −1, else +1.

    >>> from jaxsens.boolean import cube
    >>> and_(cube(2)).tolist()
    [1.0, 1.0, 1.0, -1.0]
    """
    return jnp.max(x, axis=-1)


def or_(x: Points) -> Values:
    """−1 (true) if any coordinate is −1, else +1.

    >>> from jaxsens.boolean import cube
    >>> or_(cube(2)).tolist()
    [1.0, -1.0, -1.0, -1.0]
    """
    return jnp.min(x, axis=-1)


def tribes(x: Points, width: int) -> Values:
    """OR of the ANDs of consecutive groups ("tribes") of `width` coordinates.

    Args:
      x: points, coordinates last.
      width: coordinates in a tribe; must divide d.

    Returns:
      ±1.

    Raises:
      ValueError: the width does not divide d.

    >>> from jaxsens.boolean import cube
    >>> int(jnp.sum(tribes(cube(4), 2) < 0))
    7
    """
    d = x.shape[-1]
    if width < 1 or d % width:
        divisors = ", ".join(str(w) for w in range(1, d + 1) if d % w == 0)
        raise ValueError(f"width={width} does not divide d={d}; choose one of {divisors}")
    return or_(and_(x.reshape(*x.shape[:-1], d // width, width)))


def random_function(d: int, *, key: PRNGKeyArray | Array) -> Shaped[Array, " N"]:
    """A table of 2^d independent fair signs.

    >>> import jax
    >>> random_function(3, key=jax.random.key(0)).shape
    (8,)
    """
    return jax.random.rademacher(key, (len(degrees(d)),), jnp.int32)


def random_of_degree(d: int, k: int, *, key: PRNGKeyArray | Array) -> Shaped[Array, " N"]:
    """The table of a ±1-valued function of degree exactly k: a random decision tree of depth k.

    Every inner node queries a uniformly random coordinate that its path has not queried yet, and
    every leaf is a fair sign; a tree whose function has a lower degree is drawn again.

    Args:
      d: number of coordinates.
      k: the degree, 0 … d.
      key: a JAX random key.

    Returns:
      2^d signs.

    Raises:
      ValueError: k is not one of 0 … d.

    >>> import jax
    >>> int(degree(random_of_degree(6, 3, key=jax.random.key(0))))
    3
    """
    if not 0 <= k <= d:
        raise ValueError(f"a function of {d} coordinates has a degree from 0 to {d}; got {k}")
    points = np.arange(len(degrees(d)))
    for attempt in range(_ATTEMPTS):
        seed = jax.random.bits(jax.random.fold_in(key, attempt), (2,))
        values = _random_tree(np.random.default_rng(np.asarray(seed)), points, d, k)
        if int(degree(values)) == k:
            return jnp.asarray(values)
    raise AssertionError(f"no function of degree {k} in {_ATTEMPTS} trees")


def _random_tree(rng: np.random.Generator, points: np.ndarray, d: int, k: int) -> np.ndarray:
    """Values of a random complete decision tree of depth k at the points."""
    node = np.zeros(len(points), int)
    unused = [list(range(d))]
    for _ in range(k):
        queried = [int(rng.choice(left)) for left in unused]
        node = 2 * node + (points >> np.array(queried)[node] & 1)
        rest = ([j for j in left if j != i] for left, i in zip(unused, queried, strict=True))
        unused = [child for left in rest for child in (left, left)]
    return rng.choice(np.array([-1, 1], np.int32), size=len(unused))[node]


def from_table(values: Shaped[Table, " N"]) -> Callable[[Any], Shaped[Array, "*batch"]]:
    """A table as a function of points, so that `jaxsens.sensitivity` can measure it.

    Args:
      values: 2^d values in binary order.

    Returns:
      A function (…, d) → (…).

    Raises:
      ValueError: the number of values is no power of two.

    >>> from jaxsens.boolean import cube
    >>> from_table(np.array([3, 1, 4, 1]))(cube(2)).tolist()
    [3, 1, 4, 1]
    """
    d = dimension_of(values)
    table = jnp.asarray(values)

    def lookup(x: Points) -> Shaped[Array, "*batch"]:
        if x.shape[-1] != d:
            raise ValueError(f"expected points of {d} coordinates, got {x.shape[-1]}")
        return table[index_of(x)]

    return lookup
