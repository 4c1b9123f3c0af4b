"""What is true of a kernel on the cube, by exact enumeration of all 2^d × 2^d pairs.

Proposition 3.1 of the paper says of the kernel of a transformer with linear attention:

    univariate       K(x, y) = Ψ(⟨x, y⟩/d)
    eigenfunctions   E_y[K(x, y) χ_U(y)] = μ_U χ_U(x) for every U
    one per degree   μ_U depends on |U| alone
    ordered          μ_0 ≥ μ_2 ≥ …, μ_1 ≥ μ_3 ≥ …

`check` decides each of them, from the kernel's matrix in the Fourier basis

    K̂(U, V) = ⟨χ_U, K χ_V⟩ = 4^{−d} Σ_{x,y} χ_U(x) K(x, y) χ_V(y),      μ_U = K̂(U, U),

and measures what is left where they fail: the mean of μ_U over the sets of one degree,
tr(P_k K)/C(d,k), and whether K̂(U, V) ≠ 0 only for sets with the same parity in every column.

Assumption: rows and columns of the matrix are the points in binary order.
"""

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxsens.boolean.fourier import walsh_hadamard
from jaxsens.boolean.points import coordinates_of, degrees, dimension_of
from jaxsens.core import memory
from jaxsens.spectrum.limits import Precision, in_precision

#: What counts as zero, relative to max |K|: spread of a kernel, coupling of two characters,
#: difference of two eigenvalues. The first is large because the slope of ReLU's dual is singular at
#: ⟨x,y⟩ = ±d, where a rounding error ε becomes √ε.
TOLERANCES: dict[str, tuple[float, float, float]] = {
    "float32": (4e-3, 1e-5, 1e-6),
    "float64": (1e-6, 1e-9, 1e-10),
}


@dataclass(frozen=True)
class Check:
    """What was found; lists are indexed by degree k or by the number r of differing coordinates.

    Attributes:
      d: number of coordinates.
      precision: of the kernel.
      largest: max |K|.
      smallest_at: min of K over the pairs that differ in r coordinates, ⟨x, y⟩ = d − 2r.
      largest_at: max of the same.
      mu_mean: mean of μ_U over |U| = k: tr(P_k K)/C(d, k).
      mu_min: least μ_U with |U| = k.
      mu_max: largest μ_U with |U| = k.
      trace_fraction: Σ_{|U|=k} μ_U / Σ_U μ_U.
      off_diagonal_mass: √(Σ_{U≠V} K̂(U,V)² / Σ K̂(U,V)²), a ratio of Frobenius norms.
      strongest_coupling: (U, V, K̂(U,V)) of the largest off-diagonal entry.
      cross_parity_mass: share of Σ K̂² between sets with different column parities.

    >>> found = check(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    >>> found.univariate, found.eigenfunctions, found.trace_fraction.tolist()
    (True, True, [0.0, 1.0])
    """

    d: int
    precision: Precision
    largest: float
    smallest_at: Float[np.ndarray, " d_plus_1"]
    largest_at: Float[np.ndarray, " d_plus_1"]
    mu_mean: Float[np.ndarray, " d_plus_1"]
    mu_min: Float[np.ndarray, " d_plus_1"]
    mu_max: Float[np.ndarray, " d_plus_1"]
    trace_fraction: Float[np.ndarray, " d_plus_1"]
    off_diagonal_mass: float
    strongest_coupling: tuple[tuple[int, ...], tuple[int, ...], float]
    cross_parity_mass: float

    @property
    def spread(self) -> float:
        """Largest difference of K at one ⟨x, y⟩, relative to max |K|."""
        return float((self.largest_at - self.smallest_at).max()) / self.largest

    @property
    def univariate(self) -> bool:
        """K is a function of ⟨x, y⟩ alone."""
        return self.spread <= TOLERANCES[self.precision][0]

    @property
    def eigenfunctions(self) -> bool:
        """Every χ_U is an eigenfunction."""
        coupling = abs(self.strongest_coupling[2])
        return coupling <= TOLERANCES[self.precision][1] * self.largest

    @property
    def one_per_degree(self) -> bool:
        """All μ_U of one degree are equal."""
        allowed = TOLERANCES[self.precision][1] * self.largest
        return bool((self.mu_max - self.mu_min <= allowed).all())

    @property
    def ordered(self) -> bool:
        """μ_U ≥ μ_V whenever |V| = |U| + 2."""
        allowed = TOLERANCES[self.precision][2] * self.largest
        return bool((self.mu_min[:-2] >= self.mu_max[2:] - allowed).all())

    @property
    def ordered_on_average(self) -> bool:
        """The means over one degree are ordered."""
        return not self.violations

    @property
    def violations(self) -> tuple[int, ...]:
        """Degrees k at which the mean grows from k to k + 2."""
        allowed = TOLERANCES[self.precision][2] * self.largest
        return tuple(np.flatnonzero(self.mu_mean[2:] > self.mu_mean[:-2] + allowed).tolist())

    @property
    def proposition(self) -> bool:
        """Proposition 3.1 as stated."""
        return self.univariate and self.eigenfunctions and self.one_per_degree and self.ordered

    @property
    def column_parities(self) -> bool:
        """Characters couple only if they have the same parity in every column."""
        return self.cross_parity_mass <= TOLERANCES[self.precision][1]

    def summary(self) -> dict:
        """All of it, for a results file."""
        verdicts = (
            *("univariate", "eigenfunctions", "one_per_degree", "ordered"),
            *("ordered_on_average", "proposition", "column_parities"),
        )
        fields = {name: value for name, value in vars(self).items() if name != "d"}
        return {
            "d": self.d,
            **{name: getattr(self, name) for name in verdicts},
            "spread": self.spread,
            "violations": list(self.violations),
            **fields,
        }


