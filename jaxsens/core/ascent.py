"""The largest value of a function inside an L2 ball, by projected ascent from several starts.

    p ← project(p + η_t g/‖g‖),    g = ∇f(p),    η_t = η (1 - t/num_steps) radius

The step has a fixed length, whatever the gradient's: where a softmax is saturated, or where a ReLU
has just switched on, plain gradients are many orders of magnitude too small or too large. Starts
are uniform on the sphere, and the best point of each path is kept.

Assumption: f is differentiable almost everywhere, finite in the ball, and not flat around every
start. What is found is a lower bound of the supremum; how far the starts agree says how near.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

#: η: the first step, as a share of the radius.
FIRST_STEP = 0.3


class Ascent(NamedTuple):
    """What each start found."""

    values: Float[Array, " starts"]
    points: Float[Array, "starts d"]

    @property
    def best(self) -> Float[Array, " d"]:
        """The point with the largest value."""
        return self.points[jnp.argmax(self.values)]


def ascend(
    objective: Callable[[Float[Array, " d"]], Float[Array, ""]],
    centre: Float[Array, " d"],
    radius: float | Float[Array, ""],
    *,
    key: PRNGKeyArray,
    num_starts: int,
    num_steps: int,
) -> Ascent:
    """The largest values that are found inside the ball.

    Args:
      objective: what is made large, a function of a point.
      centre: of the ball.
      radius: of the ball.
      key: decides the starts. The first starts of many are those of few.
      num_starts: paths, side by side.
      num_steps: steps of each.

    Returns:
      The largest value on each path, and where it was.

    Example:
      >>> linear = lambda p: p @ jnp.array([3.0, 4.0])
      >>> found = ascend(
      ...     linear, jnp.zeros(2), 2.0, key=jax.random.key(0), num_starts=2, num_steps=50
      ... )
      >>> round(float(found.values.max()), 3)
      10.0
    """
    keys = jax.vmap(lambda start: jax.random.fold_in(key, start))(jnp.arange(num_starts))
    value_and_grad = jax.vmap(jax.value_and_grad(objective))

    def inside(points: Float[Array, "starts d"]) -> Float[Array, "starts d"]:
        moves = points - centre[None]
        return centre[None] + moves * jnp.minimum(1.0, radius / _norms(moves))

    def step(state: tuple, share: Float[Array, ""]) -> tuple[tuple, None]:
        points, values, best = state
        found, gradients = value_and_grad(points)
        better = found > values
        best = jnp.where(better[:, None], points, best)
        ahead = points + share * radius * gradients / _norms(gradients)
        return (inside(ahead), jnp.where(better, found, values), best), None

    starts = centre[None] + radius * jax.vmap(lambda k: sphere(k, centre.shape[0]))(keys)
    shares = FIRST_STEP * (1 - jnp.arange(num_steps, dtype=centre.dtype) / num_steps)
    lowest = jnp.full((num_starts,), -jnp.inf, centre.dtype)
    (points, values, best), _ = jax.lax.scan(step, (starts, lowest, starts), shares)
    # The point after the last step has not been looked at.
    last = jax.vmap(objective)(points)
    better = last > values
    return Ascent(jnp.where(better, last, values), jnp.where(better[:, None], points, best))


def sphere(key: PRNGKeyArray, d: int) -> Float[Array, " d"]:
    """A uniformly random direction.

    >>> round(float(jnp.linalg.norm(sphere(jax.random.key(0), 5))), 5)
    1.0
    """
    drawn = jax.random.normal(key, (d,))
    return drawn / jnp.linalg.norm(drawn)


def _norms(vectors: Float[Array, "starts d"]) -> Float[Array, "starts 1"]:
    """Their lengths; tiny instead of 0, so that a vector of zeros stays one."""
    squares = jnp.sum(jnp.square(vectors), axis=1, keepdims=True)
    return jnp.sqrt(jnp.maximum(squares, 1e-30))
