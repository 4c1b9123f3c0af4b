"""Trains all models of the synthetic task in one vmapped, jitted program, and measures them.

A job is a model: a setting, initial scale, learning rate and key, all traced, so that one program
trains any of them. Settings with a smaller vocabulary are padded: their extra rows and columns of
weights start at 0, stay there, and change no score.

SGD on the logistic loss log(1 + e^{−yΦ}) or the squared one (1 − yΦ)²/2; the paper does not say
which it takes. Sensitivity is exact: every position × every token.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxsens import Perturbation, Resample, Tokens, sensitivity
from jaxsens.data.generated.sparse_tokens import (
    TYPES,
    Counts,
    generate,
    opposite_sparse,
    token_types,
)
from jaxsens.models import TokenAttention, TokenMLP
from jaxsens.reporting.cached import cached_stage
from jaxsens.reporting.progress import Bar
from jaxsens.reporting.run_folder import RunFolder

from .theory import LENGTH, SETTINGS, Setting

Record = dict[str, Any]
Loss = Literal["logistic", "squared"]
#: Vocabulary that all settings are padded to.
PADDED = max(int(setting.counts.vocabulary) for setting in SETTINGS)
#: The model, and the controls without attention. Jobs scale the initial weights themselves.
HEADS: dict[str, nn.Module] = {
    "attention": TokenAttention(PADDED, LENGTH, sigma=1.0),
    "MLP": TokenMLP(PADDED, LENGTH, "flatten", sigma=1.0),
    "summing MLP": TokenMLP(PADDED, LENGTH, "sum", sigma=1.0),
}
# Sequences that go through a model side by side when it is measured.
_ROWS = 100
_EDITED_ROWS = 4


@dataclass(frozen=True)
class TrainingPlan:
    """What is the same for all jobs: the static half of the program."""

    head: str
    num_train: int
    num_test: int
    batch: int
    epochs: int
    every: int
    num_measured: int
    num_final: int
    loss: Loss = "logistic"

    @property
    def evaluations(self) -> list[int]:
        """Epochs after which models are measured."""
        return list(range(0, self.epochs + 1, self.every))


@dataclass(frozen=True)
class TrainingJob:
    """One model to train: an index into `SETTINGS`, a seed, initial σ and learning rate."""

    setting: int
    seed: int
    sigma: float
    rate: float


class TracedJobs(NamedTuple):
    """A job as the program sees it."""

    counts: Counts
    sigma: Float[Array, ""]
    rate: Float[Array, ""]
    key: PRNGKeyArray


def traced(jobs: Sequence[TrainingJob], seed: int) -> TracedJobs:
    """The jobs stacked; jobs of one setting and seed share data, initial weights and order."""
    counts = zip(*(SETTINGS[job.setting].counts for job in jobs), strict=True)
    keys = [
        jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), job.setting), job.seed)
        for job in jobs
    ]
    return TracedJobs(
        Counts(*(jnp.array(column, jnp.int32) for column in counts)),
        jnp.array([job.sigma for job in jobs], jnp.float32),
        jnp.array([job.rate for job in jobs], jnp.float32),
        jnp.stack(keys),
    )


@functools.partial(jax.jit, static_argnums=0)
def train(plan: TrainingPlan, jobs: TracedJobs) -> tuple[Record, Record, Any, Int[Array, "k n T"]]:
    """All jobs, to the end.

    Returns:
      What was measured at every evaluation, (k, evaluations, …); what was measured once, at the
      end; the trained parameters; the training sequences.
    """
    return jax.vmap(functools.partial(_train_one, plan))(jobs)


def _train_one(
    plan: TrainingPlan, job: TracedJobs
) -> tuple[Record, Record, Any, Int[Array, "n T"]]:
    model = HEADS[plan.head]
    train_key, test_key, init_key, order_key = jax.random.split(job.key, 4)
    x, y = generate(job.counts, LENGTH, plan.num_train, key=train_key)
    x_test, y_test = generate(job.counts, LENGTH, plan.num_test, key=test_key)
    params = initial(model, job.counts, job.sigma, init_key)
    loss = functools.partial(_loss, plan.loss)

    def measure(params: Any) -> Record:
        scores = _scores(model, params, x)
        return {
            "loss": loss(scores, y),
            "train_accuracy": _accuracy(scores, y),
            "test_accuracy": _accuracy(_scores(model, params, x_test), y_test),
            "ood_accuracy": _accuracy(_scores(model, params, opposite_sparse(x_test)), y_test),
            "sensitivity": exact_sensitivity(model, params, x[: plan.num_measured], job.counts),
            **inside(model, params, x[: plan.num_measured], job.counts),
        }

    def step(params: Any, rows: Int[Array, " b"]) -> tuple[Any, None]:
        gradient = jax.grad(lambda p: loss(_apply(model)(p, x[rows]), y[rows]))(params)
        return jax.tree.map(lambda p, g: p - job.rate * g, params, gradient), None

    def epoch(params: Any, index: Int[Array, ""]) -> tuple[Any, None]:
        order = jax.random.permutation(jax.random.fold_in(order_key, index), plan.num_train)
        return lax.scan(step, params, order.reshape(-1, plan.batch))

    def interval(params: Any, first: Int[Array, ""]) -> tuple[Any, Record]:
        found = measure(params)
        epochs = first + jnp.arange(plan.every)
        trained = lax.cond(
            first < plan.epochs, lambda p: lax.scan(epoch, p, epochs)[0], lambda p: p, params
        )
        return trained, found

    params, curves = lax.scan(interval, params, jnp.array(plan.evaluations))
    final = {"final_sensitivity": exact_sensitivity(model, params, x[: plan.num_final], job.counts)}
    return curves, final, params, x


def initial(
    model: nn.Module, counts: Counts, sigma: Float[Array, ""], key: PRNGKeyArray
) -> dict[str, Any]:
    """Weights N(0, σ²), and 0 where the setting's vocabulary, d = M, has none."""
    params = model.init(key, jnp.zeros((1, LENGTH), jnp.int32))
    inside = _real(counts)

    def cut(weights: Array) -> Array:
        weights = sigma * weights
        for axis, size in enumerate(weights.shape):
            if size == PADDED:
                others = [a for a in range(weights.ndim) if a != axis]
                weights = weights * jnp.expand_dims(inside, others)
        return weights

    return jax.tree.map(cut, params)


