"""What a measurement is made of: its spec, the job that applies it to examples, and the result.

The spec is static and hashable, so that programs are compiled once per spec. The job holds the
arrays, the devices and the sizes of batches. All three ways to measure (every position, random
positions, single draws by whole passes) take a job.
"""

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
from jaxsens.core.runtime import REPLICATED
from jaxsens.core.tracing import traced_once
from jaxsens.measurement.batching import (
    BatchPlan,
    make_draw_plan,
    make_plan,
    make_reuse_plan,
    with_smaller_chunk,
)
from jaxsens.measurement.fast_convolutions import with_fast_convolutions
from jaxsens.measurement.metrics import Metric
from jaxsens.measurement.stored import StoredExamples
from jaxsens.perturbations.grids import Position
from jaxsens.perturbations.perturbation import Perturbation

#: Bytes of examples in a file that are read for one call.
_READ_BYTES = 64 << 20

#: `apply_fn(params, x) -> logits`, or `apply_fn(params, x, context)`; Flax's own `apply` is typed
#: to return anything.
ApplyFn = Callable[..., Any]
#: What the model needs beside `x` and no edit touches: nothing, or one pytree of (n, …) arrays.
Context = tuple[Any, ...]
#: Called now and then with (examples or draws done, all of them, running mean).
ProgressCallback = Callable[[int, int, float], None]


@dataclass(frozen=True)
class MeasurementSpec:
    """What is measured, whatever the examples: the static, hashable half of a measurement.

    Attributes:
      apply_fn: the model.
      perturbation: the window edit.
      metric: what counts as a change of the output.
      num_samples: S, the draws at each position.
      exact: whether the S draws are all replacements of a finite edit, each once.
    """

    apply_fn: ApplyFn
    perturbation: Perturbation
    metric: Metric
    num_samples: int
    exact: bool

    @property
    def model(self) -> ApplyFn:
        """`apply_fn` for programs: traced once for inputs of the same shapes."""
        return traced_once(self.apply_fn)

    @property
    def whole_pass(self) -> ApplyFn:
        """The same as whole passes compute it, of which no derivative is taken."""
        return with_fast_convolutions(self.model)

    def edited_window(
        self, key: PRNGKeyArray, x: Array, example: Position, position: Position, sample: Position,
        pool: Array | None,
    ) -> Array:  # fmt: skip
        """The new entries of the window in draw (example, position, sample).

        Args:
          key: the key of the measurement.
          x: one example.
          example: its id.
          position: which window.
          sample: the number of the draw at this position.
          pool: all examples, for edits that borrow from another one.
        """
        if self.exact:
            return self.perturbation.replacement(sample, x, position)
        for index in (example, position, sample):
            key = jax.random.fold_in(key, index)
        return self.perturbation.window(key, x, position, pool=pool, example=example)

    def edited_input(
        self, key: PRNGKeyArray, x: Array, example: Position, position: Position, sample: Position,
        pool: Array | None,
    ) -> Array:  # fmt: skip
        """The perturbed example of draw (example, position, sample); as for `edited_window`."""
        window = self.edited_window(key, x, example, position, sample, pool)
        return self.perturbation.put(x, window, position)

    def edited_inputs(
        self, key: PRNGKeyArray, x: Shaped[Array, "B ..."], draws: Int[Array, "B 3"],
        pool: Array | None,
    ) -> Shaped[Array, "B ..."]:  # fmt: skip
        """The perturbed examples of draws (example, position, sample), one draw of each of x."""

        def of_draw(x_i, draw):
            example, position, sample = draw
            return self.edited_input(key, x_i, example, position, sample, pool)

        return jax.vmap(of_draw)(x, draws)

    def change(self, clean: Array, perturbed: Array) -> Float[Array, ""]:
        """The metric of two outputs of one example; nan where an output is not finite.

        A compiled program cannot raise: the host looks for nan and raises there.
        """
        finite = jnp.isfinite(clean).all() & jnp.isfinite(perturbed).all()
        return jnp.where(finite, self.metric(clean, perturbed), jnp.nan)

    def decided_change(
        self, clean: Array, perturbed: Array, doubt: Bool[Array, ""], rounding: float
    ) -> Float[Array, ""]:
        """The metric of two outputs that reuse gave; nan where only a whole pass can decide.

        Args:
          clean: the output of the example.
          perturbed: the output of an edit of it.
          doubt: whether reuse itself does not trust the second.
          rounding: the relative rounding error of the model's coarsest numbers, ε.
        """
        doubt |= self.metric.is_close(clean, perturbed, rounding**0.75)
        return jnp.where(doubt, jnp.nan, self.change(clean, perturbed))


