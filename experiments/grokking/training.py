"""Training of the experiment `grokking`: all lanes in one program, measured on the way.

A lane is one training run: a seed, a weight decay, labels with or without a rule. A step is an
epoch, full-batch AdamW. `jaxsens.training.lanes` trains them, and `train_lanes` keeps records and
checkpoints; the noise of an evaluation is keyed by its epoch, so that a run that was killed comes
out the same to the bit.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from jaxsens.reporting.records import records_of
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.checkpoints import training_identity
from jaxsens.training.lanes import LaneState, by_blocks
from jaxsens.training.trainer import TrainingDivergedError

from .._common.lanes import train_lanes
from .tasks import Data, Params, Task


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but their seeds: an arm of the experiment, as in a trial.

    Checkpoints know the name of this class and of `Training`, and their fields.

    Attributes:
      name: key in records.
      label: name for readers.
      weight_decay: AdamW's.
      rule: whether labels follow the rule, or are random.
    """

    name: str
    label: str
    weight_decay: float
    rule: bool = True


@flax.struct.dataclass
class Lanes:
    """What differs between lanes: arrays with a leading axis of lanes, or without it of one."""

    key: Key[Array, "*L"]
    data: Data
    weight_decay: Float[Array, "*L"]


@dataclass(frozen=True)
class Training:
    """How the lanes of a task train: a `LaneTask`.

    Attributes:
      name: the task's name in records and checkpoints.
      task: what is learned.
      arms: groups of lanes.
      seeds: one lane for each arm and seed, in this order.
      learning_rate: AdamW's.
      epochs: full-batch steps.
      every: epochs between two evaluations; five times as often in the first five of them.
    """

    name: str
    task: Task
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    learning_rate: float
    epochs: int
    every: int

    @property
    def evaluations(self) -> list[int]:
        """The epochs after which everything is measured, 0 included."""
        early = range(0, min(5 * self.every, self.epochs), max(1, self.every // 5))
        return sorted({*early, *range(0, self.epochs, self.every), self.epochs})

    def init(self, lane: Lanes) -> Params:
        """First weights: the same for lanes of one seed."""
        return self.task.init(lane.key)

    def optimizer(self, lane: Lanes) -> optax.GradientTransformation:
        """AdamW with the lane's weight decay."""
        return optax.adamw(self.learning_rate, weight_decay=lane.weight_decay)

    def loss(self, params: Params, lane: Lanes, step: Int[Array, ""]) -> Float[Array, ""]:
        """Cross-entropy of all training examples, at every step the same."""
        x, y = (lane.data[name][: self.task.num_train] for name in ("inputs", "labels"))
        return _cross_entropy(self.task.logits(params, x), y).mean()


def train(training: Training, folder: RunFolder, *, key: PRNGKeyArray) -> LaneState:
    """Trains all lanes to the end and records every evaluation.

    Raises:
      TrainingDivergedError: a measure is not finite; names the epoch.
    """
    lanes = make_lanes(training)
    return train_lanes(
        folder,
        training.name,
        training,
        lanes,
        identity=training_identity(training, key),
        schedule=training.evaluations,
        measure=lambda epoch, state: measure(
            training, lanes, state, jax.random.fold_in(key, epoch)
        ),
        progress=_progress,
        unit="epochs",
    )


def make_lanes(training: Training) -> Lanes:
    """The lanes of all arms and seeds, stacked."""
    each = [training.task.data(seed, rule=arm.rule) for arm, seed in _pairs(training)]
    return Lanes(
        jnp.stack([jax.random.key(seed) for _, seed in _pairs(training)]),
        {name: jnp.asarray(np.stack([lane[name] for lane in each])) for name in each[0]},
        jnp.array([arm.weight_decay for arm, _ in _pairs(training)], jnp.float32),
    )


def measure(
    training: Training, lanes: Lanes, state: LaneState, key: PRNGKeyArray
) -> dict[str, list[float]]:
    """All measures, one value per lane."""
    keys = jax.random.split(key, len(lanes.weight_decay))
    of_lanes = (lanes.data, state.params, keys)
    found = jax.device_get(by_blocks(functools.partial(_measure, training), of_lanes, None))
    for name, values in found.items():
        if not np.isfinite(values).all():
            lane = int(np.argmin(np.isfinite(values)))
            arm, seed = _pairs(training)[lane]
            raise TrainingDivergedError(
                f"{training.name}: {name} is {values[lane]} for {arm.label}, seed {seed}; lower "
                f"the learning rate ({training.learning_rate})"
            )
    return {name: [float(v) for v in values] for name, values in found.items()}


def curves(training: Training, folder: RunFolder) -> dict[str, dict[str, np.ndarray]]:
    """For each arm, "epochs" and every measure as an array (seeds, evaluations)."""
    records = records_of(folder, training.name)
    epochs = np.array([record["epoch"] for record in records])
    size = len(training.seeds)
    return {
        arm.name: {"epochs": epochs}
        | {
            name: np.array([r["measured"][name][i * size : (i + 1) * size] for r in records]).T
            for name in records[0]["measured"]
        }
        for i, arm in enumerate(training.arms)
    }


def _pairs(training: Training) -> Sequence[tuple[Arm, int]]:
    return [(arm, seed) for arm in training.arms for seed in training.seeds]


def _progress(measured: dict[str, list[float]]) -> str:
    return f"test accuracy {max(measured['test_accuracy']):.3f}"


@functools.partial(jax.jit, static_argnums=0)
def _measure(
    training: Training, data: Data, params: Params, keys: Key[Array, " L"]
) -> dict[str, Float[Array, " L"]]:
    # One lane after the other: the noise of all at once would not fit the cache.
    return jax.lax.map(lambda lane: _measure_lane(training.task, *lane), (data, params, keys))


def _measure_lane(
    task: Task, data: Data, params: Params, key: PRNGKeyArray
) -> dict[str, Float[Array, ""]]:
    logits, labels = task.logits(params, data["inputs"]), data["labels"]
    losses, right = _cross_entropy(logits, labels), jnp.argmax(logits, axis=-1) == labels
    n = task.num_train
    return {
        "train_loss": losses[:n].mean(),
        "test_loss": losses[n:].mean(),
        "train_accuracy": right[:n].mean(dtype=jnp.float32),
        "test_accuracy": right[n:].mean(dtype=jnp.float32),
    } | task.measures(params, data, key)


def _cross_entropy(logits: Float[Array, "n C"], labels: Int[Array, " n"]) -> Float[Array, " n"]:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)
