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
from jaxtyping import Array, Float, Int, PRNGKeyArray

#: η: the first step, as a share of the radius.
FIRST_STEP = 0.3


class Ascent(NamedTuple):
    """What each path found.

    Attributes:
      values: the largest value on each path.
      points: where it was.
      drawn: the values at the random points of each path, before it climbs.
    """

    values: Float[Array, " starts"]
    points: Float[Array, "starts d"]
    drawn: Float[Array, "starts draws"]

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
    num_draws: int = 1,
) -> Ascent:
    """The largest values that are found inside the ball.

    Args:
      objective: what is made large, a function of a point.
      centre: of the ball.
      radius: of the ball.
      key: decides the random points. The first paths of many are those of few.
      num_starts: paths, side by side.
      num_steps: steps of each.
      num_draws: random points on the sphere that each path looks at, in the same program, before it
        climbs from the last of them: the average case beside the worst, which is never less.

    Returns:
      The largest value on each path, where it was, and the values at the random points.

    Example:
      >>> linear = lambda p: p @ jnp.array([3.0, 4.0])
      >>> found = ascend(
      ...     linear, jnp.zeros(2), 2.0, key=jax.random.key(0), num_starts=2, num_steps=50
      ... )
      >>> round(float(found.values.max()), 3)
      10.0
    """
    value_and_grad = jax.vmap(jax.value_and_grad(objective))

    def random_points(start: Int[Array, ""]) -> Float[Array, "draws d"]:
        drawn = jax.random.normal(jax.random.fold_in(key, start), (num_draws, centre.shape[0]))
        return centre[None] + radius * drawn / _norms(drawn)

    def inside(points: Float[Array, "starts d"]) -> Float[Array, "starts d"]:
        moves = points - centre[None]
        return centre[None] + moves * jnp.minimum(1.0, radius / _norms(moves))

    def step(state: tuple, given: tuple) -> tuple[tuple, Float[Array, " starts"]]:
        (points, values, best), (share, index) = state, given
        found, gradients = value_and_grad(points)
        better = found > values
        best = jnp.where(better[:, None], points, best)
        ahead = inside(points + share * radius * gradients / _norms(gradients))
        ahead = jnp.where(index < num_jumps, drawn[jnp.minimum(index + 1, num_jumps)], ahead)
        return (ahead, jnp.where(better, found, values), best), found

    drawn = jnp.moveaxis(jax.vmap(random_points)(jnp.arange(num_starts)), 1, 0)
    # Jumps from one random point to the next, then steps, and a last one of length 0: what is
    # looked at is compiled once.
    num_jumps = num_draws - 1
    lengths = FIRST_STEP * (1 - jnp.arange(num_steps + 1, dtype=centre.dtype) / max(num_steps, 1))
    shares = jnp.concatenate([jnp.zeros(num_jumps, centre.dtype), lengths])
    steps = jnp.arange(num_jumps + num_steps + 1)
    lowest = jnp.full((num_starts,), -jnp.inf, centre.dtype)
    (_, values, best), seen = jax.lax.scan(step, (drawn[0], lowest, drawn[0]), (shares, steps))
    return Ascent(values, best, seen[:num_draws].T)


def _norms(vectors: Float[Array, "starts d"]) -> Float[Array, "starts 1"]:
    """Their lengths; tiny instead of 0, so that a vector of zeros stays one."""
    squares = jnp.sum(jnp.square(vectors), axis=1, keepdims=True)
    return jnp.sqrt(jnp.maximum(squares, 1e-30))
