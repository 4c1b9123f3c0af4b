"""The paper's four functions of bits, PARITY, MAJORITY, FIRST and MEAN, with values in [0, 1].

Models are fitted to values f in {0, 1} (MEAN: real numbers between them), while sensitivity and
sharpness are those of ±1 outputs, 2f − 1. A table has the value of point b at place b, bit i of the
input being bit i of b: the binary order of `jaxsens.boolean`.

Assumption: MAJORITY is strict, so that a tie of an even number of bits counts as 0.
"""

import math
from typing import Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxsens import boolean
from jaxsens.boolean.points import neighbour

Function = Literal["parity", "majority", "first", "mean"]
#: Their order numbers them.
FUNCTIONS: tuple[Function, ...] = get_args(Function)
#: Those that are not sensitive.
CONTROLS = FUNCTIONS[1:]
LABELS: dict[Function, str] = {name: name.upper() for name in FUNCTIONS}


def bits_of(points: Int[Array, " b"], n: int) -> Int[Array, "b n"]:
    """The bits of points by their numbers.

    >>> bits_of(jnp.array([1, 6]), 3).tolist()
    [[1, 0, 0], [0, 1, 1]]
    """
    return points[:, None] >> jnp.arange(n, dtype=points.dtype)[None, :] & 1


def all_values(bits: Int[Array, "b n"]) -> Float[Array, "b 4"]:
    """The values of all functions, in the order of `FUNCTIONS`.

    >>> all_values(jnp.array([[1, 0, 1, 0], [1, 1, 1, 0]])).tolist()
    [[0.0, 0.0, 1.0, 0.5], [1.0, 1.0, 1.0, 0.75]]
    """
    n, ones = bits.shape[1], bits.sum(axis=1)
    values = (ones % 2, 2 * ones > n, bits[:, 0], ones.astype(jnp.float32) / n)
    return jnp.stack([value.astype(jnp.float32) for value in values], axis=1)


def table(name: Function, n: int) -> Float[Array, " N"]:
    """All 2ⁿ values of a function, in binary order.

    >>> table("majority", 2).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    points = jnp.arange(len(boolean.degrees(n)), dtype=jnp.int32)
    return all_values(bits_of(points, n))[:, FUNCTIONS.index(name)]


def known_sensitivity(name: Function, n: int) -> float:
    """as_n of ±1 outputs in closed form: n, n·C(n−1, ⌊n/2⌋)/2ⁿ⁻¹, 1 and 1/n.

    >>> [known_sensitivity(name, 8) for name in FUNCTIONS]
    [8.0, 2.1875, 1.0, 0.125]
    """
    if name == "majority":
        return n * math.comb(n - 1, n // 2) / 2 ** (n - 1)
    return {"parity": float(n), "first": 1.0, "mean": 1 / n}[name]


def pointwise_sensitivity(outputs: Float[Array, " N"]) -> Float[Array, " N"]:
    """s(x, f) = ¼ Σ_i (f(x) − f(x^{⊕i}))² at every point, for real f."""
    n = len(outputs).bit_length() - 1
    changes = [jnp.square(outputs - neighbour(outputs, i)) for i in range(n)]
    return sum(changes, jnp.zeros_like(outputs)) / 4


def sensitivity_of_table(outputs: Float[Array | np.ndarray, " N"]) -> float:
    """as_n(f) = E_x s(x, f) of a table, by flips.

    >>> sensitivity_of_table(np.array([-1.0, 1.0, 1.0, -1.0]))
    2.0
    """
    return float(jnp.mean(pointwise_sensitivity(jnp.asarray(outputs))))