def _real(counts: Counts) -> Float[Array, " M"]:
    """1 for the tokens of the setting's vocabulary, 0 for padding."""
    return (jnp.arange(PADDED) < counts.vocabulary).astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def exact_sensitivity(
    model: nn.Module, params: Any, x: Int[Array, "n T"], counts: Counts
) -> Float[Array, ""]:
    """The share of all (sequence, position, token) in which the sign of the score changes."""
    real = _real(counts)

    def changes(row: Int[Array, " T"]) -> Float[Array, ""]:
        clean = jnp.sign(_apply(model)(params, row[None])[0])
        edited = jnp.sign(_apply(model)(params, row, method="edited"))
        return jnp.where(edited != clean, real[None, :], 0.0).sum()

    total = lax.map(changes, x, batch_size=_EDITED_ROWS).sum()
    return total / (x.size * jnp.float32(counts.vocabulary))


def inside(model: nn.Module, params: Any, x: Int[Array, "n T"], counts: Counts) -> Record:
    """Alignment of H = U W_Vᵀ and attention by type of token; nothing for other heads."""
    if not isinstance(model, TokenAttention):
        return {}
    ids = jnp.arange(PADDED)
    types = jax.nn.one_hot(token_types(ids, counts), len(TYPES)) * _real(counts)[:, None]
    sign = jnp.where(ids % 2 == 0, 1.0, -1.0)
    directions = types * jnp.stack([sign, sign, jnp.ones_like(sign)], axis=1)
    readout = _apply(model)(params, method="readout")
    norms = jnp.linalg.norm(readout, axis=1)[:, None] * jnp.linalg.norm(directions, axis=0)[None]
    alignment = (readout @ directions / jnp.maximum(norms, 1e-30)).mean(axis=0)

    def mass(row: Int[Array, " T"]) -> tuple[Float[Array, " 3"], Float[Array, " 3"]]:
        attention = _apply(model)(params, row[None], method="attention")[0].mean(axis=0)
        of_type = types[row]
        by_type = attention @ of_type
        return by_type, by_type / of_type.sum(axis=0)

    by_type, by_token = lax.map(mass, x, batch_size=_ROWS)
    return {
        "alignment": alignment,
        "attention": by_type.mean(axis=0),
        # In units of uniform attention, 1/T for every token.
        "attention_per_token": LENGTH * by_token.mean(axis=0),
    }


def _scores(model: nn.Module, params: Any, x: Int[Array, "n T"]) -> Float[Array, " n"]:
    return lax.map(lambda row: _apply(model)(params, row[None])[0], x, batch_size=_ROWS)


