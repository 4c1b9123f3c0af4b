"""Moves of a window inside a ball: drawn at random, and projected back after a step of an ascent.

    ‖Δ‖₂ ≤ radius    or    ‖Δ‖_∞ = max |Δ_j| ≤ radius

As a random edit (`Ball` with `sensitivity`) it is the average case; inside `worst_case` it is the
set over which the largest change is looked for. Both are centred on the clean window.

Assumption: the entries of a window are in one unit. Of windows whose entries have different scales
a ball moves the small ones most.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxsens.core.scalars import as_real, one_line

Norm = Literal["l2", "linf"]


@dataclass(frozen=True)
class Ball:
    """Moves the window by a random Δ on the surface of a ball.

        window + radius · ξ/‖ξ‖₂,    ξ ~ N(0, I)           uniform on the sphere, norm="l2"
        window + radius · ε,         ε_j = ±1 by a coin    a vertex of the cube, norm="linf"

    Of the cube's surface the vertices are drawn, not the faces: there every entry moves by the
    whole radius, and the largest change of a convex function is at one of them.

    Args:
      radius: how far the window may move, in the norm.
      norm: "l2" for ‖Δ‖₂, "linf" for max |Δ_j|.

    Raises:
      ValueError: the radius is not positive and finite, or the norm is another.

    >>> moved = Ball(2.0)(jax.random.key(0), jnp.zeros((1, 100)))
    >>> round(float(jnp.linalg.norm(moved)), 5)
    2.0
    >>> sorted(set(Ball(0.5, "linf")(jax.random.key(0), jnp.zeros(9)).tolist()))
    [-0.5, 0.5]
    """

    radius: float
    norm: Norm = "l2"

    def __post_init__(self):
        radius = as_real(self.radius)
        if radius is None or not 0 < radius < math.inf:
            raise ValueError(f"Ball needs a finite radius > 0; got {one_line(self.radius)}")
        if not isinstance(self.norm, str) or self.norm not in get_args(Norm):
            raise ValueError(f"Ball needs norm='l2' or 'linf'; got {one_line(self.norm)}")
        object.__setattr__(self, "radius", radius)

    def __call__(self, key: PRNGKeyArray, window: Array, /) -> Array:
        """The window, moved by a random Δ of norm `radius`."""
        if not jnp.issubdtype(window.dtype, jnp.floating):
            raise ValueError(f"Ball needs floating-point inputs; got {window.dtype}")
        # Flat and at least in float32: see `Gaussian`, and a norm of float16 overflows.
        exact = exact_dtype(window.dtype)
        if self.norm == "l2":
            drawn = jax.random.normal(key, (window.size,), exact)
            drawn = drawn / jnp.linalg.norm(drawn)
        else:
            drawn = jax.random.rademacher(key, (window.size,), exact)
        move = jnp.asarray(self.radius, exact) * drawn.reshape(window.shape)
        return (window.astype(exact) + move).astype(window.dtype)

    def climb(
        self,
        move: Float[Array, "*window"],
        gradient: Float[Array, "*window"],
        size: float | Float[Array, ""],
    ) -> Float[Array, "*window"]:
        """One step of projected ascent: the move after it, which is inside the ball.

            l2     Π(Δ + size · radius · g/‖g‖₂),    Π(Δ) = Δ · min(1, radius/‖Δ‖₂)
            linf   Π(Δ + size · radius · sign(g)),   Π(Δ) = Δ clipped to ±radius

        The step has the same length wherever it is taken, since the gradient is normalised: where a
        softmax saturates, gradients are tiny and still point somewhere. A gradient of 0 moves
        nothing.

        Args:
          move: Δ.
          gradient: g, of what should grow.
          size: length of the step as a share of the radius.
        """
        radius = jnp.asarray(self.radius, move.dtype)
        step = jnp.asarray(size, move.dtype) * radius
        if self.norm == "linf":
            return jnp.clip(move + step * jnp.sign(gradient), -radius, radius)
        # By its largest entry first: squares of 1e-30 are 0 in float32.
        largest = jnp.abs(gradient).max()
        gradient = gradient / jnp.where(largest > 0, largest, 1)
        moved = move + step * gradient / jnp.maximum(_norm(gradient), 1)
        return moved * jnp.minimum(1, radius / jnp.maximum(_norm(moved), radius))


def step_size(t: Float[Array, "*steps"], num_steps: Any) -> Float[Array, "*steps"]:
    """The length of step t of an ascent as a share of the radius: 0.3 at first, 0 after the last.

    >>> print(step_size(jnp.array([0.0, 50.0, 100.0]), 100.0))
    [0.3  0.15 0.  ]
    """
    return 0.3 * (1 - t / num_steps)


def exact_dtype(dtype: Any) -> Any:
    """The dtype in which moves of a window are computed: its own, or float32 if that is finer.

    >>> exact_dtype(jnp.bfloat16), exact_dtype(jnp.float32)
    (dtype('float32'), dtype('float32'))
    """
    dtype = jnp.dtype(dtype)
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.dtype(jnp.float32)


def _norm(values: Float[Array, "..."]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(jnp.square(values)))
