"""Trains all models of the synthetic task as lanes of one program, and measures them.

A job is a model: a setting, initial scale, learning rate and seed, all traced, so that one program
trains any of them (`jaxsens.training.lanes`). Settings with a smaller vocabulary are padded: their
extra rows and columns of weights start at 0, stay there, and change no score.

SGD on the logistic loss log(1 + e^{−yΦ}) or the squared one (1 − yΦ)²/2; the paper does not say
which it takes.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from jaxsens.data.generated.sparse_tokens import Counts, generate, opposite_sparse
from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.records import records_of
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.training.checkpoints import training_identity
from jaxsens.training.lanes import LaneState, by_blocks

from .._common.lanes import train_lanes
from .measuring import (
    HEADS,
    PADDED,
    accuracy,
    applied,
    exact_sensitivity,
    flips_both_ways,
    inside,
    real_tokens,
    scores_of,
)
from .theory import LENGTH, SETTINGS

Record = dict[str, Any]
Objective = Literal["logistic", "squared"]


class Lanes(NamedTuple):
    """Jobs as the program sees them: arrays with a leading axis of jobs, or without it of one."""

    counts: Counts
    sigma: Float[Array, "*L"]
    rate: Float[Array, "*L"]
    init_key: Key[Array, "*L"]
    order_key: Key[Array, "*L"]
    x: Int[Array, "*L n T"]
    y: Int[Array, "*L n"]
    x_test: Int[Array, "*L m T"]
    y_test: Int[Array, "*L m"]


@dataclass(frozen=True)
class TrainingPlan:
    """What is the same for all jobs: an `EpochTask`. Checkpoints know its name and its fields."""

    head: str
    num_train: int
    num_test: int
    batch: int
    epochs: int
    every: int
    num_measured: int
    num_final: int
    objective: Objective = "logistic"

    @property
    def evaluations(self) -> list[int]:
        """Epochs after which models are measured."""
        return list(range(0, self.epochs + 1, self.every))

    @property
    def steps_per_epoch(self) -> int:
        """Batches of an epoch; the batch divides the training sequences."""
        return self.num_train // self.batch

    @property
    def schedule(self) -> list[int]:
        """Steps after which models are measured."""
        return [epoch * self.steps_per_epoch for epoch in self.evaluations]

    def init(self, lane: Lanes) -> dict[str, Any]:
        """The job's first weights."""
        return initial(HEADS[self.head], lane.counts, lane.sigma, lane.init_key)

    def optimizer(self, lane: Lanes) -> optax.GradientTransformation:
        """SGD with the job's rate."""
        return optax.sgd(lane.rate)

    def of_epoch(self, lane: Lanes, epoch: Int[Array, ""]) -> Lanes:
        """The job with its training sequences in the epoch's order."""
        key = jax.random.fold_in(lane.order_key, epoch)
        order = jax.random.permutation(key, self.num_train)
        return lane._replace(x=lane.x[order], y=lane.y[order])

    def loss(self, params: Any, lane: Lanes, step: Int[Array, ""]) -> Float[Array, ""]:
        """Of the step's batch."""
        first = step % self.steps_per_epoch * self.batch
        x, y = (lax.dynamic_slice_in_dim(each, first, self.batch) for each in (lane.x, lane.y))
        return _loss(self.objective, applied(HEADS[self.head])(params, x), y)


@dataclass(frozen=True)
class TrainingJob:
    """One model to train: an index into `SETTINGS`, a seed, initial σ and learning rate."""

    setting: int
    seed: int
    sigma: float
    rate: float


def make_lanes(plan: TrainingPlan, jobs: Sequence[TrainingJob], seed: int) -> Lanes:
    """The jobs stacked; jobs of one setting and seed share data, initial weights and order."""
    counts = zip(*(SETTINGS[job.setting].counts for job in jobs), strict=True)
    keys = [
        jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), job.setting), job.seed)
        for job in jobs
    ]
    return _make_lanes(
        plan,
        Counts(*(jnp.array(column, jnp.int32) for column in counts)),
        jnp.array([job.sigma for job in jobs], jnp.float32),
        jnp.array([job.rate for job in jobs], jnp.float32),
        jnp.stack(keys),
    )


@functools.partial(jax.jit, static_argnums=0)
def _make_lanes(
    plan: TrainingPlan,
    counts: Counts,
    sigma: Float[Array, " L"],
    rate: Float[Array, " L"],
    keys: Key[Array, " L"],
) -> Lanes:
    def one(counts: Counts, sigma: Array, rate: Array, key: PRNGKeyArray) -> Lanes:
        train_key, test_key, init_key, order_key = jax.random.split(key, 4)
        train = generate(counts, LENGTH, plan.num_train, key=train_key)
        test = generate(counts, LENGTH, plan.num_test, key=test_key)
        return Lanes(counts, sigma, rate, init_key, order_key, *train, *test)

    return jax.vmap(one)(counts, sigma, rate, keys)


def measure(
    plan: TrainingPlan, lanes: Lanes, state: LaneState, step: int, block: int | None
) -> Record:
    """What is measured after a step: lists with an entry per job, None where it is not finite.

    Args:
      plan: what is the same for all jobs.
      lanes: the jobs.
      state: their weights.
      step: after the last one the sensitivity is also measured on more sequences.
      block: jobs that are measured side by side.
    """
    functions = [_measure, *([_measure_final] if step == plan.schedule[-1] else [])]
    found: Record = {}
    for function in functions:
        of_block = functools.partial(function, plan)
        found |= by_blocks(of_block, (lanes, state.params), block)
    return {name: _listed(values) for name, values in found.items()}


