"""The side of jaxsens in the suite "many-runs": all runs as lanes of one program."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from benchmarks.cell import timed
from benchmarks.frame import Row
from benchmarks.many_runs_cell import DECAY, HEADS, LAYERS, RATE, WIDTH, Job
from jaxsens.models import BitTransformer
from jaxsens.models.tokens.bit_transformer import tie_layers
from jaxsens.training import lanes as many


@dataclass(frozen=True)
class Parity:
    """PARITY from uniform inputs (a `LaneTask`); a lane is a random key.

    Attributes:
      model: what is trained.
      batch: inputs drawn for a step.
    """

    model: BitTransformer
    batch: int

    @property
    def num_inputs(self) -> int:
        """Inputs that go through the model in a step: those drawn, or all if they are fewer."""
        return min(self.batch, 2**self.model.length)

    def init(self, lane: PRNGKeyArray) -> Any:
        """First weights, the same for all layers, as PyTorch copies them."""
        bits = jnp.zeros((1, self.model.length), jnp.int32)
        variables: Any = self.model.init(jax.random.fold_in(lane, 0), bits)
        return tie_layers(variables)

    def optimizer(self, lane: PRNGKeyArray) -> optax.GradientTransformation:
        """AdamW on all parameters."""
        return optax.adamw(RATE, weight_decay=DECAY)

    def loss(self, params: Any, lane: PRNGKeyArray, step: Int[Array, ""]) -> Float[Array, ""]:
        """The mean squared error of the inputs that the step draws."""
        key = jax.random.fold_in(jax.random.fold_in(lane, 1), step)
        points, weights = self.drawn(key)
        places = jnp.arange(self.model.length, dtype=points.dtype)
        bits = points[:, None] >> places[None, :] & 1
        targets = (bits.sum(axis=1) % 2).astype(jnp.float32)
        outputs: Any = self.model.apply(params, bits)
        return jnp.sum(weights * (outputs - targets) ** 2)

    def drawn(self, key: PRNGKeyArray) -> tuple[Int[Array, " b"], Float[Array, " b"]]:
        """The batch as different inputs and their weights, which sum to 1."""
        num = 2**self.model.length
        points = jax.random.randint(key, (self.batch,), 0, num)
        equal = jnp.full(self.batch, 1 / self.batch)
        if num > self.batch:
            return points, equal
        return jnp.arange(num), jnp.zeros(num).at[points].add(equal)


def measure(job: Job) -> Row:
    """Times all lanes."""
    task = Parity(BitTransformer(job.length, WIDTH, LAYERS, HEADS), job.batch)
    lanes = jax.random.split(jax.random.key(job.seed), job.num_lanes)
    state, done = many.start(task, lanes), 0
    losses = jax.jit(jax.vmap(task.loss, in_axes=(0, 0, None)))

    def advance() -> float:
        nonlocal state, done
        state = many.advance(task, lanes, state, done, job.steps, job.block)
        done += job.steps
        return float(jnp.mean(losses(state.params, lanes, jnp.int32(done))))

    sizes = sum(leaf[0].size for leaf in jax.tree.leaves(state.params))
    return timed(advance, job.repeats) | {
        "num_runs": job.num_lanes,
        "num_inputs": task.num_inputs,
        "num_parameters": int(sizes),
    }