@dataclass(frozen=True)
class Reuse:
    """How clean values that an edit cannot reach are reused (`jaxsens.incremental`).

    Attributes:
      num_position_groups: into how many groups of consecutive positions an example is cut.
      max_batch: the most edits that fit through the model at once.
      max_gradient_batch: the most edits that fit through it and back at once.
      max_examples: the most examples whose clean values fit into memory at once.
      relative_cost: operations of an edit as a share of those of a whole pass.
      rounding: the relative rounding error of the model's coarsest numbers, ε.
      is_required: whether incremental=True was asked for: what cannot be reused raises then.
    """

    num_position_groups: int
    max_batch: int
    max_gradient_batch: int
    max_examples: int
    relative_cost: float
    rounding: float
    is_required: bool


@dataclass(frozen=True)
class DrawReuse:
    """How clean values are reused by draws at random positions, each of one edit.

    Attributes:
      max_batch: the most edits that fit through the model at once.
      max_examples: the most examples whose clean values fit into memory at once.
      clean_cost: operations of a clean pass with all that edits take from it, in whole passes.
      edit_cost: operations of one edit, in whole passes.
      rounding: the relative rounding error of the model's coarsest numbers, ε.
      is_required: whether incremental=True was asked for: what cannot be reused raises then.
    """

    max_batch: int
    max_examples: int
    clean_cost: float
    edit_cost: float
    rounding: float
    is_required: bool


