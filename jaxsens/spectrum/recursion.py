"""Conjugate and tangent kernels of infinitely wide networks, derived and written here.

A layer maps the covariance κ of its inputs and the tangent kernel Θ to those of its outputs:

    Dense         κ ← σ_w² κ + σ_b²          Θ ← κ + σ_w² Θ, with the new κ
    φ             κ ← E[φφ]                  Θ ← Θ · E[φ'φ']
    attention     κ_ab ← κ_ab Σ κ_cd²        Θ_ab ← (Θ_ab + 4κ_ab) Σ κ_cd² + 2 κ_ab Σ κ_cd Θ_cd
      "linear"    κ_ab ← Σ A_ac κ_cd A'_bd   Θ_ab ← Σ A_ac Θ_cd A'_bd + 2 κ_ab, with the new κ

Token indices are a, b (of x and of y); A_ac = κ_ac(x, x), A'_bd = κ_bd(y, y); sums run over c, d.
Attention with 1/√: f_a = Σ_c (q_a·k_c/√n) v_c W_O is linear in each of Q, K, V, O, so each adds one
copy of the new κ to Θ; the chain rule through q gives Θ_ab Σκ², through k and through v each
κ_ab Σ κ_cd Θ_cd; products of two different paths vanish, because Q and K are independent with mean
zero. With 1/width the scores converge to constants: only V and O add a copy.

Assumption: inputs of an MLP all have one norm, as the cube's points have. Its diagonal is then one
number for each layer; inputs of different norms would silently get wrong kernels, and are refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Num

from jaxsens.spectrum.architectures import MLP, Architecture, KernelKind, Transformer
from jaxsens.spectrum.duals import dual

Points = Array | np.ndarray


def mlp_profile(architecture: MLP, kind: KernelKind) -> Callable[[Any], Any]:
    """Ψ of an MLP: its kernel at two points of the cube is Ψ(⟨x, y⟩/d).

    Args:
      architecture: the MLP.
      kind: "ck" or "ntk".

    Returns:
      A function of t = ⟨x, y⟩/d: JAX arrays, or NumPy arrays (real, or complex with |t| ≤ 1).

    >>> float(mlp_profile(MLP(depth=1), "ck")(np.array(1.0)))
    2.0
    """
    phi = dual(architecture.activation)
    weight, bias = architecture.weight_variance, architecture.bias_variance

    def profile(t: Any) -> Any:
        variance = np.array(weight + bias)
        kernel = weight * t + bias
        tangent = kernel
        for _ in range(architecture.depth):
            value, slope = phi(float(variance), float(variance), kernel)
            kernel = weight * value + bias
            tangent = kernel + weight * tangent * slope
            variance = weight * phi(float(variance), float(variance), variance)[0] + bias
        return kernel if kind == "ck" else tangent

    return profile


def transformer_profile(architecture: Transformer, kind: KernelKind) -> Callable[[Any], Any]:
    """Ψ of a transformer that sees the whole point as one token: its kernel is Ψ(⟨x, y⟩/d).

    Args:
      architecture: a transformer with T = 1.
      kind: "ck" or "ntk".

    Returns:
      A function of t = ⟨x, y⟩/d: NumPy arrays, real, or complex with |t| ≤ 1.

    Raises:
      ValueError: there is more than one token.

    >>> pure = transformer_profile(Transformer(tokens=1, embed=False), "ck")
    >>> float(pure(np.array(0.5)))
    0.125
    """
    if architecture.tokens != 1:
        raise ValueError(f"expected one token, got tokens={architecture.tokens}")

    def profile(t: Any) -> Any:
        t = np.asarray(t)
        xy = t.reshape(1, -1, 1, 1)
        xx = np.ones((1, 1, 1), xy.dtype)
        yy = np.ones((xy.shape[1], 1, 1), xy.dtype)
        state = _State(xx, yy, xy, _start(architecture, xy))
        return _run(architecture, state)[kind].reshape(t.shape)

    return profile


def kernels(
    architecture: Architecture, x: Float[Points, "n d"], y: Float[Points, "m d"]
) -> dict[KernelKind, Float[Points, "n m"]]:
    """Both kernels between two sets of points of the cube.

    Args:
      architecture: the network.
      x: points, as JAX arrays, or as NumPy arrays: then nothing is compiled.
      y: points, likewise.

    Returns:
      {"ck": (n, m), "ntk": (n, m)}, of the points' type.

    Raises:
      ValueError: the points are not of norm √d, or T does not divide d.

    >>> x = np.array([[1.0, 1.0], [1.0, -1.0]])
    >>> kernels(Transformer(tokens=1, embed=False), x, x)["ck"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    d = x.shape[1]
    _check_norms(x, d)
    _check_norms(y, d)
    if isinstance(architecture, MLP):
        t = x @ y.T / d
        return {kind: mlp_profile(architecture, kind)(t) for kind in ("ck", "ntk")}
    width = architecture.width(d)
    across = _token_products(x, y, architecture.tokens)
    state = _State(
        xx=_own_products(x, architecture.tokens) / width,
        yy=_own_products(y, architecture.tokens) / width,
        xy=across / width,
        tangent=_start(architecture, across / width),
    )
    return _run(architecture, state)


def _token_products(x: Any, y: Any, tokens: int) -> Any:
    """⟨x_a, y_b⟩ for all pairs of points and of tokens."""
    rows, columns = (p.reshape(len(p) * tokens, -1) for p in (x, y))
    products = (rows @ columns.T).reshape(len(x), tokens, len(y), tokens)
    return products.swapaxes(1, 2)


def _own_products(x: Any, tokens: int) -> Any:
    """⟨x_a, x_b⟩ for every point."""
    cut = x.reshape(len(x), tokens, -1)
    return cut @ _transposed(cut)


@dataclass(frozen=True)
class _State:
    """Covariances between tokens: of x with itself, of y with itself, of x with y; and Θ(x, y)."""

    xx: Num[Any, "n T T"]
    yy: Num[Any, "m T T"]
    xy: Num[Any, "n m T T"]
    tangent: Num[Any, "n m T T"]


def _start(architecture: Transformer, xy: Any) -> Any:
    return xy if architecture.embed else 0 * xy


def _run(architecture: Transformer, state: _State) -> dict[KernelKind, Any]:
    for _ in range(architecture.depth):
        inner = _normalised(state) if architecture.layer_norm else state
        state = _sum(architecture, state, _attention(architecture, inner))
        if architecture.activation is not None:
            inner = _normalised(state) if architecture.layer_norm else state
            state = _sum(architecture, state, _mlp(architecture, inner))
    if architecture.readout == "flatten":
        ck, tangent = (_trace(m) / architecture.tokens for m in (state.xy, state.tangent))
    else:
        ck, tangent = (m.mean(axis=(-2, -1)) for m in (state.xy, state.tangent))
    return {"ck": ck, "ntk": ck + tangent}


def _sum(architecture: Transformer, skip: _State, branch: _State) -> _State:
    if not architecture.residual:
        return branch
    return _State(
        skip.xx + branch.xx,
        skip.yy + branch.yy,
        skip.xy + branch.xy,
        skip.tangent + branch.tangent,
    )


def _attention(architecture: Transformer, state: _State) -> _State:
    state = _with_positions(architecture, state)
    xx, yy, xy, tangent = state.xx, state.yy, state.xy, state.tangent
    if architecture.scaling == "sqrt":
        total = _sum_tokens(xy * xy)
        return _State(
            xx * _sum_tokens(xx * xx),
            yy * _sum_tokens(yy * yy),
            xy * total,
            (tangent + 4 * xy) * total + 2 * xy * _sum_tokens(xy * tangent),
        )
    # The scores are the covariances of the tokens within x and within y.
    left, right = xx[:, None], _transposed(yy)[None]
    value = left @ xy @ right
    return _State(
        xx @ xx @ _transposed(xx),
        yy @ yy @ _transposed(yy),
        value,
        left @ tangent @ right + 2 * value,
    )


def _with_positions(architecture: Transformer, state: _State) -> _State:
    if not architecture.position_variance:
        return state
    encoding = np.eye(architecture.tokens) * architecture.position_variance
    encoding = encoding.astype(state.xy.dtype)
    return _State(
        state.xx + encoding[None],
        state.yy + encoding[None],
        state.xy + encoding[None, None],
        state.tangent + encoding[None, None],
    )


def _normalised(state: _State) -> _State:
    """Layer norm over infinitely many channels divides every token by its standard deviation."""
    across = _deviations(state.xx)[:, None, :, None] * _deviations(state.yy)[None, :, None, :]
    return _State(
        state.xx / (_deviations(state.xx)[:, :, None] * _deviations(state.xx)[:, None]),
        state.yy / (_deviations(state.yy)[:, :, None] * _deviations(state.yy)[:, None]),
        state.xy / across,
        state.tangent / across,
    )


def _mlp(architecture: Transformer, state: _State) -> _State:
    """Dense φ Dense, both with variance 1."""
    assert architecture.activation is not None
    phi = dual(architecture.activation)
    a, b = _diagonal(state.xx), _diagonal(state.yy)
    value, slope = phi(a[:, None, :, None], b[None, :, None, :], state.xy)
    return _State(
        phi(a[:, :, None], a[:, None], state.xx)[0],
        phi(b[:, :, None], b[:, None], state.yy)[0],
        value,
        value + (state.xy + state.tangent) * slope,
    )


def _sum_tokens(m: Any) -> Any:
    return m.sum(axis=(-2, -1))[..., None, None]


def _trace(m: Any) -> Any:
    return _diagonal(m).sum(axis=-1)


def _transposed(m: Any) -> Any:
    return m.swapaxes(-2, -1)


def _diagonal(m: Any) -> Any:
    return m.diagonal(0, -2, -1)


def _deviations(m: Any) -> Any:
    return _diagonal(m) ** 0.5


def _check_norms(x: Float[Points, "n d"], d: int) -> None:
    worst = float(abs((x * x).sum(axis=1) - d).max())
    if worst > 1e-3 * d:
        raise ValueError(
            f"expected points with ⟨x, x⟩ = d = {d}, as on the cube, got one off by {worst:.3g}"
        )
