"""The largest value of a function inside a ball, by projected ascent from several starts.

    Δ_{t+1} = Π( Δ_t + 0.3 (1 - t/num_steps) · radius · g/‖g‖ ),    g = ∇f(centre + Δ_t)

One step and its projection Π are `Ball.climb`; `worst_case` takes the same steps for any model.
Starts are random points of the ball's surface, and the best point of each path is kept.

Assumption: f is differentiable almost everywhere, finite in the ball, and not flat around every
start. What is found is a lower bound of the supremum; how far the starts agree says how near.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens.perturbations.ball import Ball, step_size


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
    ball: Ball,
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
      ball: how far a point may be from it.
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
      ...     linear, jnp.zeros(2), Ball(2.0), key=jax.random.key(0), num_starts=2, num_steps=50
      ... )
      >>> round(float(found.values.max()), 3)
      10.0
    """
    value_and_grad = jax.vmap(jax.value_and_grad(lambda move: objective(centre + move)))
    climb = jax.vmap(ball.climb, (0, 0, None))

    def random_moves(start: Int[Array, ""]) -> Float[Array, "draws d"]:
        keys = jax.random.split(jax.random.fold_in(key, start), num_draws)
        return jax.vmap(ball, (0, None))(keys, jnp.zeros_like(centre))

    def step(state: tuple, given: tuple) -> tuple[tuple, Float[Array, " starts"]]:
        (moves, values, best), (size, index) = state, given
        found, gradients = value_and_grad(moves)
        better = found > values
        best = jnp.where(better[:, None], moves, best)
        ahead = climb(moves, gradients, size)
        ahead = jnp.where(index < num_jumps, drawn[jnp.minimum(index + 1, num_jumps)], ahead)
        return (ahead, jnp.where(better, found, values), best), found

    drawn = jnp.moveaxis(jax.vmap(random_moves)(jnp.arange(num_starts)), 1, 0)
    # Jumps from one random point to the next, then steps, and a last one of length 0: what is
    # looked at is compiled once.
    num_jumps = num_draws - 1
    sizes = step_size(jnp.arange(num_steps + 1, dtype=centre.dtype), max(num_steps, 1))
    sizes = jnp.concatenate([jnp.zeros(num_jumps, centre.dtype), sizes])
    steps = jnp.arange(num_jumps + num_steps + 1)
    lowest = jnp.full((num_starts,), -jnp.inf, centre.dtype)
    (_, values, best), seen = jax.lax.scan(step, (drawn[0], lowest, drawn[0]), (sizes, steps))
    return Ascent(values, centre[None] + best, seen[:num_draws].T)
