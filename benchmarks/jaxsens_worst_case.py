"""The side of jaxsens in the suite "worst-case", and the inputs of all sides."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

import jaxsens
from benchmarks.frame import Row
from benchmarks.worst_case_cell import Job, timed_row


def features(weights: jax.Array, x: jax.Array) -> jax.Array:
    """softmax(X W Xᵀ/√d) X, as a model writes it."""
    logits = (x @ weights) @ x.swapaxes(1, 2) / math.sqrt(x.shape[-1])
    return jax.nn.softmax(logits) @ x


def write_inputs(job: Job) -> Row:
    """Words of norm √d, weights N(0, 1/d), and the starts that `worst_case` will draw."""
    rng = np.random.default_rng(job.seed)
    x = rng.normal(size=(job.num_examples, job.num_words, job.width))
    x = (x / np.linalg.norm(x, axis=-1, keepdims=True) * job.radius).astype(np.float32)
    weights = rng.normal(size=(job.width, job.width)) / math.sqrt(job.width)

    def start(example: int, number: int) -> jax.Array:
        key = jax.random.key(job.seed)
        for index in (example, 0, number):
            key = jax.random.fold_in(key, index)
        return jaxsens.Ball(job.radius)(key, jnp.asarray(x[example, 0]))

    starts = [[start(i, s) for s in range(job.num_starts)] for i in range(job.num_examples)]
    np.savez(job.inputs, x=x, weights=weights.astype(np.float32), starts=np.array(starts))
    return {}


def measure(job: Job) -> Row:
    """`worst_case` as it comes."""
    return _measure(job, incremental="auto")


def measure_plain(job: Job) -> Row:
    """A whole pass for every step."""
    return _measure(job, incremental=False)


def _measure(job: Job, *, incremental: bool | Literal["auto"]) -> Row:
    x, weights, _ = job.load()
    ball = jaxsens.Perturbation(jaxsens.Tokens(), jaxsens.Ball(job.radius))

    reused: list[bool] = []

    def climb() -> float:
        found = jaxsens.worst_case(
            features, weights, x, ball, key=jax.random.key(job.seed), positions=[0],
            num_starts=job.num_starts, num_steps=job.num_steps, incremental=incremental,
        )  # fmt: skip
        reused.append(found.provenance.incremental)
        return found.mean

    return timed_row(climb, job.repeats) | {"reuse": "yes" if reused[-1] else "no"}
