"""How sharpness is measured: every draw of the weights on every example.

One jitted program draws a block of perturbed copies of the weights, another takes a chunk of
examples through all of them. Their static shapes depend on the model, S and the byte budgets alone:
a remainder is padded and the padding skipped, so that a model is compiled once whatever the number
of examples.

A `perturbed_apply_fn` may look at its whole batch (BatchNorm in training mode). It gets the same
batches, without padding, on any number of devices and hosts: whole batches are dealt out to the
devices, and the examples that are left form a smaller batch, which is compiled by itself.

The copies go through the model one after another, the clean one first. A model vmapped over its
weights would have grouped convolutions, which made a CNN 3.5 times slower on a CPU.
"""

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import call_log, runtime
from jaxsens.core.call_log import CallLog
from jaxsens.core.runtime import REPLICATED, SPLIT
from jaxsens.measurement import dispatch, metrics
from jaxsens.measurement.batching import MAX_CHUNK, BatchPlan
from jaxsens.measurement.jobs import ApplyFn, ProgressCallback
from jaxsens.perturbations import weight_noise
from jaxsens.perturbations.weight_noise import WeightNoise

#: `perturbed_apply_fn(params, x, key) -> logits`.
PerturbedApplyFn = Callable[[Any, Array, PRNGKeyArray], Any]

#: Bytes that the copies of the weights may take on each device at the same time.
WEIGHT_BYTES = 1 << 30

l1_change = metrics.Metric(
    "l1_change", lambda clean, perturbed: jnp.sum(jnp.abs(perturbed - clean)), 0.0
)


@dataclass(frozen=True)
class SharpnessSpec:
    """What is measured, static and hashable.

    The noise is no part of it, so that a model is compiled once for all kinds and sizes of noise.

    Attributes:
      apply_fn: the model.
      perturbed_apply_fn: another function for the perturbed pass, if there is one.
      selected: for each leaf of the parameters whether it is perturbed.
    """

    apply_fn: ApplyFn
    perturbed_apply_fn: PerturbedApplyFn | None
    selected: tuple[bool, ...]

    def outputs(
        self, params: Any, weights: list[Array], x: Array, key: PRNGKeyArray,
        draws: Int[Array, " B"], first: Int[Array, ""],
    ) -> tuple[Float[Array, "g ..."], Float[Array, "B g ..."]]:  # fmt: skip
        """Logits of a batch of g examples: clean, and with each of the B draws of the weights.

        Args:
          params: the clean parameters.
          weights: the selected leaves, each (1 + B, …): clean, then with the noise of each draw.
          x: the batch.
          key: the key of the measurement.
          draws: the numbers of the draws.
          first: the index of the batch's first example, for the key of a `perturbed_apply_fn`.
        """

        def model(new):
            return weight_noise.with_weights(params, self.selected, new)

        perturbed_apply_fn = self.perturbed_apply_fn
        if perturbed_apply_fn is None:
            # The clean pass is one more turn of the same loop: noise of size 0 changes no bit.
            outputs = lax.map(lambda new: self.apply_fn(model(new), x), weights).astype(float)
            return outputs[0], outputs[1:]

        def perturbed(turn):
            new, s = turn
            pass_key = jax.random.fold_in(weight_noise.draw_key(key, s, 1), first)
            return perturbed_apply_fn(model(new), x, pass_key)

        outputs = lax.map(perturbed, ([leaf[1:] for leaf in weights], draws))
        return self.apply_fn(params, x).astype(float), outputs.astype(float)