@functools.partial(jax.jit, static_argnums=0)
def _measure(plan: TrainingPlan, lanes: Lanes, params: Any) -> Record:
    model = HEADS[plan.head]

    def one(lane: Lanes, params: Any) -> Record:
        scores, few = scores_of(model, params, lane.x), lane.x[: plan.num_measured]
        test = scores_of(model, params, lane.x_test)
        ood = scores_of(model, params, opposite_sparse(lane.x_test))
        return {
            "loss": _loss(plan.objective, scores, lane.y),
            "train_accuracy": accuracy(scores, lane.y),
            "test_accuracy": accuracy(test, lane.y_test),
            "ood_accuracy": accuracy(ood, lane.y_test),
            "sensitivity": exact_sensitivity(model, params, few, lane.counts),
            **inside(model, params, few, lane.counts),
        }

    return jax.vmap(one)(lanes, params)


@functools.partial(jax.jit, static_argnums=0)
def _measure_final(plan: TrainingPlan, lanes: Lanes, params: Any) -> Record:
    def one(lane: Lanes, params: Any) -> Float[Array, ""]:
        return exact_sensitivity(HEADS[plan.head], params, lane.x[: plan.num_final], lane.counts)

    return {"final_sensitivity": jax.vmap(one)(lanes, params)}


def initial(
    model: nn.Module, counts: Counts, sigma: Float[Array, ""], key: PRNGKeyArray
) -> dict[str, Any]:
    """Weights N(0, σ²), and 0 where the setting's vocabulary, d = M, has none."""
    params = model.init(key, jnp.zeros((1, LENGTH), jnp.int32))
    inside = real_tokens(counts)

    def cut(weights: Array) -> Array:
        weights = sigma * weights
        for axis, size in enumerate(weights.shape):
            if size == PADDED:
                others = [a for a in range(weights.ndim) if a != axis]
                weights = weights * jnp.expand_dims(inside, others)
        return weights

    return jax.tree.map(cut, params)


def train_all(
    folder: RunFolder,
    plan: TrainingPlan,
    jobs: Sequence[TrainingJob],
    *,
    name: str,
    seed: int,
    block_size: int,
    num_checked: int,
) -> list[Record]:
    """Trains all jobs to the end; a folder in which they were trained has their records.

    Args:
      folder: the run's folder.
      plan: what is the same for all jobs.
      jobs: the models to train.
      name: of what is trained, in records and checkpoints.
      seed: of data, weights and order.
      block_size: models trained side by side; the first of them are checked.
      num_checked: sequences of each checked model that are measured once more, by the library.

    Returns:
      For each job its fields, its curves and final numbers (None for a number that is not finite),
      and, of those checked, the flips that `jaxsens.sensitivity` and the program count.
    """
    lanes = make_lanes(plan, jobs, seed)
    state = train_lanes(
        folder,
        name,
        plan,
        lanes,
        identity=training_identity((plan, tuple(jobs)), jax.random.key(seed)),
        schedule=plan.schedule,
        measure=lambda step, state: measure(plan, lanes, state, step, block_size),
        block=block_size,
    )
    measured = [record["measured"] for record in records_of(folder, name)]
    found = [_curves(measured, i) for i in range(len(jobs))]

    def check() -> list[Any]:
        def flips(i: int) -> Any:
            mine = jax.tree.map(lambda values: values[i], state.params)
            return flips_both_ways(
                plan.head, mine, lanes.x[i, :num_checked], SETTINGS[jobs[i].setting]
            )

        return [
            flips(i) if found[i]["loss"][-1] is not None else None
            for i in range(min(block_size, len(jobs)))
        ]

    checked = cached_stage(folder, f"{name}, checked", check)
    return [
        {
            "head": plan.head,
            "objective": plan.objective,
            "setting": job.setting,
            "seed": job.seed,
            "sigma": job.sigma,
            "rate": job.rate,
            "epochs": plan.evaluations,
            **found[i],
            **({"flips": checked[i]} if i < len(checked) and checked[i] else {}),
        }
        for i, job in enumerate(jobs)
    ]


def _curves(measured: Sequence[Record], job: int) -> Record:
    """What was measured of a job at every evaluation, and what was at the last one alone."""
    last = measured[-1].keys() - measured[0].keys()
    curves = {name: [each[name][job] for each in measured] for name in measured[0]}
    return _without_diverged(curves | {name: measured[-1][name][job] for name in last})


def _without_diverged(found: Record) -> Record:
    """None for what was measured once the loss was not finite: the sign of nan is no label."""
    finite = [loss is not None for loss in found["loss"]]

    def while_finite(values: Any) -> Any:
        if not isinstance(values, list):
            return values if finite[-1] else None
        empty = [None] * len(values[0]) if isinstance(values[0], list) else None
        return [value if ok else empty for value, ok in zip(values, finite, strict=True)]

    return {name: while_finite(values) for name, values in found.items()}


def _listed(values: Any) -> Any:
    """Nested lists, None for what is not finite: a model that diverged."""
    nested = values if isinstance(values, float | list) else np.asarray(values, float).tolist()
    if isinstance(nested, list):
        return [_listed(each) for each in nested]
    return nested if math.isfinite(nested) else None


def _loss(kind: Objective, scores: Float[Array, " n"], y: Int[Array, " n"]) -> Float[Array, ""]:
    margins = y.astype(scores.dtype) * scores
    losses = jax.nn.softplus(-margins) if kind == "logistic" else 0.5 * (1 - margins) ** 2
    return losses.mean()
