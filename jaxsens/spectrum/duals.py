"""Dual activations: E[φ(u)φ(v)] and E[φ'(u)φ'(v)] for Gaussian (u, v), in closed form.

With Var u = a, Var v = b, Cov(u, v) = c. ReLU: Cho and Saul (2009). erf: Williams (1997). GELU,
uΦ(u): with Stein's lemma E[u g] = a E[∂_u g] + c E[∂_v g] applied until only

    E[Φ(u)Φ(v)] = 1/4 + arcsin(c / √((1+a)(1+b))) / 2π      and
    E[ϕ(u)ϕ(v)] = 1 / 2πD,    D = √((1+a)(1+b) − c²)

are left. The second expectation of each pair is the first one's derivative in c (Price's theorem).

Every formula is analytic in c for |c| < √(ab), so `numpy` arrays of complex c work as well; that is
how `jaxsens.spectrum.univariate` finds Taylor coefficients.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsens.spectrum.architectures import Activation

#: (a, b, c) → (E[φφ], E[φ'φ']).
Dual = Callable[[Any, Any, Any], tuple[Any, Any]]


def dual(activation: Activation) -> Dual:
    """The pair of expectations of an activation, as a function of (a, b, c).

    >>> value, slope = dual("relu")(1.0, 1.0, np.array(1.0))
    >>> float(value), float(slope)
    (0.5, 0.5)
    """
    return {"relu": _relu, "erf": _erf, "gelu": _gelu}[activation]


def _relu(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    xp = _module(c)
    if xp.iscomplexobj(c):
        root, angle = xp.sqrt(a * b - c**2), xp.arccos(c / xp.sqrt(a * b))
    else:
        # At c = ±√(ab) rounding may lead out of the domain.
        root = xp.sqrt(xp.maximum(a * b - c**2, 0))
        angle = xp.arctan2(root, c)
    return (root + c * (np.pi - angle)) / (2 * np.pi), (np.pi - angle) / (2 * np.pi)


def _erf(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    xp = _module(c)
    scale = (1 + 2 * a) * (1 + 2 * b)
    value = xp.arcsin(2 * c / xp.sqrt(scale)) * (2 / np.pi)
    return value, (4 / np.pi) / xp.sqrt(scale - 4 * c**2)


def _gelu(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    xp = _module(c)
    scale = (1 + a) * (1 + b)
    both = 0.25 + xp.arcsin(c / xp.sqrt(scale)) / (2 * np.pi)
    square = scale - c**2
    density = 1 / (2 * np.pi * xp.sqrt(square))
    inverse = 1 / (1 + a) + 1 / (1 + b)
    value = c * both + density * (a * b - c**2 + c**2 * inverse)
    return value, both + density * c * (inverse + 1 / square)


def _module(c: Any) -> Any:
    return np if isinstance(c, np.ndarray | np.generic | float) else jnp
