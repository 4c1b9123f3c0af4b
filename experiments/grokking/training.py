"""Training of the experiment `grokking`: all lanes in one program, measured on the way.

A lane is one training run: a seed, a weight decay, labels with or without a rule. Lanes are
vmapped. Epochs are full-batch steps of AdamW, in one loop on the device between two evaluations;
its length is an argument, so that nothing is compiled twice.

After an evaluation its record goes into metrics.jsonl, then, not too often, the state to disk.
Killed at any moment, a run goes on from the last state and repeats no record; evaluations lie at
fixed epochs and their noise is keyed by the epoch, so the rest comes out the same to the bit.
"""

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens.reporting.progress import Bar, say
from jaxsens.reporting.records import records_of
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.checkpoints import DamagedCheckpointError, training_identity
from jaxsens.training.trainer import SECONDS_BETWEEN_CHECKPOINTS, TrainingDivergedError

from .._common.training import open_checkpoints
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


@dataclass(frozen=True)
class Training:
    """How the lanes of a task train; static.

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


@flax.struct.dataclass
class State:
    """Weights and optimiser of all lanes."""

    params: Params
    opt_state: Any


@flax.struct.dataclass
class Lanes:
    """What the lanes train on: arrays with a leading axis of lanes, or without it of one lane."""

    data: Data
    weight_decay: Float[Array, "*L"]


def train(training: Training, folder: RunFolder, *, key: PRNGKeyArray) -> State:
    """Trains all lanes to the end and records every evaluation.

    Raises:
      TrainingDivergedError: a measure is not finite; names the epoch.
    """
    name, schedule = training.name, training.evaluations
    recorded = {record["epoch"] for record in records_of(folder, name)}
    lanes, state, done = make_lanes(training), start(training), 0
    clock = saved = time.monotonic()
    with (
        open_checkpoints(folder, name, training_identity(training, key)) as checkpoints,
        Bar(f"{name}: training", "epochs", training.epochs) as bar,
    ):
        while saved_epochs := checkpoints.epochs():
            try:
                last = saved_epochs[-1]
                state, done = checkpoints.restore(last, like=state), last
                break
            except DamagedCheckpointError as error:
                say(f"{error}; the one before it is taken")
        for epoch in (e for e in schedule if e >= done):
            state = _advance(training, lanes, state, jnp.int32(epoch - done))
            done = epoch
            if epoch not in recorded:
                measured = measure(training, lanes, state, jax.random.fold_in(key, epoch))
                now = time.monotonic()
                folder.append(
                    {"model": name, "epoch": epoch, "measured": measured, "seconds": now - clock}
                )
                clock = now
                bar.update(epoch, training.epochs, _progress(measured))
            if time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS or epoch == training.epochs:
                checkpoints.save(epoch, state)
                saved = time.monotonic()
    return state


def make_lanes(training: Training) -> Lanes:
    """The data of all lanes, stacked."""
    each = [training.task.data(seed, rule=arm.rule) for arm, seed in _pairs(training)]
    data = {name: jnp.asarray(np.stack([lane[name] for lane in each])) for name in each[0]}
    decays = [arm.weight_decay for arm, _ in _pairs(training)]
    return Lanes(data, jnp.array(decays, jnp.float32))


def start(training: Training) -> State:
    """First weights: the same for lanes of one seed."""
    keys = jnp.stack([jax.random.key(seed) for _, seed in _pairs(training)])
    params = jax.jit(jax.vmap(training.task.init))(keys)
    return State(params, jax.vmap(_optimizer(training, 0.0).init)(params))


def measure(
    training: Training, lanes: Lanes, state: State, key: PRNGKeyArray
) -> dict[str, list[float]]:
    """All measures, one value per lane."""
    found = jax.device_get(_measure(training, lanes, state.params, key))
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


def _optimizer(
    training: Training, weight_decay: float | Float[Array, ""]
) -> optax.GradientTransformation:
    # optax asks for a float and only multiplies with it, so one number per lane is fine.
    return optax.adamw(training.learning_rate, weight_decay=weight_decay)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def _advance(training: Training, lanes: Lanes, state: State, num: Int[Array, ""]) -> State:
    """`num` epochs of every lane."""
    return jax.vmap(functools.partial(_advance_lane, training), in_axes=(0, 0, None))(
        lanes, state, num
    )


def _advance_lane(training: Training, lane: Lanes, state: State, num: Int[Array, ""]) -> State:
    task, optimizer = training.task, _optimizer(training, lane.weight_decay)
    x, y = (lane.data[name][: task.num_train] for name in ("inputs", "labels"))

    def loss(params: Params) -> Float[Array, ""]:
        return _cross_entropy(task.logits(params, x), y).mean()

    def epoch(_: Array, state: State) -> State:
        gradients = jax.grad(loss)(state.params)
        # optax's Adam raises a float to an integer power, which strict promotion refuses.
        with jax.numpy_dtype_promotion("standard"):
            updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        return State(optax.apply_updates(state.params, updates), opt_state)

    return jax.lax.fori_loop(0, num, epoch, state)


@functools.partial(jax.jit, static_argnums=0)
def _measure(
    training: Training, lanes: Lanes, params: Params, key: PRNGKeyArray
) -> dict[str, Float[Array, " L"]]:
    keys = jax.random.split(key, len(lanes.weight_decay))
    # One lane after the other: the noise of all at once would not fit the cache.
    return jax.lax.map(lambda lane: _measure_lane(training.task, *lane), (lanes.data, params, keys))


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
