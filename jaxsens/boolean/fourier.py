"""The Fourier side of a function on the cube (O'Donnell, Analysis of Boolean Functions, §§1–2).

    f̂(U) = 2^{−d} Σ_x f(x) χ_U(x)         W_k(f) = Σ_{|U|=k} f̂(U)²
    Stab_ρ(f) = Σ_U ρ^{|U|} f̂(U)²          as(f) = Σ_U |U| f̂(U)²   for f with values ±1

Assumption: the last identity, and "degree" as an exact integer, are about ±1-valued functions; for
another function as(f) becomes Σ_i E[(f(x) − f(x^{⊕i}))²]/4.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from jaxsens.boolean.points import Table, degrees, dimension_of
from jaxsens.core import memory


def walsh_hadamard(values: Num[Table, "*batch N"]) -> Num[Array, "*batch N"]:
    """Σ_x f(x) χ_U(x) for all U at once, in d·2^d additions, of the same type as the values.

    Applied twice it gives 2^d times the values. Exact for integers, and in float32 for ±1-valued
    functions up to d = 24.

    Args:
      values: tables in binary order, the points last.

    Returns:
      The sums, U by its number.

    Raises:
      ValueError: the number of values is no power of two, or the work does not fit into memory.

    >>> walsh_hadamard(np.array([1, -1, -1, 1])).tolist()
    [0, 0, 0, 4]
    """
    d = dimension_of(values)
    # The values, and the loop's two buffers.
    num_bytes = 3 * values.size * jax.dtypes.canonicalize_dtype(values.dtype).itemsize
    memory.require(num_bytes, f"the Walsh-Hadamard transform of d={d}")
    return _walsh_hadamard(jnp.asarray(values), d)


@partial(jax.jit, static_argnums=1)
def _walsh_hadamard(values: Num[Array, "*batch N"], d: int) -> Num[Array, "*batch N"]:
    shape = values.shape

    def stage(_, v):
        # Every stage treats the highest bit and rotates the bits by one place, so that all stages
        # are the same code and after d of them each bit is back at its place.
        high, low = v[..., : v.shape[-1] // 2], v[..., v.shape[-1] // 2 :]
        return jnp.stack([high + low, high - low], axis=-1).reshape(shape)

    return jax.lax.fori_loop(0, d, stage, values)


def fourier_coefficients(values: Num[Table, "*batch N"]) -> Float[Array, "*batch N"]:
    """f̂(U) = 2^{−d} Σ_x f(x) χ_U(x) for all U.

    Args:
      values: tables in binary order, the points last; whole numbers become float32.

    Returns:
      The coefficients, U by its number.

    Raises:
      ValueError: as `walsh_hadamard`.

    >>> fourier_coefficients(np.array([1.0, -1.0, 1.0, -1.0])).tolist()
    [0.0, 1.0, 0.0, 0.0]
    """
    values = jnp.asarray(values)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        values = values.astype(jnp.float32)
    return walsh_hadamard(values) / jnp.asarray(values.shape[-1], values.dtype)


def values_from_fourier(coefficients: Float[Table, "*batch N"]) -> Float[Array, "*batch N"]:
    """f(x) = Σ_U f̂(U) χ_U(x): the inverse of `fourier_coefficients`.

    >>> values_from_fourier(np.array([0.0, 0.0, 0.0, 1.0])).tolist()
    [1.0, -1.0, -1.0, 1.0]
    """
    return walsh_hadamard(coefficients)


def weight_by_degree(values: Num[Table, "*batch N"]) -> Float[Array, "*batch d_plus_1"]:
    """W_k(f) = Σ_{|U|=k} f̂(U)², k = 0 … d; their sum is E[f²].

    Args:
      values: tables in binary order, the points last.

    Returns:
      The weights, the degree last.

    >>> weight_by_degree(np.array([1.0, -1.0, -1.0, 1.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    d = dimension_of(values)
    squares = fourier_coefficients(values) ** 2
    flat = squares.reshape(-1, squares.shape[-1])
    by_degree = jax.ops.segment_sum(flat.T, jnp.asarray(degrees(d)), num_segments=d + 1)
    return by_degree.T.reshape(*squares.shape[:-1], d + 1)


def noise_stability(values: Num[Table, "*batch N"], rho: float) -> Float[Array, "*batch"]:
    """Stab_ρ(f) = E[f(x) f(y)] = Σ_k ρ^k W_k, where y_i = x_i with probability (1+ρ)/2, else −x_i.

    Args:
      values: tables in binary order, the points last.
      rho: the correlation ρ in [−1, 1].

    Returns:
      The stability of each table.

    Raises:
      ValueError: ρ is not in [−1, 1].

    >>> float(noise_stability(np.array([1.0, -1.0, -1.0, 1.0]), 0.5))
    0.25
    """
    if not -1 <= rho <= 1:
        raise ValueError(f"rho must be in [-1, 1]; got {rho}")
    weights = weight_by_degree(values)
    powers = np.power(float(rho), np.arange(weights.shape[-1]))
    return weights @ jnp.asarray(powers, weights.dtype)


def average_sensitivity_from_fourier(values: Num[Table, "*batch N"]) -> Float[Array, "*batch"]:
    """as(f) = Σ_U |U| f̂(U)² = Σ_k k·W_k, for ±1-valued f the expected number of sensitive bits.

    >>> float(average_sensitivity_from_fourier(np.array([1, -1, -1, 1])))
    2.0
    """
    weights = weight_by_degree(values)
    return weights @ jnp.arange(weights.shape[-1], dtype=weights.dtype)


def degree(values: Num[Table, "*batch N"], *, tolerance: float = 0.0) -> Int[np.ndarray, "*batch"]:
    """deg(f) = max{|U| : f̂(U) ≠ 0}; 0 for constants.

    Args:
      values: tables in binary order, the points last. For whole-numbered values (of any type)
        the sums are exact and so is the degree.
      tolerance: a coefficient counts as zero up to this, for real-valued functions.

    Returns:
      The degree of each table, whole numbers of shape (…).

    >>> int(degree(np.array([1, 1, -1, -1])))
    1
    """
    d = dimension_of(values)
    sums = np.asarray(walsh_hadamard(values))
    present = np.abs(sums) > tolerance * values.shape[-1]
    return np.asarray(np.where(present, degrees(d), 0).max(axis=-1))