def fourier_matrix(kernel: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
    """K̂(U, V) = 4^{−d} Σ_{x,y} χ_U(x) K(x, y) χ_V(y).

    Args:
      kernel: K on all points in binary order.

    Returns:
      The matrix of the operator f ↦ E_y[K(·, y) f(y)] in the basis of characters.

    >>> fourier_matrix(np.eye(2) * 2.0).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    precision: Precision = "float64" if kernel.dtype == np.float64 else "float32"
    with in_precision(precision):
        half = walsh_hadamard(jnp.asarray(kernel)).T
        whole = walsh_hadamard(half) / jnp.asarray(kernel.size, half.dtype)
        return np.asarray(whole).T


def check(kernel: Float[np.ndarray, "N N"], *, tokens: int = 1) -> Check:
    """Decides the proposition's statements for one kernel; see the module's docstring.

    Args:
      kernel: K on all points in binary order, symmetric, float32 or float64.
      tokens: T, for the column parities: column i holds coordinate i of every token.

    Returns:
      What was found.

    Raises:
      ValueError: the matrix is not symmetric, or not finite.

    >>> found = check(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    >>> found.proposition, found.mu_mean.tolist()
    (True, [0.0, 1.0])
    """
    d = dimension_of(kernel)
    precision: Precision = "float64" if kernel.dtype == np.float64 else "float32"
    memory.require(6 * kernel.nbytes, f"the checks of a kernel of d={d}")
    largest = float(np.abs(kernel).max())
    asymmetry = float(np.abs(kernel - kernel.T).max())
    if not math.isfinite(largest) or asymmetry > TOLERANCES[precision][0] * largest:
        raise ValueError(
            f"expected a finite symmetric kernel, got max |K| = {largest} and max |K − Kᵀ| = "
            f"{asymmetry}"
        )
    smallest_at, largest_at = extremes(kernel)
    hat = fourier_matrix(kernel)
    # A copy: the diagonal of `hat` is set to zero below.
    mu = np.array(hat.diagonal(), np.float64)
    degree = degrees(d)
    num = np.bincount(degree)
    total = float(np.vdot(hat, hat))
    np.fill_diagonal(hat := hat.copy(), 0)
    strongest = np.unravel_index(int(np.abs(hat).argmax()), hat.shape)
    by_degree = [mu[degree == k] for k in range(d + 1)]
    trace = np.array([values.sum() for values in by_degree])
    return Check(
        d=d,
        precision=precision,
        largest=largest,
        smallest_at=smallest_at,
        largest_at=largest_at,
        mu_mean=trace / num,
        mu_min=np.array([values.min() for values in by_degree]),
        mu_max=np.array([values.max() for values in by_degree]),
        trace_fraction=trace / trace.sum(),
        off_diagonal_mass=math.sqrt(float(np.vdot(hat, hat)) / total),
        strongest_coupling=(
            coordinates_of(int(strongest[0])),
            coordinates_of(int(strongest[1])),
            float(hat[strongest]),
        ),
        cross_parity_mass=_cross_parity(hat, column_parities(d, tokens)) / total,
    )


def extremes(
    kernel: Float[np.ndarray, "N N"],
) -> tuple[Float[np.ndarray, " d_plus_1"], Float[np.ndarray, " d_plus_1"]]:
    """Least and largest K(x, y) among the pairs that differ in r coordinates, r = 0 … d.

    >>> [m.tolist() for m in extremes(np.array([[2.0, 0.0], [0.0, 1.0]]))]
    [[1.0, 0.0], [2.0, 0.0]]
    """
    d = dimension_of(kernel)
    points = np.arange(len(kernel))
    low, high = np.full(d + 1, np.inf), np.full(d + 1, -np.inf)
    for flipped in range(len(kernel)):
        values = kernel[points, points ^ flipped]
        r = flipped.bit_count()
        low[r], high[r] = min(low[r], values.min()), max(high[r], values.max())
    return low, high


def column_parities(d: int, tokens: int) -> Int[np.ndarray, " N"]:
    """For every set U, the number whose bit i is the parity of U in column i.

    Column i is {i, i + d/T, i + 2d/T, …}: coordinate i of every token. Flipping a column in x and
    in y changes no inner product of tokens, so a kernel made of these cannot couple sets whose
    parities differ in a column. With one token the columns are the coordinates, and nothing is left
    to couple.

    >>> column_parities(2, 2).tolist()
    [0, 1, 1, 0]
    """
    width = d // tokens
    sets = np.arange(2**d)
    parities = np.zeros_like(sets)
    for token in range(tokens):
        parities ^= sets >> (token * width) & (2**width - 1)
    return parities


def _cross_parity(hat: Float[np.ndarray, "N N"], parities: Int[np.ndarray, " N"]) -> float:
    same = 0.0
    for parity in np.unique(parities):
        members = np.flatnonzero(parities == parity)
        block = hat[np.ix_(members, members)]
        same += float(np.vdot(block, block))
    return max(0.0, float(np.vdot(hat, hat)) - same)