@dataclass(frozen=True)
class SharpnessJob:
    """A spec, the noise, the examples it is measured on, and where and in what batches.

    Attributes:
      spec: what is measured.
      noise: the noise on the weights.
      params: the clean parameters, on every device.
      x: (n, …) the examples, on the host.
      labels: (n,) their classes, or None if no loss is wanted.
      num_draws: S, the draws of the weights.
      key: the key of the measurement.
      mesh: this process's devices.
      plan: how examples are cut into batches, if they do not see each other.
      fixed_batch: how many consecutive examples a `perturbed_apply_fn` sees together, in batches
        that may neither be divided nor padded; None without such a function.
      progress: what to call with the progress, if anything.
    """

    spec: SharpnessSpec
    noise: WeightNoise
    params: Any
    x: Shaped[np.ndarray, "n ..."]
    labels: Int[np.ndarray, " n"] | None
    num_draws: int
    key: PRNGKeyArray
    mesh: Mesh
    plan: BatchPlan
    fixed_batch: int | None
    progress: ProgressCallback | None

    @functools.cached_property
    def block(self) -> int:
        """B: draws of the weights that are in memory together, in blocks of about equal length."""
        leaves = zip(jax.tree.leaves(self.params), self.spec.selected, strict=True)
        copy = sum(leaf.nbytes for leaf, bit in leaves if bit)
        # While they are drawn, the noise takes as much memory as the weights.
        at_most = max(1, WEIGHT_BYTES // (2 * copy) - 1)
        return math.ceil(self.num_draws / math.ceil(self.num_draws / at_most))

    @property
    def identity(self) -> tuple[Any, ...]:
        """What decides the results of calls, beside the examples; see `jaxsens.core.call_log`."""
        return (
            self.noise, self.spec.selected, self.spec.perturbed_apply_fn,
            jax.tree.leaves(self.params), self.x.shape, self.labels, self.num_draws, self.block,
            jax.random.key_data(self.key), self.mesh.size, jax.process_count(),
            jax.process_index(), self.plan, self.fixed_batch,
        )  # fmt: skip

    @property
    def num_passes(self) -> int:
        """Forward passes: every draw, and the clean weights once per block."""
        return len(self.x) * (self.num_draws + math.ceil(self.num_draws / self.block))


@dataclass(frozen=True)
class Part:
    """The examples from `start` to `stop`, which are cut into batches of one size."""

    start: int
    stop: int
    batch_size: int
    plan: BatchPlan

    @property
    def num_batches(self) -> int:
        """The number of batches on all hosts together."""
        return (self.stop - self.start) // self.batch_size

    @property
    def share(self) -> slice:
        """The examples that this process measures: whole batches."""
        batches = runtime.host_share(self.num_batches)
        return slice(*(self.start + self.batch_size * at for at in (batches.start, batches.stop)))

    def dealt(self, num_devices: int) -> Int[np.ndarray, "devices c"]:
        """Examples of each device in the first call, counted from its first example.

        Devices get batches in turn, so that all have about as many.
        """
        size = self.batch_size
        batches = np.arange(self.plan.chunk // size * num_devices)
        examples = size * batches[:, None] + np.arange(size)[None, :]
        return examples.reshape(-1, num_devices, size).swapaxes(0, 1).reshape(num_devices, -1)

    def gather(self, local: Float[np.ndarray, "_ S"]) -> Float[np.ndarray, "_ S"]:
        """A table of all processes' examples from the tables of each one's own."""
        batches = local.reshape(-1, self.batch_size, local.shape[1])
        return runtime.gather_hosts(batches, self.num_batches).reshape(-1, local.shape[1])


def _parts(job: SharpnessJob) -> list[Part]:
    """All examples in one part or, with a fixed batch, the whole batches and a smaller last one."""
    n = len(job.x)
    if job.fixed_batch is None:
        return [Part(0, n, 1, job.plan)]
    whole = n // job.fixed_batch * job.fixed_batch
    cut = [(0, whole, job.fixed_batch), (whole, n, n - whole)]
    return [Part(*each, _plan_of_batches(each[2])) for each in cut if each[0] < each[1]]


def _plan_of_batches(size: int) -> BatchPlan:
    return BatchPlan(chunk=max(1, MAX_CHUNK // size) * size, group=size, block=1)


def measure(job: SharpnessJob) -> dict[str, Float[np.ndarray, "n S"]]:
    """The changes of every example under every draw of the weights, (n, S), by kind of change."""
    parts = _parts(job)
    num_mine = sum(part.share.stop - part.share.start for part in parts)
    gathered, done, flips = [], 0, 0.0
    calls = call_log.begin(lambda: ("sharpness", job.identity))
    for part in parts:
        share = part.share
        shape = (share.stop - share.start, job.num_draws)
        tables = {name: np.zeros(shape, np.float32) for name in _kinds_of_change(job.labels)}
        # One call runs on the devices while the results of the one before are received.
        for examples, slots, draws, found in _one_behind(_calls(job, part, calls)):
            received, new = found, np.unique(draws)
            if slots is not None:
                received = {name: np.asarray(found[name])[slots, : len(new)] for name in tables}
                calls.add(received)
            if jax.process_count() == 1:
                _check_finite(received, examples, new)
            for name, table in tables.items():
                table[np.ix_(examples - share.start, new)] = received[name]
            done += received["flips"].size
            flips += float(received["flips"].sum())
            if job.progress is not None:
                job.progress(done, num_mine * job.num_draws, flips / done)
        gathered.append({name: part.gather(table) for name, table in tables.items()})
    tables = {name: np.concatenate([each[name] for each in gathered]) for name in gathered[0]}
    # A host that raised alone would leave the others waiting for its share.
    _check_finite(tables, np.arange(len(job.x)), np.arange(job.num_draws))
    return tables


def _calls(
    job: SharpnessJob, part: Part, calls: CallLog
) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray, dict[str, Any]]]:
    """Examples of each call, the slots of its results in which they are, its draws, its results.

    Draws may be repeated to fill the block. Results that were known have no slots: they are NumPy
    arrays of these examples and draws alone. Where results are kept, calls are cut to what may be
    lost, at the end of a group: groups stay the same, however long the calls are.
    """
    dealt, share, plan = part.dealt(job.mesh.size), part.share, part.plan
    most = plan.chunk // plan.group
    num_timed = dispatch.NUM_TIMED if calls.is_kept and most > 1 else 0
    for first in range(0, job.num_draws, job.block):
        draws = np.minimum(np.arange(first, first + job.block), job.num_draws - 1)
        placed = runtime.place(draws.astype(np.int32), job.mesh, REPLICATED)
        weights, start = None, share.start
        while start < share.stop:
            examples = (start + dealt).ravel()
            if (known := calls.recall()) is not None:
                stop = start + len(known["flips"])
                yield examples[examples < stop], None, draws, known
                start = stop
                continue
            if weights is None:
                weights = _draw_weights(job.noise, job.spec.selected, job.params, job.key, placed)
            num_groups = len(dealt) * (1 if num_timed else most)
            stop = min(share.stop, start + plan.group * num_groups)
            num_valid = (start + dealt < stop).sum(axis=1).astype(np.int32)
            padded = np.minimum(examples, share.stop - 1)
            labels = None if job.labels is None else job.labels[padded]
            chunk = (job.x[padded], labels, padded.astype(np.int32), num_valid)
            started = time.perf_counter()
            changes = _chunk_changes(
                job.spec, plan, job.mesh, job.params, weights,
                *runtime.place(chunk, job.mesh, SPLIT), job.key, placed,
            )  # fmt: skip
            if num_timed:
                jax.block_until_ready(changes)
                seconds, num_timed = time.perf_counter() - started, num_timed - 1
                most = min(plan.chunk // plan.group, dispatch.groups_per_call(seconds))
            slots = np.flatnonzero(examples < stop)
            yield examples[slots], slots, draws, changes
            start = stop


def _one_behind(results: Iterable) -> Iterator:
    """The same items, each given only after the next one has been asked for."""
    waiting = []
    for result in results:
        waiting.append(result)
        if len(waiting) > 1:
            yield waiting.pop(0)
    yield from waiting


@functools.partial(jax.jit, static_argnums=(0, 1))
def _draw_weights(
    noise: WeightNoise,
    selected: tuple[bool, ...],
    params: Any,
    key: PRNGKeyArray,
    draws: Int[Array, " B"],
) -> list[Array]:
    """The selected leaves, each (1 + B, …): clean, then with the noise of each draw."""
    xi = lax.map(lambda s: weight_noise.directions(key, s, params), draws)
    noisy = jax.vmap(lambda xi: weight_noise.perturb(noise, xi, params, selected))(xi)
    clean = [leaf for leaf, bit in zip(jax.tree.leaves(params), selected, strict=True) if bit]
    return [jnp.concatenate([a[None], b]) for a, b in zip(clean, noisy, strict=True)]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _chunk_changes(
    spec: SharpnessSpec,
    plan: BatchPlan,
    mesh: Mesh,
    params: Any,
    weights: list[Array],
    x: Shaped[Array, "c ..."],
    labels: Int[Array, " c"] | None,
    examples: Int[Array, " c"],
    num_valid: Int[Array, " devices"],
    key: PRNGKeyArray,
    draws: Int[Array, " B"],
) -> dict[str, Float[Array, "c B"]]:
    """Changes of each example under each draw; `_changes` marks outputs that are not finite."""
    function = functools.partial(_device_changes, spec, plan)
    in_specs = (REPLICATED, REPLICATED, SPLIT, SPLIT, SPLIT, SPLIT, REPLICATED, REPLICATED)
    arguments = (params, weights, x, labels, examples, num_valid, key, draws)
    return runtime.over_devices(function, mesh, in_specs)(*arguments)


def _device_changes(spec, plan, params, weights, x, labels, examples, num_valid, key, draws):
    def add_group(index, changes):
        at = index * plan.group
        x_g, labels_g, examples_g = jax.tree.map(
            lambda a: lax.dynamic_slice_in_dim(a, at, plan.group), (x, labels, examples)
        )
        clean, perturbed = spec.outputs(params, weights, x_g, key, draws, examples_g[0])
        of_draws = jax.vmap(_changes, (None, 0, None))
        new = jax.vmap(of_draws, (0, 1, 0))(clean, perturbed, labels_g)
        return jax.tree.map(
            lambda all, group: lax.dynamic_update_slice_in_dim(all, group, at, axis=0), changes, new
        )

    num_groups = (num_valid[0] + plan.group - 1) // plan.group
    zeros = jnp.zeros((plan.chunk, len(draws)), jnp.float32)
    return lax.fori_loop(0, num_groups, add_group, dict.fromkeys(_kinds_of_change(labels), zeros))


def _kinds_of_change(labels: Any) -> list[str]:
    return ["flips", "l1", "squared"] if labels is None else ["flips", "l1", "squared", "loss"]


def _changes(
    clean: Float[Array, "*C"], perturbed: Float[Array, "*C"], label: Int[Array, ""] | None
) -> dict[str, Float[Array, ""]]:
    """All kinds of change of one example.

    All are nan if a clean logit is not finite, and all are inf if only a perturbed one is not.
    """
    changes = {
        "flips": metrics.label_flip(clean, perturbed),
        "l1": l1_change(clean, perturbed),
        "squared": metrics.squared_change(clean, perturbed),
    }
    if label is not None:
        increase = _cross_entropy(perturbed, label) - _cross_entropy(clean, label)
        # The compiler may round the two losses of equal logits differently.
        changes["loss"] = jnp.where(changes["l1"] == 0, 0.0, increase).astype(jnp.float32)
    known = jnp.isfinite(clean).all()
    finite = known & jnp.isfinite(perturbed).all()
    mark = jnp.where(known, jnp.inf, jnp.nan).astype(jnp.float32)
    return {name: jnp.where(finite, change, mark) for name, change in changes.items()}


def _cross_entropy(logits: Float[Array, "*C"], label: Int[Array, ""]) -> Float[Array, ""]:
    scores = logits.ravel()
    if scores.size == 1:
        # One score is the log-odds of class 1 against class 0.
        scores = jnp.concatenate([jnp.zeros_like(scores), scores])
    return -jax.nn.log_softmax(scores)[label]


def _check_finite(
    tables: dict[str, Float[np.ndarray, "c B"]], examples: np.ndarray, draws: np.ndarray
) -> None:
    """Raises ValueError, which names example and draw, if `_changes` marked a change."""
    # A difference of finite logits may still overflow when it is squared.
    total = sum(tables.values())
    if np.isfinite(total).all():
        return
    row, column = np.argwhere(~np.isfinite(total))[0]
    example, draw = int(examples[row]), int(draws[column])
    if np.isnan(tables["flips"][row, column]):
        raise ValueError(
            f"the model's logits are not finite for example {example}, before any noise; check the "
            "parameters and the scale of the inputs"
        )
    raise ValueError(
        f"the model's logits, or their change, are not finite for example {example} under draw "
        f"{draw} of the weights; make the noise smaller, or exclude leaves with the mask"
    )
