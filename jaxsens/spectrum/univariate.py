"""Eigenvalues of kernels K(x, y) = Ψ(⟨x, y⟩/d) on the cube, for any d.

The characters are eigenfunctions, and the eigenvalue depends on the degree k = |U| alone:

    μ_k = E_x[χ_U(x) Ψ(Σx_i/d)] = 2^{−d} Σ_r κ_k(r) Ψ(1 − 2r/d),
    κ_k(r) = Σ_j (−1)^j C(k, j) C(d−k, r−j)            (a Krawtchouk polynomial times a binomial)

Two ways, because rounding limits the first one. `eigenvalues` takes the d + 1 values of Ψ, uses
exact integers κ_k(r) and an exact sum, and says how far rounding of Ψ itself can move each μ_k: at
d = 128 what lies beyond k ≈ 20 is lost. `eigenvalues_by_series` takes Ψ as an analytic function
with Taylor coefficients a_m ≥ 0 (every kernel of a network has them) and adds positive terms only:

    μ_k = Σ_m a_m M_{k,m},    M_{k,m} = E[χ_U(x) (Σx_i/d)^m],
    M_{k,m+1} = (k/d) M_{k−1,m} + (1 − k/d) M_{k+1,m},    M_{k,0} = 1[k = 0]

so that every μ_k has small relative error, however small it is. (The recursion is Ehrenfest's urn.)

Assumption: K is a function of ⟨x, y⟩ alone. `jaxsens.spectrum.checks` finds out whether it is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Float

#: Points on the circle for Taylor coefficients; it only has to be much larger than 64·d.
_CIRCLE = 2**18
# The contribution of aliases, and what a coefficient must exceed to count, relative to Ψ.
_ALIAS, _NOISE = 1e-16, 1e-14


def krawtchouk(d: int) -> list[list[int]]:
    """κ_k(r) = Σ_j (−1)^j C(k, j) C(d−k, r−j) for k, r = 0 … d, as exact whole numbers.

    Row k holds the coefficients of (1 − z)^k (1 + z)^{d−k}.

    >>> krawtchouk(2)
    [[1, 2, 1], [1, 0, -1], [1, -2, 1]]
    """
    row = [math.comb(d, r) for r in range(d + 1)]
    rows = [row]
    for _ in range(d):
        # From k to k + 1: divide by (1 + z), multiply by (1 − z).
        quotient = [row[0]]
        for r in range(1, d):
            quotient.append(row[r] - quotient[-1])
        shifted = zip([*quotient, 0], [0, *quotient], strict=True)
        row = [now - before for now, before in shifted]
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Eigenvalues:
    """Eigenvalues by degree, and how well they are known.

    Attributes:
      values: μ_k, k = 0 … d.
      error: |computed − exact| is at most this, if each Ψ is right to a few units in its last
        place.

    >>> mu = Eigenvalues(values=np.array([0.5, 1e-20]), error=np.array([1e-16, 1e-18]))
    >>> mu.resolved.tolist()
    [True, False]
    """

    values: Float[np.ndarray, " d_plus_1"]
    error: Float[np.ndarray, " d_plus_1"]

    @property
    def resolved(self) -> np.ndarray:
        """Where μ_k is larger than its error."""
        return np.abs(self.values) > self.error


def eigenvalues(profile: Float[np.ndarray, " d_plus_1"]) -> Eigenvalues:
    """μ_k = 2^{−d} Σ_r κ_k(r) Ψ(1 − 2r/d), summed exactly.

    Args:
      profile: Ψ(1 − 2r/d) for r = 0 … d, float32 or float64.

    Returns:
      float64 eigenvalues for k = 0 … d, with their errors.

    Raises:
      ValueError: a value of Ψ is not finite.

    >>> cube = [1.0, 8 / 27, 1 / 27, 0.0, -1 / 27, -8 / 27, -1.0]  # Ψ(t) = t³, d = 6
    >>> eigenvalues(np.array(cube)).values.round(5).tolist()
    [0.0, 0.07407, 0.0, 0.02778, 0.0, 0.0, 0.0]
    """
    if not np.isfinite(profile).all():
        raise ValueError(f"expected finite values of Ψ, got {profile}")
    d = len(profile) - 1
    unit = 4 * float(np.finfo(profile.dtype).eps)
    values, errors = [], []
    exact = [Fraction(float(value)) for value in profile]
    for row in krawtchouk(d):
        total = sum((k * value for k, value in zip(row, exact, strict=True)), Fraction(0))
        spread = sum(abs(k) * abs(value) for k, value in zip(row, exact, strict=True))
        values.append(float(total / 2**d))
        errors.append(unit * float(Fraction(spread) / 2**d))
    return Eigenvalues(np.array(values), np.array(errors))


def moments(d: int, num: int) -> Float[np.ndarray, "num d_plus_1"]:
    """M_{k,m} = E[x_1⋯x_k (Σx_i/d)^m] on the cube, m = 0 … num−1, each to full relative precision.

    Args:
      d: number of coordinates.
      num: how many powers.

    Returns:
      Row m, column k.

    >>> moments(6, 4)[3].round(5).tolist()
    [0.0, 0.07407, 0.0, 0.02778, 0.0, 0.0, 0.0]
    """
    k = np.arange(d + 1)
    rows = np.zeros((num, d + 1))
    rows[0, 0] = 1.0
    for m in range(num - 1):
        rows[m + 1, 1:] += k[1:] / d * rows[m, :-1]
        rows[m + 1, :-1] += (d - k[:-1]) / d * rows[m, 1:]
    return rows


def taylor_coefficients(
    psi: Callable[[Any], Any], *, radius: float | None = None
) -> Float[np.ndarray, " m"]:
    """Taylor coefficients of an analytic Ψ, by Cauchy's integral on a circle.

    Args:
      psi: a function of complex NumPy arrays, analytic for |t| < R with R ≥ 1, real for real t.
      radius: R; default the largest t up to 1.5 to which Ψ is real and finite on the real axis.
        A circle close to the singularity gives coefficients that decay geometrically as good a
        relative precision as the others.

    Returns:
      a_0, a_1, …; values below rounding are set to 0.

    >>> taylor_coefficients(lambda t: 1 / (2 - t))[:4].round(10).tolist()
    [0.5, 0.25, 0.125, 0.0625]
    """
    radius = _radius(psi) if radius is None else radius
    # Coefficient m is contaminated by those of m + 2^18, …: smaller by (circle/radius)^(2^18).
    circle = radius * _ALIAS ** (1 / _CIRCLE)
    angles = 2 * np.pi * np.arange(_CIRCLE) / _CIRCLE
    scaled = np.fft.fft(psi(circle * np.exp(1j * angles))).real / _CIRCLE
    scaled = np.where(np.abs(scaled) > _NOISE * np.abs(scaled).max(), scaled, 0.0)
    half = scaled[: _CIRCLE // 2]
    with np.errstate(under="ignore"):
        return half * circle ** -np.arange(len(half), dtype=float)


def eigenvalues_from_taylor(
    coefficients: Float[np.ndarray, " m"], d: int, *, total: tuple[float, float] | None = None
) -> Float[np.ndarray, " d_plus_1"]:
    """μ_k = Σ_m a_m M_{k,m} for given Taylor coefficients: a sum of positive terms.

    Powers beyond 64·d are added in closed form: there |t|^m is negligible except at t = ±1, so
    M_{k,m} = 2^{1−d} if k + m is even, else 0.

    Args:
      coefficients: a_m ≥ 0.
      d: number of coordinates.
      total: (Ψ(1), Ψ(−1)), which contain the coefficients that are not given, if these matter.

    Returns:
      float64 eigenvalues for k = 0 … d.

    Raises:
      ValueError: a Taylor coefficient is negative: Ψ is not a positive definite kernel for all d.

    >>> factorials = np.cumprod([1.0, *range(1, 160)])
    >>> mu = eigenvalues_from_taylor(1 / factorials, 128)  # Ψ = exp
    >>> bool(abs(mu[128] / np.sinh(1 / 128) ** 128 - 1) < 1e-12)
    True
    """
    if coefficients.min() < 0:
        worst = int(coefficients.argmin())
        raise ValueError(
            f"expected Taylor coefficients >= 0, got {coefficients[worst]:.3g} of t^{worst}"
        )
    num = min(64 * d, len(coefficients))
    mu = coefficients[:num] @ moments(d, num)
    for parity in (0, 1):
        tail = coefficients[num + (num + parity) % 2 :: 2].sum()
        if total is not None:
            missing = (total[0] + (1 - 2 * parity) * total[1]) / 2 - coefficients[parity::2].sum()
            # Less than that is rounding.
            tail += missing if missing > 1e-12 * total[0] else 0.0
        mu[parity::2] += tail * 2.0 ** (1 - d)
    return mu


def eigenvalues_by_series(
    psi: Callable[[Any], Any], d: int, *, radius: float | None = None
) -> Float[np.ndarray, " d_plus_1"]:
    """μ_k of an analytic Ψ, with good relative precision at every degree.

    Args:
      psi: Ψ, as in `taylor_coefficients`, with coefficients ≥ 0 and a singularity at |t| ≤ 1.5,
        as the kernels of ReLU, erf and GELU networks have. Of a Ψ that is regular farther out,
        only coefficients above rounding are found; give all to `eigenvalues_from_taylor`.
      d: number of coordinates.
      radius: as in `taylor_coefficients`.

    Returns:
      float64 eigenvalues for k = 0 … d.

    Raises:
      ValueError: a Taylor coefficient is negative.

    >>> eigenvalues_by_series(lambda t: t**3, 6).round(5).tolist()
    [0.0, 0.07407, 0.0, 0.02778, 0.0, 0.0, 0.0]
    """
    radius = _radius(psi) if radius is None else radius
    coefficients = taylor_coefficients(psi, radius=radius)
    if radius > 1 + 1e-9:
        return eigenvalues_from_taylor(coefficients, d)
    # The coefficients decay like a power: those beyond the computed ones matter.
    one, minus_one = (float(np.real(psi(np.array(t)))) for t in (1.0, -1.0))
    return eigenvalues_from_taylor(coefficients, d, total=(one, minus_one))


def _radius(psi: Callable[[Any], Any]) -> float:
    """The largest t in [1, 1.5] up to which Ψ is finite and real, by bisection."""

    def regular(t: float) -> bool:
        with np.errstate(all="ignore"):
            value = psi(np.array([complex(t)]))[0]
        return bool(np.isfinite(value) and abs(value.imag) <= 1e-10 * abs(value))

    low, high = 1.0, 1.5
    if regular(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if regular(middle) else (low, middle)
    return low