@dataclass(frozen=True)
class MeasurementJob:
    """A spec, the examples it is measured on, and where and in what batches that happens.

    Attributes:
      spec: what is measured.
      params: the model's parameters, on every device.
      x: (n, …) the examples, on the host or in a file.
      context: what the model needs beside them.
      mask: (n, T), true at the positions to measure.
      example_ids: (n,) the numbers that stand for the examples in the keys of their draws.
      key: the key of the measurement.
      mesh: this process's devices.
      max_batch: the most inputs that fit through the model at once, on one device.
      reuse: how clean values are reused; None for whole forward passes.
      progress: what to call with the progress, if anything.
      draw_reuse: how draws at random positions reuse them; None for whole forward passes.
      precision: of matrix products.
    """

    spec: MeasurementSpec
    params: Any
    x: Shaped[np.ndarray, "n ..."] | StoredExamples
    context: Context
    mask: Bool[np.ndarray, "n T"]
    example_ids: Int[np.ndarray, " n"]
    key: PRNGKeyArray
    mesh: Mesh
    max_batch: int
    reuse: "Reuse | None"
    progress: ProgressCallback | None
    draw_reuse: "DrawReuse | None" = None
    precision: runtime.Precision = runtime.PRECISION

    @functools.cached_property
    def pool(self) -> Array | None:
        """All examples on every device, for edits that borrow from another example."""
        if not self.spec.perturbation.needs_pool:
            return None
        return runtime.place(self.x[:], self.mesh, REPLICATED)

    @functools.cached_property
    def seed(self) -> tuple[int, ...]:
        """The words of the key."""
        return tuple(int(word) for word in np.ravel(jax.random.key_data(self.key)))

    @property
    def identity(self) -> tuple[Any, ...]:
        """What decides the results of calls, beside the examples; see `jaxsens.core.call_log`."""
        return (
            self.spec.perturbation, self.spec.metric.name, self.spec.num_samples, self.spec.exact,
            jax.tree.leaves(self.params), self.x.shape, self.mask, self.example_ids, self.seed,
            self.mesh.size, jax.process_count(), runtime.num_concurrent_calls(self.mesh),
            self.max_batch, self.reuse, self.draw_reuse, self.precision,
        )  # fmt: skip

    @functools.cached_property
    def counts(self) -> Int[np.ndarray, "n T"]:
        """Draws at every position of every example, if all are measured."""
        return self.mask * self.spec.num_samples

    @functools.cached_property
    def unmasked(self) -> Int[np.ndarray, "n T"]:
        """The positions of each example, those to measure first."""
        if self.mask.all():
            return np.broadcast_to(np.arange(self.mask.shape[1]), self.mask.shape)
        return np.argsort(~self.mask, axis=1, kind="stable")

    @property
    def plan(self) -> BatchPlan:
        """How the exhaustive measurement is cut into batches."""
        if not isinstance(self.x, StoredExamples):
            return self._plan
        return with_smaller_chunk(self._plan, _READ_BYTES, self.x.example_bytes)

    @property
    def _plan(self) -> BatchPlan:
        num_positions, samples = self.mask.shape[1], self.spec.num_samples
        if self.reuse is None:
            return make_plan(self.max_batch, num_positions * samples + 1)
        num_concurrent = runtime.num_concurrent_calls(self.mesh)
        at_once = self.mesh.size * jax.process_count() * num_concurrent
        return make_reuse_plan(
            self.reuse.max_batch,
            num_positions,
            samples,
            self.reuse.num_position_groups,
            -(-len(self.x) // at_once),
            self.reuse.max_examples,
        )

    @property
    def draw_plan(self) -> BatchPlan:
        """How draws at random positions are cut into batches."""
        if self.draw_reuse is None:
            return make_draw_plan(self.max_batch)
        return make_draw_plan(self.draw_reuse.max_batch, self.draw_reuse.max_examples)

    @property
    def draw_costs(self) -> tuple[float, float]:
        """What a clean pass and one draw after it cost, in whole forward passes."""
        if self.draw_reuse is None:
            return 1.0, 1.0
        return self.draw_reuse.clean_cost, self.draw_reuse.edit_cost

    def inputs(self, examples: np.ndarray) -> tuple[np.ndarray, Context]:
        """The examples at these indices and their context."""
        return self.x[examples], jax.tree.map(lambda values: values[examples], self.context)

    @property
    def exhaustive_passes(self) -> int:
        """Forward passes of the exhaustive mode: every edit, and each clean example once."""
        return int(self.mask.sum()) * self.spec.num_samples + len(self.x)

    @property
    def exhaustive_cost(self) -> int:
        """What the exhaustive mode costs, in whole forward passes."""
        relative_cost = self.reuse.relative_cost if self.reuse else 1.0
        return math.ceil(self.exhaustive_passes * relative_cost)

    def report(self, done: int, total: int, mean: float) -> None:
        """Tells the caller how far the measurement is."""
        if self.progress is not None:
            self.progress(done, total, mean)


@dataclass(frozen=True)
class Measurement:
    """Totals and counts of the draws, and how they were made.

    Attributes:
      totals: (n, T) the sum of changes at every position of every example.
      counts: (n, T) the number of draws there.
      num_passes: as in `Provenance`.
      positions: which positions were measured.
      incremental: whether clean values were reused.
      self_check: "passed" or "failed" where reuse was compared with whole passes, else "none".
    """

    totals: Float[np.ndarray, "n T"]
    counts: Int[np.ndarray, "n T"]
    num_passes: int
    positions: Literal["all", "random"]
    incremental: bool = False
    self_check: Literal["passed", "failed", "none"] = "none"


class NonFiniteError(ValueError):
    """An output of the model, or the metric of two outputs, is nan or infinite."""


def check_finite(changes: Float[np.ndarray, "n T"], example_ids: np.ndarray) -> None:
    """Raises `NonFiniteError`, which names the first example that has a non-finite change."""
    finite = np.isfinite(changes).all(axis=1)
    if finite.all():
        return
    raise NonFiniteError(
        "the model's logits, or the metric of them, are not finite for example "
        f"{int(example_ids[np.argmin(finite)])} or an edit of it; check the parameters and the "
        "scale of the inputs"
    )
