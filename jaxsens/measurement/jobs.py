"""What a measurement is made of: the question, what it is asked about, and what comes out."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import runtime
from jaxsens.core.runtime import SAME
from jaxsens.measurement.batching import Plan, make_plan, make_reuse_plan
from jaxsens.measurement.metrics import Metric
from jaxsens.perturbations.grids import Position
from jaxsens.perturbations.perturbation import Perturbation

#: `apply_fn(params, x) -> logits`, or `apply_fn(params, x, context)`; Flax's own `apply` is typed
#: to return anything.
ApplyFn = Callable[..., Any]
#: What the model needs beside `x` and no edit touches: nothing, or one pytree of (n, …) arrays.
Context = tuple[Any, ...]
#: Called now and then with (examples or draws done, all of them, running mean).
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Question:
    """What is asked of the model: the static, hashable half of a measurement."""

    apply_fn: ApplyFn
    perturbation: Perturbation
    metric: Metric
    num_samples: int
    exact: bool

    def window(
        self, key: PRNGKeyArray, x: Array, example: Position, position: Position, sample: Position,
        pool: Array | None,
    ) -> Array:  # fmt: skip
        """Draw (example, position, sample): the new entries of the window."""
        if self.exact:
            return self.perturbation.replacement(sample, x, position)
        for index in (example, position, sample):
            key = jax.random.fold_in(key, index)
        return self.perturbation.window(key, x, position, pool=pool, example=example)

    def edited(
        self, key: PRNGKeyArray, x: Array, example: Position, position: Position, sample: Position,
        pool: Array | None,
    ) -> Array:  # fmt: skip
        """Draw (example, position, sample) of the perturbed input."""
        window = self.window(key, x, example, position, sample, pool)
        return self.perturbation.put(x, window, position)

    def change(self, clean: Array, perturbed: Array) -> Float[Array, ""]:
        """The metric; nan where an output is not finite, which the host looks for."""
        finite = jnp.isfinite(clean).all() & jnp.isfinite(perturbed).all()
        return jnp.where(finite, self.metric(clean, perturbed), jnp.nan)

    def decided_change(
        self, clean: Array, perturbed: Array, doubt: Bool[Array, ""], rounding: float
    ) -> Float[Array, ""]:
        """The metric; nan where rounding may decide, which is for whole passes to say."""
        doubt |= self.metric.is_close(clean, perturbed, rounding**0.75)
        return jnp.where(doubt, jnp.nan, self.change(clean, perturbed))


@dataclass(frozen=True)
class Reuse:
    """How what an edit cannot reach is reused: `jaxsens.incremental`.

    Attributes:
      buckets: into how many buckets positions are cut.
      rows: edits that fit through the model at once.
      examples: examples whose clean values fit into memory at once.
      cost: operations of an edit as a share of those of a whole pass.
      rounding: the relative rounding error of the coarsest numbers of the model.
    """

    buckets: int
    rows: int
    examples: int
    cost: float
    rounding: float


@dataclass(frozen=True)
class Work:
    """A question, and all that it is asked about."""

    question: Question
    params: Any
    x: Shaped[np.ndarray, "n ..."]
    context: Context
    mask: Bool[np.ndarray, "n T"]
    names: Int[np.ndarray, " n"]
    key: PRNGKeyArray
    mesh: Mesh
    rows: int
    reuse: "Reuse | None"
    progress: Progress | None

    @functools.cached_property
    def pool(self) -> Array | None:
        """All examples on every device, for edits that borrow from another example."""
        if not self.question.perturbation.needs_pool:
            return None
        return runtime.place(self.x, self.mesh, SAME)

    @functools.cached_property
    def seed(self) -> tuple[int, ...]:
        """The words of the key."""
        return tuple(int(word) for word in np.ravel(jax.random.key_data(self.key)))

    @functools.cached_property
    def counts(self) -> Int[np.ndarray, "n T"]:
        """Draws at every position of every example, if all are measured."""
        return self.mask * self.question.num_samples

    @functools.cached_property
    def unmasked(self) -> Int[np.ndarray, "n T"]:
        """The positions of each example, those to measure first."""
        return np.argsort(~self.mask, axis=1, kind="stable")

    @property
    def plan(self) -> Plan:
        """How the exhaustive measurement is cut."""
        num_positions, samples = self.mask.shape[1], self.question.num_samples
        if self.reuse is None:
            return make_plan(self.rows, num_positions * samples)
        at_once = self.mesh.size * jax.process_count() * runtime.num_streams(self.mesh)
        return make_reuse_plan(
            self.reuse.rows,
            num_positions,
            samples,
            self.reuse.buckets,
            -(-len(self.x) // at_once),
            self.reuse.examples,
        )

    def inputs(self, rows: np.ndarray) -> tuple[np.ndarray, Context]:
        """These examples and their context."""
        return self.x[rows], jax.tree.map(lambda values: values[rows], self.context)

    @property
    def exhaustive_passes(self) -> int:
        """Forward passes of the exhaustive mode: every edit, and each clean example once."""
        return int(self.mask.sum()) * self.question.num_samples + len(self.x)

    @property
    def exhaustive_cost(self) -> int:
        """What the exhaustive mode costs, in whole forward passes."""
        return math.ceil(self.exhaustive_passes * (self.reuse.cost if self.reuse else 1.0))

    def report(self, done: int, total: int, mean: float) -> None:
        """Tells the caller how far it is."""
        if self.progress is not None:
            self.progress(done, total, mean)


@dataclass(frozen=True)
class Measurement:
    """Totals and counts of the draws, and how they were made.

    Attributes:
      totals: the sum of changes at every position of every example.
      counts: the number of draws there.
      num_passes: forward passes, or edits by reuse, of the measurement itself; those that check
        reuse, or decide what it leaves open, do not count.
      positions: which of them were measured.
      incremental: whether by reuse.
      self_check: "passed" or "failed" where reuse was compared with whole passes, else "none".
    """

    totals: Float[np.ndarray, "n T"]
    counts: Int[np.ndarray, "n T"]
    num_passes: int
    positions: Literal["all", "random"]
    incremental: bool = False
    self_check: Literal["passed", "failed", "none"] = "none"


class NonFiniteError(ValueError):
    """An output of the model, or the metric of it, is not a number."""


def check_finite(changes: Float[np.ndarray, "n T"], examples: np.ndarray) -> None:
    """Raises ValueError, naming the example, if a change is not a number."""
    finite = np.isfinite(changes).all(axis=1)
    if finite.all():
        return
    raise NonFiniteError(
        "the model's logits, or the metric of them, are not finite for example "
        f"{int(examples[np.argmin(finite)])} or an edit of it; check the parameters and the scale "
        "of the inputs"
    )
