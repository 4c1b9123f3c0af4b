"""How sharpness is measured: every draw of the weights on every example.

One jitted program draws a block of copies of the weights, another takes a chunk of examples through
all of them. Their static shapes depend on the model, S and the byte budgets alone: a remainder is
padded and the padding skipped, so that a model is compiled once whatever the number of examples.

A perturbed pass of its own kind may look at its whole batch (BatchNorm in training mode). It gets
the same batches for any cut of the work, without padding: whole batches are dealt out to the
devices, and the examples that are left form a smaller batch, which is compiled by itself.

The copies go through the model one after another, the clean one first. A model vmapped over its
weights would have grouped convolutions, which made a CNN 3.5 times slower on a CPU.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from jaxsens.core import runtime
from jaxsens.core.runtime import SAME, SPLIT
from jaxsens.measurement import metrics
from jaxsens.measurement.batching import MAX_CHUNK, Plan
from jaxsens.measurement.jobs import ApplyFn, Progress
from jaxsens.perturbations import weight_noise
from jaxsens.perturbations.weight_noise import WeightNoise

#: `perturbed_apply_fn(params, x, key) -> logits`.
PerturbedApplyFn = Callable[[Any, Array, PRNGKeyArray], Any]

#: Bytes that the copies of the weights held at a time may take on each device.
WEIGHT_BYTES = 1 << 30

l1_change = metrics.Metric(
    "l1_change", lambda clean, perturbed: jnp.sum(jnp.abs(perturbed - clean)), 0.0
)


@dataclass(frozen=True)
class Question:
    """What is asked of the model, static and hashable; the noise is not in it.

    So a model is compiled once for all kinds and sizes of noise.
    """

    apply_fn: ApplyFn
    perturbed_apply_fn: PerturbedApplyFn | None
    selected: tuple[bool, ...]

    def outputs(
        self, params: Any, weights: list[Array], x: Array, key: PRNGKeyArray,
        draws: Int[Array, " B"], first: Int[Array, ""],
    ) -> tuple[Float[Array, "g ..."], Float[Array, "B g ..."]]:  # fmt: skip
        """Logits of a batch whose first example is `first`: clean, and with each draw."""

        def model(new):
            return weight_noise.put(params, self.selected, new)

        perturbed_apply_fn = self.perturbed_apply_fn
        if perturbed_apply_fn is None:
            # The clean pass is one more turn of the same loop: noise of size 0 changes no bit.
            outputs = lax.map(lambda new: self.apply_fn(model(new), x), weights).astype(float)
            return outputs[0], outputs[1:]

        def perturbed(turn):
            new, s = turn
            own = jax.random.fold_in(weight_noise.stream(key, s, 1), first)
            return perturbed_apply_fn(model(new), x, own)

        outputs = lax.map(perturbed, ([leaf[1:] for leaf in weights], draws))
        return self.apply_fn(params, x).astype(float), outputs.astype(float)


@dataclass(frozen=True)
class Work:
    """A question, and all that it is asked about.

    `batch`: how many consecutive examples are a batch that no cut may divide or fill up; None if
    examples do not look at each other, and the plan says how many go together.
    """

    question: Question
    noise: WeightNoise
    params: Any
    x: Shaped[np.ndarray, "n ..."]
    labels: Int[np.ndarray, " n"] | None
    num_draws: int
    key: PRNGKeyArray
    mesh: Mesh
    plan: Plan
    batch: int | None
    progress: Progress | None

    @functools.cached_property
    def block(self) -> int:
        """B: draws of the weights held at a time, in blocks of about equal length."""
        leaves = zip(jax.tree.leaves(self.params), self.question.selected, strict=True)
        copy = sum(leaf.nbytes for leaf, bit in leaves if bit)
        # While they are drawn, the noise takes as much memory as the weights.
        at_most = max(1, WEIGHT_BYTES // (2 * copy) - 1)
        return math.ceil(self.num_draws / math.ceil(self.num_draws / at_most))

    @property
    def num_passes(self) -> int:
        """Forward passes: every draw, and the clean weights once per block."""
        return len(self.x) * (self.num_draws + math.ceil(self.num_draws / self.block))


@dataclass(frozen=True)
class Part:
    """Consecutive examples that are cut in one way, in batches of `together`."""

    start: int
    stop: int
    together: int
    plan: Plan

    @property
    def num_batches(self) -> int:
        """The batches of all hosts."""
        return (self.stop - self.start) // self.together

    @property
    def share(self) -> slice:
        """The examples that this process measures: whole batches."""
        batches = runtime.host_share(self.num_batches)
        return slice(*(self.start + self.together * at for at in (batches.start, batches.stop)))

    def dealt(self, num_devices: int) -> Int[np.ndarray, "devices c"]:
        """Examples of each device in the first call: batches in turn, so that all have as many."""
        batches = np.arange(self.plan.chunk // self.together * num_devices)
        rows = self.together * batches[:, None] + np.arange(self.together)[None, :]
        return rows.reshape(-1, num_devices, self.together).swapaxes(0, 1).reshape(num_devices, -1)

    def gather(self, local: Float[np.ndarray, "_ S"]) -> Float[np.ndarray, "_ S"]:
        """This process's share of a table, with those of all others."""
        batches = local.reshape(-1, self.together, local.shape[1])
        return runtime.gather_hosts(batches, self.num_batches).reshape(-1, local.shape[1])


