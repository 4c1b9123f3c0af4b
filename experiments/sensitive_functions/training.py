"""Training of the experiment: transformers of bits as lanes of one program, one program per shape.

A lane is one training run. Model and batch are shared; function (or table of labels, or training
points), random key, learning rate and weight decay are a lane's own. A step draws a batch of inputs
with replacement. Where there are no more different inputs than the batch has, all of them go
through the model once, weighted by how often they were drawn: the same loss, less work.

Assumption: runs of one stage take equally many steps, and lanes in blocks of one size; both are
part of what decides their bits.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from jaxsens.models import BitTransformer
from jaxsens.models.tokens.bit_transformer import tie_layers
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.checkpoints import training_identity
from jaxsens.training.lanes import LaneState, LaneTask
from jaxsens.training.trainer import TrainingDivergedError

from .._common.lanes import Measure, train_lanes
from .functions import FUNCTIONS, Function, all_values, bits_of

#: Up to this many bits an input is one number, drawn as such; beyond, bits are drawn one by one.
LARGEST_NUMBERED = 30
#: The paper's filter: only runs whose loss (of values in [0, 1]) ends below it have learnt.
LEARNT = 1e-3


@dataclass(frozen=True)
class Run:
    """One training: a lane as a user would name it. Checkpoints know this class and its fields."""

    function: Function
    seed: int
    learning_rate: float
    weight_decay: float


@flax.struct.dataclass
class Lanes:
    """What differs between lanes: arrays with a leading axis of lanes, or without it of one.

    Attributes:
      key: of first weights and of batches.
      learning_rate: AdamW's.
      weight_decay: AdamW's, on all parameters.
      function: the number of a named function, or None where there are tables.
      table: values of all 2ⁿ inputs, in binary order.
      points: the inputs that batches are drawn from; default all.
    """

    key: Key[Array, "*L"]
    learning_rate: Float[Array, "*L"]
    weight_decay: Float[Array, "*L"]
    function: Int[Array, "*L"] | None = None
    table: Float[Array, "*L N"] | None = None
    points: Int[Array, "*L m"] | None = None


class BitTransformerTask:
    """What the tasks of bit transformers share: first weights and optimiser.

    Not a dataclass: checkpoints know the fields of each task, in its own order.
    """

    model: BitTransformer
    tied: bool

    def init(self, lane: Lanes) -> Any:
        """First weights, from the lane's key."""
        bits = jnp.zeros((1, self.model.length), jnp.int32)
        variables: Any = self.model.init(jax.random.fold_in(lane.key, 0), bits)
        return tie_layers(variables) if self.tied else variables

    def optimizer(self, lane: Lanes) -> optax.GradientTransformation:
        """AdamW on all parameters, biases and norms included."""
        return optax.adamw(lane.learning_rate, weight_decay=lane.weight_decay)


@dataclass(frozen=True)
class BitTask(BitTransformerTask):
    """A transformer that is fitted to values of bits by squared error: a `LaneTask`.

    Attributes:
      model: what is trained.
      batch: inputs drawn for a step.
      tied: whether all layers start from the same weights, as in the released code.
    """

    model: BitTransformer
    batch: int
    tied: bool = True

    def loss(self, params: Any, lane: Lanes, step: Int[Array, ""]) -> Float[Array, ""]:
        """The mean squared error of the inputs that the step draws."""
        key = jax.random.fold_in(jax.random.fold_in(lane.key, 1), step)
        points, bits, weights = self.drawn(lane, key)
        outputs: Any = self.model.apply(params, bits)
        return jnp.sum(weights * jnp.square(outputs - values_of(lane, points, bits)))

    def drawn(
        self, lane: Lanes, key: PRNGKeyArray
    ) -> tuple[Int[Array, " b"] | None, Int[Array, "b n"], Float[Array, " b"]]:
        """A batch: its inputs by number (None if they have none), as bits, and their weights."""
        n, equal = self.model.length, jnp.full(self.batch, 1 / self.batch)
        if n > LARGEST_NUMBERED:
            return None, jax.random.randint(key, (self.batch, n), 0, 2), equal
        num = 2**n if lane.points is None else lane.points.shape[0]
        places = jax.random.randint(key, (self.batch,), 0, num)
        if num <= self.batch:
            places, equal = jnp.arange(num), jnp.zeros(num).at[places].add(equal)
        points = places if lane.points is None else lane.points[places]
        return points, bits_of(points, n), equal