def _loss(kind: Loss, scores: Float[Array, " n"], y: Int[Array, " n"]) -> Float[Array, ""]:
    margins = y.astype(scores.dtype) * scores
    losses = jax.nn.softplus(-margins) if kind == "logistic" else 0.5 * (1 - margins) ** 2
    return losses.mean()


def _accuracy(scores: Float[Array, " n"], y: Int[Array, " n"]) -> Float[Array, ""]:
    return (jnp.sign(scores).astype(y.dtype) == y).mean()


def blocks(jobs: Sequence[TrainingJob], size: int) -> list[list[TrainingJob]]:
    """The jobs in blocks of one size, so that the program is compiled once; the last is padded."""
    cut = [list(jobs[start : start + size]) for start in range(0, len(jobs), size)]
    return [block + block[-1:] * (size - len(block)) for block in cut]


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
    """The records of all jobs, block by block; a block that is in the folder is not trained.

    Args:
      folder: the run's folder.
      plan: what is the same for all jobs.
      jobs: the models to train.
      name: of what is trained, in the stages of the run.
      seed: of data, weights and order.
      block_size: models trained side by side.
      num_checked: sequences of each model of the first block that are measured once more.
    """
    records: list[Record] = []
    with Bar(f"{name}: training", "models", len(jobs)) as bar:
        for i, block in enumerate(blocks(jobs, block_size)):
            checked = num_checked if i == 0 else 0
            train = functools.partial(train_block, plan, block, seed, checked)
            records += cached_stage(folder, f"{name}, block {i}", train)
            bar.update(min(len(records), len(jobs)), len(jobs), "")
    return records[: len(jobs)]


def train_block(
    plan: TrainingPlan, jobs: Sequence[TrainingJob], seed: int, num_checked: int
) -> list[Record]:
    """Trains one block; the first `num_checked` sequences of each job are measured once more.

    Returns:
      For each job its fields, its curves and final numbers (None for a number that is not finite),
      and, where asked, the flips that `jaxsens.sensitivity` and the program count.
    """
    curves, final, params, x = train(plan, traced(jobs, seed))
    records = []
    for i, job in enumerate(jobs):
        found = {name: _listed(values[i]) for name, values in {**curves, **final}.items()}
        found = _without_diverged(found)
        record = {
            "head": plan.head,
            "objective": plan.loss,
            "setting": job.setting,
            "seed": job.seed,
            "sigma": job.sigma,
            "rate": job.rate,
            "epochs": plan.evaluations,
            **found,
        }
        if num_checked and found["loss"][-1] is not None:
            mine = jax.tree.map(lambda values, i=i: values[i], params)
            setting = SETTINGS[job.setting]
            record["flips"] = flips_both_ways(plan.head, mine, x[i, :num_checked], setting)
        records.append(record)
    return records


def _without_diverged(found: Record) -> Record:
    """None for what was measured once the loss was not finite: the sign of nan is no label."""
    finite = [loss is not None for loss in found["loss"]]

    def while_finite(values: Any) -> Any:
        if not isinstance(values, list):
            return values if finite[-1] else None
        empty = [None] * len(values[0]) if isinstance(values[0], list) else None
        return [value if ok else empty for value, ok in zip(values, finite, strict=True)]

    return {name: while_finite(values) for name, values in found.items()}


def flips_both_ways(
    head: str, params: Any, x: Int[Array, "n T"], setting: Setting
) -> tuple[int, int, int]:
    """Changes of the sign by `jaxsens.sensitivity` and by `exact_sensitivity`, and of how many."""
    model, vocabulary = HEADS[head], int(setting.counts.vocabulary)
    replace = Perturbation(Tokens(), Resample(vocabulary))
    est = sensitivity(_apply(model), params, x, replace, "all", key=jax.random.key(0))
    share = exact_sensitivity(model, params, x, setting.counts)
    number = x.size * vocabulary
    return int(est.totals.sum()), round(float(share) * number), number


@functools.cache
def _apply(model: nn.Module) -> Callable[..., Any]:
    """One function object per model, so that nothing is compiled twice."""
    return model.apply


def _listed(values: Any) -> Any:
    """Nested lists, None for what is not finite: a model that diverged."""
    nested = values if isinstance(values, float | list) else np.asarray(values, float).tolist()
    if isinstance(nested, list):
        return [_listed(each) for each in nested]
    return nested if math.isfinite(nested) else None
