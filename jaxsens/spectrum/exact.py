"""The paper's kernel in exact rational arithmetic, and counterexamples to "a function of ⟨x,y⟩".

One layer of linear attention on raw tokens, flatten or mean readout:

    1/√width   K(x,y) = (R_ab κ_ab(x,y)) Σ_cd κ_cd(x,y)²            κ_cd(x,y) = ⟨x_c, y_d⟩ T/d
    1/width    K(x,y) = R_ab Σ_cd κ_ac(x,x) κ_cd(x,y) κ_db(y,y)

with R_ab the mean over a = b (flatten) or over all a, b (mean). No floating point is involved: two
different numbers are two different numbers.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Int

from jaxsens.boolean.points import coordinates_of, cube
from jaxsens.spectrum.architectures import Transformer


@dataclass(frozen=True)
class Counterexample:
    """Two pairs of points with the same inner product and different kernels, and two characters.

    Attributes:
      architecture: one attention layer on raw tokens.
      d: number of coordinates.
      inner_product: ⟨x, y⟩ of both pairs.
      pairs: the two pairs (x, y), coordinates ±1.
      values: K of the two pairs.
      coupled: two different sets (U, V) with ⟨χ_U, K χ_V⟩ ≠ 0; None if there are none.
      coupling: ⟨χ_U, K χ_V⟩.

    >>> found = counterexample(Transformer(tokens=2, embed=False), 4)
    >>> found.inner_product, [str(value) for value in found.values]
    (4, ['2', '4'])
    """

    architecture: Transformer
    d: int
    inner_product: int
    pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]
    values: tuple[Fraction, Fraction]
    coupled: tuple[tuple[int, ...], tuple[int, ...]] | None
    coupling: Fraction

    def __str__(self) -> str:
        width = self.architecture.width(self.d)
        lines = [f"{self.architecture.label}, d = {self.d} (tokens of width {width}):"]
        for (x, y), value in zip(self.pairs, self.values, strict=True):
            products = token_products(np.array([x]), np.array([y]), self.architecture.tokens)
            lines.append(
                f"  x = {_signs(x, width)}  y = {_signs(y, width)}  ⟨x,y⟩ = {self.inner_product}"
                f"  ⟨x_c,y_d⟩ = {products[0, 0].tolist()}  K = {value}"
            )
        if self.coupled is not None:
            one, other = ("{" + ",".join(map(str, u)) + "}" for u in self.coupled)
            lines.append(f"  ⟨χ_{one}, K χ_{other}⟩ = {self.coupling}, not 0")
        return "\n".join(lines)


def attention_kernel(architecture: Transformer, d: int) -> tuple[Int[np.ndarray, "N N"], int]:
    """K on the whole cube as whole numbers over one common denominator.

    Args:
      architecture: one attention layer on raw tokens.
      d: number of coordinates.

    Returns:
      (numerators, denominator), points in binary order.

    Raises:
      ValueError: the architecture has more than one attention layer on raw tokens.

    >>> attention_kernel(Transformer(tokens=1, embed=False), 2)
    (array([[ 8,  0,  0, -8],
           [ 0,  8, -8,  0],
           [ 0, -8,  8,  0],
           [-8,  0,  0,  8]]), 8)
    """
    plain = Transformer(
        tokens=architecture.tokens,
        scaling=architecture.scaling,
        readout=architecture.readout,
        embed=False,
    )
    if architecture != plain:
        raise ValueError(f"expected one attention layer on raw tokens, got {architecture}")
    width = architecture.width(d)
    x = np.asarray(cube(d), np.int64)
    across = token_products(x, x, architecture.tokens)
    if architecture.scaling == "sqrt":
        whole = across * (across**2).sum(axis=(-2, -1), keepdims=True)
    else:
        within = across[np.arange(len(x)), np.arange(len(x))]
        whole = within[:, None] @ across @ within[None]
    if architecture.readout == "flatten":
        read, denominator = whole.diagonal(0, -2, -1).sum(axis=-1), architecture.tokens
    else:
        read, denominator = whole.sum(axis=(-2, -1)), architecture.tokens**2
    return read, denominator * width**3


def token_products(
    x: Int[np.ndarray, "n d"], y: Int[np.ndarray, "m d"], tokens: int
) -> Int[np.ndarray, "n m T T"]:
    """⟨x_c, y_d⟩ for all pairs of points and tokens.

    >>> token_products(np.array([[1, -1]]), np.array([[1, 1]]), 2).tolist()
    [[[[1, 1], [-1, -1]]]]
    """
    cut_x, cut_y = (p.reshape(len(p), tokens, -1) for p in (x, y))
    return np.einsum("nai,mbi->nmab", cut_x, cut_y)


def eigenvalues_if_diagonal(architecture: Transformer, d: int) -> list[Fraction] | None:
    """μ_U of every set U as a fraction, if all characters are eigenfunctions, else None.

    >>> mu = eigenvalues_if_diagonal(Transformer(tokens=1, embed=False), 6)
    >>> str(mu[0b1]), str(mu[0b111])
    ('2/27', '1/36')
    """
    hat, denominator = _fourier(architecture, d)
    if (hat != np.diag(hat.diagonal())).any():
        return None
    return [Fraction(int(value), denominator) for value in hat.diagonal()]


def counterexample(architecture: Transformer, d: int) -> Counterexample | None:
    """A pair of pairs that shows that K is not a function of ⟨x, y⟩; None if it is one.

    The largest difference is taken, at the largest ⟨x, y⟩ among equals.

    >>> counterexample(Transformer(tokens=1, embed=False), 4) is None
    True
    >>> print(counterexample(Transformer(tokens=2, embed=False), 4))
    attention, T=2, sqrt, flatten, d = 4 (tokens of width 2):
      x = -+|++  y = -+|++  ⟨x,y⟩ = 4  ⟨x_c,y_d⟩ = [[2, 0], [0, 2]]  K = 2
      x = ++|++  y = ++|++  ⟨x,y⟩ = 4  ⟨x_c,y_d⟩ = [[2, 2], [2, 2]]  K = 4
      ⟨χ_{0}, K χ_{1,2,3}⟩ = 1/8, not 0
    """
    numerators, denominator = attention_kernel(architecture, d)
    x = np.asarray(cube(d), np.int64)
    products = x @ x.T
    best: tuple[int, int] | None = None
    for product in range(d, -d - 1, -2):
        values = numerators[products == product]
        gap = int(values.max() - values.min())
        if gap > 0 and (best is None or gap > best[0]):
            best = (gap, product)
    if best is None:
        return None
    here = np.where(products == best[1], numerators, numerators[products == best[1]][0])
    places = [np.unravel_index(int(f), here.shape) for f in (here.argmin(), here.argmax())]
    hat, scale = _fourier(architecture, d)
    np.fill_diagonal(hat, 0)
    u, v = np.unravel_index(int(np.abs(hat).argmax()), hat.shape)
    coupling = Fraction(int(hat[u, v]), scale)
    one, other = ((tuple(x[a].tolist()), tuple(x[b].tolist())) for a, b in places)
    low, high = (Fraction(int(numerators[place]), denominator) for place in places)
    return Counterexample(
        architecture=architecture,
        d=d,
        inner_product=best[1],
        pairs=(one, other),
        values=(low, high),
        coupled=(coordinates_of(int(u)), coordinates_of(int(v))) if coupling else None,
        coupling=coupling,
    )


def _fourier(architecture: Transformer, d: int) -> tuple[Int[np.ndarray, "N N"], int]:
    """4^d K̂ as whole numbers, and the denominator that makes them K̂."""
    numerators, denominator = attention_kernel(architecture, d)
    for axis in (0, 1):
        for i in range(d):
            cut = np.moveaxis(numerators, axis, 0).reshape(-1, 2, 2**i, len(numerators))
            sums = np.stack([cut[:, 0] + cut[:, 1], cut[:, 0] - cut[:, 1]], axis=1)
            numerators = np.moveaxis(sums.reshape(len(numerators), -1), 0, axis)
    return np.array(numerators), denominator * 4**d


def _signs(point: tuple[int, ...], width: int) -> str:
    signs = "".join("+" if value > 0 else "-" for value in point)
    return "|".join(signs[i : i + width] for i in range(0, len(signs), width))