def values_of(
    lane: Lanes, points: Int[Array, " b"] | None, bits: Int[Array, "b n"]
) -> Float[Array, " b"]:
    """What a lane is fitted to."""
    if lane.table is not None:
        return lane.table[points]
    if lane.function is None:
        raise ValueError("a lane needs a function or a table; got neither")
    return jnp.take(all_values(bits), lane.function, axis=1)


def make_lanes(runs: Sequence[Run]) -> Lanes:
    """Runs of named functions, stacked. Runs of one seed share first weights and batches."""
    return Lanes(
        key=jnp.stack([jax.random.key(run.seed) for run in runs]),
        learning_rate=jnp.array([run.learning_rate for run in runs], jnp.float32),
        weight_decay=jnp.array([run.weight_decay for run in runs], jnp.float32),
        function=jnp.array([FUNCTIONS.index(run.function) for run in runs], jnp.int32),
    )


def train_stage(
    folder: RunFolder,
    name: str,
    task: LaneTask,
    lanes: Lanes,
    *,
    runs: Any,
    steps: int,
    block: int,
    every: int | None = None,
    measure: Measure | None = None,
) -> LaneState:
    """Trains lanes of one shape to their end; a run that was killed goes on where it was.

    Args:
      folder: the run's folder.
      name: of the stage, in records and checkpoints.
      task: what the lanes share.
      lanes: what they do not.
      runs: what decides `lanes`, for the checkpoints' identity: dataclasses, numbers, texts.
      steps: of every lane.
      block: lanes that are vmapped together.
      every: steps between two records; default a tenth of all steps.
      measure: what a record holds; default the loss of the batch that the step draws.

    Raises:
      TrainingDivergedError: no lane has a finite loss.
    """
    every = every or max(1, steps // 10)
    schedule = sorted({*range(0, steps, every), steps})
    losses = measure or _batch_losses(task, lanes)

    def checked(step: int, state: LaneState) -> dict[str, list[Any]]:
        measured = losses(step, state)
        require_some_finite(name, measured["loss"], lanes, step)
        return measured

    return train_lanes(
        folder,
        name,
        task,
        lanes,
        identity=training_identity((task, tuple(runs), steps, block), jax.random.key(0)),
        schedule=schedule,
        measure=checked,
        progress=lambda measured: (
            f"loss {_smallest(measured['loss']):.4f} to "
            f"{max(loss for loss in measured['loss'] if loss is not None):.4f}"
        ),
        block=block,
    )


def require_some_finite(name: str, losses: Sequence[float | None], lanes: Lanes, step: int) -> None:
    """Raises TrainingDivergedError if no loss is a number."""
    if all(loss is None for loss in losses):
        rates = np.unique(np.asarray(lanes.learning_rate))
        raise TrainingDivergedError(
            f"{name}: all {len(losses)} runs have diverged by step {step} (no loss is finite); "
            f"lower the learning rate ({', '.join(f'{rate:g}' for rate in rates)})"
        )


def json_lists(values: Any) -> list[Any]:
    """Nested lists for JSON, which has no nan: None for what is not finite."""
    nested = np.asarray(values, np.float64)
    found = nested.astype(object)
    found[~np.isfinite(nested)] = None
    listed: list[Any] = found.tolist()
    return listed


def _batch_losses(task: LaneTask, lanes: Lanes) -> Measure:
    def measure(step: int, state: LaneState) -> dict[str, list[Any]]:
        return {"loss": json_lists(_losses(task, state.params, lanes, jnp.int32(step)))}

    return measure


@functools.partial(jax.jit, static_argnums=0)
def _losses(task: LaneTask, params: Any, lanes: Lanes, step: Int[Array, ""]) -> Float[Array, " L"]:
    return jax.vmap(task.loss, in_axes=(0, 0, None))(params, lanes, step)


def _smallest(losses: Sequence[float | None]) -> float:
    return min(loss for loss in losses if loss is not None)