def _parts(work: Work) -> list[Part]:
    """All examples; of batches that must stay as they are, the whole ones and a smaller last."""
    n = len(work.x)
    if work.batch is None:
        return [Part(0, n, 1, work.plan)]
    whole = n // work.batch * work.batch
    cut = [(0, whole, work.batch), (whole, n, n - whole)]
    return [Part(*each, _plan_of_batches(each[2])) for each in cut if each[0] < each[1]]


def _plan_of_batches(size: int) -> Plan:
    return Plan(chunk=max(1, MAX_CHUNK // size) * size, group=size, block=1)


def measure(work: Work) -> dict[str, Float[np.ndarray, "n S"]]:
    """The changes of every example under every draw, by name."""
    parts = _parts(work)
    num_mine = sum(part.share.stop - part.share.start for part in parts)
    gathered, done, flips = [], 0, 0.0
    for part in parts:
        share = part.share
        shape = (share.stop - share.start, work.num_draws)
        tables = {name: np.zeros(shape, np.float32) for name in _names(work.labels)}
        # One call is under way on the devices while the results of the one before are received.
        for rows, draws, changes in _one_behind(_calls(work, part)):
            valid, new = rows < share.stop, np.unique(draws)
            received = {name: np.asarray(changes[name])[valid, : len(new)] for name in tables}
            if jax.process_count() == 1:
                _check_finite(received, rows[valid], new)
            for name, table in tables.items():
                table[np.ix_(rows[valid] - share.start, new)] = received[name]
            done += received["flips"].size
            flips += float(received["flips"].sum())
            if work.progress is not None:
                work.progress(done, num_mine * work.num_draws, flips / done)
        gathered.append({name: part.gather(table) for name, table in tables.items()})
    tables = {name: np.concatenate([each[name] for each in gathered]) for name in gathered[0]}
    # A host that raised alone would leave the others waiting for its share.
    _check_finite(tables, np.arange(len(work.x)), np.arange(work.num_draws))
    return tables


def _calls(
    work: Work, part: Part
) -> Iterator[tuple[Int[np.ndarray, " c"], Int[np.ndarray, " B"], dict[str, Array]]]:
    """(rows, draws, changes) of each call; rows beyond the share and repeated draws are padding."""
    dealt, share = part.dealt(work.mesh.size), part.share
    for first in range(0, work.num_draws, work.block):
        draws = np.minimum(np.arange(first, first + work.block), work.num_draws - 1)
        placed = runtime.place(draws.astype(np.int32), work.mesh, SAME)
        weights = _draw_weights(work.noise, work.question.selected, work.params, work.key, placed)
        for start in range(share.start, share.stop, dealt.size):
            rows = start + dealt
            num_valid = (rows < share.stop).sum(axis=1).astype(np.int32)
            rows = rows.ravel()
            taken = np.minimum(rows, share.stop - 1)
            labels = None if work.labels is None else work.labels[taken]
            batch = (work.x[taken], labels, taken.astype(np.int32), num_valid)
            changes = _chunk_changes(
                work.question, part.plan, work.mesh, work.params, weights,
                *runtime.place(batch, work.mesh, SPLIT), work.key, placed,
            )  # fmt: skip
            yield rows, draws, changes


def _one_behind(calls: Iterable) -> Iterator:
    waiting = []
    for call in calls:
        waiting.append(call)
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
    question: Question,
    plan: Plan,
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
    """Changes of each example under each draw, marked by `_changes` where outputs are infinite."""
    function = functools.partial(_device_changes, question, plan)
    in_specs = (SAME, SAME, SPLIT, SPLIT, SPLIT, SPLIT, SAME, SAME)
    arguments = (params, weights, x, labels, examples, num_valid, key, draws)
    return runtime.over_devices(function, mesh, in_specs)(*arguments)


def _device_changes(question, plan, params, weights, x, labels, examples, num_valid, key, draws):
    def add_group(index, changes):
        at = index * plan.group
        x_g, labels_g, examples_g = jax.tree.map(
            lambda a: lax.dynamic_slice_in_dim(a, at, plan.group), (x, labels, examples)
        )
        clean, perturbed = question.outputs(params, weights, x_g, key, draws, examples_g[0])
        of_draws = jax.vmap(_changes, (None, 0, None))
        new = jax.vmap(of_draws, (0, 1, 0))(clean, perturbed, labels_g)
        return jax.tree.map(
            lambda all, group: lax.dynamic_update_slice_in_dim(all, group, at, axis=0), changes, new
        )

    num_groups = (num_valid[0] + plan.group - 1) // plan.group
    zeros = jnp.zeros((plan.chunk, len(draws)), jnp.float32)
    return lax.fori_loop(0, num_groups, add_group, dict.fromkeys(_names(labels), zeros))


def _names(labels: Any) -> list[str]:
    return ["flips", "l1", "squared"] if labels is None else ["flips", "l1", "squared", "loss"]


def _changes(
    clean: Float[Array, "*C"], perturbed: Float[Array, "*C"], label: Int[Array, ""] | None
) -> dict[str, Float[Array, ""]]:
    """All changes of one example; nan where a clean logit, inf where another is not finite."""
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
    """Raises ValueError, naming example and draw, for marked changes."""
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
