"""Single draws (example, position, sample) of one job, with one clean pass for those of an example.

An item is an example with some of its draws, at most `MAX_DRAWS`: items are dealt out to calls as
examples are in the exhaustive measurement. Whole passes have the last word over reuse here too:
they make the draws that reuse leaves open, and some of the first draws are compared with them.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Float, Int

from jaxsens.core import call_log, runtime
from jaxsens.core.call_log import Arrays
from jaxsens.core.notices import warn_user
from jaxsens.core.runtime import SPLIT
from jaxsens.measurement.batching import MAX_DRAWS
from jaxsens.measurement.dispatch import run_calls
from jaxsens.measurement.draw_program import draw_changes
from jaxsens.measurement.jobs import MeasurementJob, check_finite
from jaxsens.measurement.reuse import refuse_reuse
from jaxsens.measurement.whole_passes import disagreement, entries_of, outputs_of

#: How many of the first draws are compared with whole passes.
_NUM_PROBES = 64
#: Where more than this share of the draws is left to whole passes, they make all that follow.
_MAX_DOUBTFUL = 0.2

#: Called with the changes of the draws of one call, as they come.
Report = Callable[[Float[np.ndarray, " b"]], None]


@dataclass(frozen=True)
class _Items:
    """Draws sorted by their examples, and cut into items.

    Attributes:
      draws: (B, 3) the draws, those of an example one after the other.
      first: (k,) where each item begins among them.
      counts: (k,) how many draws each item has.
    """

    draws: Int[np.ndarray, "B 3"]
    first: Int[np.ndarray, " k"]
    counts: Int[np.ndarray, " k"]

    @classmethod
    def of(cls, draws: Int[np.ndarray, "B 3"]) -> "_Items":
        at = np.arange(len(draws))
        is_new = np.append(True, draws[1:, 0] != draws[:-1, 0])
        rank = at - np.maximum.accumulate(np.where(is_new, at, 0))
        first = np.flatnonzero(rank % MAX_DRAWS == 0)
        return cls(draws, first, np.diff(np.append(first, len(draws))))

    @functools.cached_property
    def examples(self) -> Int[np.ndarray, " k"]:
        """The index of each item's example."""
        return self.draws[self.first, 0]

    def rows(self, items: np.ndarray) -> Int[np.ndarray, "c M"]:
        """The draws of some items, each padded to the same number."""
        rows = self.first[items][:, None] + np.arange(MAX_DRAWS)
        return np.minimum(rows, len(self.draws) - 1)

    def are_draws(self, items: np.ndarray) -> np.ndarray:
        """Which of `rows` are no padding."""
        return np.arange(MAX_DRAWS)[None] < self.counts[items][:, None]


class DrawEngine:
    """Makes draws of one job, batch after batch.

    Attributes:
      job: what is measured; its `draw_reuse` is None once whole passes have taken over.
      self_check: "passed" or "failed" where reuse was compared with whole passes, else "none".
    """

    def __init__(self, job: MeasurementJob):
        self.job = job
        self.self_check: Literal["passed", "failed", "none"] = "none"
        if job.draw_reuse is None:
            return
        try:
            self._trace()
        except Exception as error:
            refuse_reuse(error, is_required=job.draw_reuse.is_required)
            self._give_up_reuse()

    def _give_up_reuse(self) -> None:
        self.job = replace(self.job, draw_reuse=None)

    def _trace(self) -> None:
        """Traces the program that reuses clean values, by shapes alone; raises if it cannot be."""
        job, split = self.job, NamedSharding(self.job.mesh, SPLIT)
        num = job.draw_plan.chunk * job.mesh.size

        def of_chunk(array: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((num, *array.shape[1:]), array.dtype, sharding=split)

        draws = np.zeros((1, MAX_DRAWS, 2), np.int32)
        arrays = (job.x, job.context, job.example_ids, draws, job.example_ids)
        num_valid = jax.ShapeDtypeStruct((job.mesh.size,), np.int32, sharding=split)
        draw_changes.eval_shape(
            job.spec, job.draw_plan, job.mesh, job.params, *jax.tree.map(of_chunk, arrays),
            num_valid, job.key, job.pool,
        )  # fmt: skip

    def changes(
        self, draws: Int[np.ndarray, "B 3"], report: Report = lambda changes: None
    ) -> Float[np.ndarray, " B"]:
        """The change of each draw; the example by its index. Every process must call this."""
        if not len(draws):
            return np.zeros(0)
        order = np.argsort(draws[:, 0], kind="stable")
        found = np.zeros(len(draws))
        found[order] = self._sorted_changes(draws[order], report)
        check_finite(found[:, None], self.job.example_ids[draws[:, 0]])
        return found

    def _sorted_changes(
        self, draws: Int[np.ndarray, "B 3"], report: Report
    ) -> Float[np.ndarray, " B"]:
        items = _Items.of(draws)
        num = len(items.first)
        share = runtime.host_share(num)
        table, probed = self._of_host(items, np.arange(share.start, share.stop), report)
        if self.job.draw_reuse is not None and self.self_check == "none":
            wrong = runtime.largest_of_hosts(self._compare(items, table, probed, share.start))
            if wrong > 1:
                self._refuted(wrong)
                return self._sorted_changes(draws, report)
            self.self_check = "passed"
        changes = runtime.gather_hosts(table, num)[items.are_draws(np.arange(num))]
        doubtful = np.isnan(changes)
        if self.job.draw_reuse is None or not doubtful.any():
            return changes
        whole = DrawEngine(replace(self.job, draw_reuse=None))
        changes[doubtful] = whole.changes(draws[doubtful])
        if doubtful.mean() > _MAX_DOUBTFUL:
            self._give_up_reuse()
        return changes

    def _of_host(
        self, items: _Items, mine: np.ndarray, report: Report
    ) -> tuple[Float[np.ndarray, "k M"], dict[int, np.ndarray]]:
        """Changes of this host's items and, by reuse, outputs of some of their first draws."""
        job, plan = self.job, self.job.draw_plan
        table = np.zeros((len(mine), MAX_DRAWS), np.float32)
        probed: dict[int, np.ndarray] = {}
        to_probe: set[int] = set()
        if len(mine):
            to_probe = set(np.linspace(mine[0], mine[-1], _NUM_PROBES).astype(int).tolist())

        def send(dealt: np.ndarray, num_valid: np.ndarray) -> Any:
            ids = items.examples[dealt]
            draws = items.draws[items.rows(dealt)][..., 1:].astype(np.int32)
            counts = items.counts[dealt].astype(np.int32)
            of_chunk = (*job.inputs(ids), job.example_ids[ids], draws, counts, num_valid)
            return draw_changes(
                job.spec, plan, job.mesh, job.params,
                *runtime.place(of_chunk, job.mesh, SPLIT), job.key, job.pool,
            )  # fmt: skip

        def receive(called: np.ndarray, slots: np.ndarray, sent: Any) -> Arrays:
            changes, *outputs = sent
            found = {"changes": np.asarray(changes)[slots]}
            some = [at for at, item in enumerate(called.tolist()) if item in to_probe]
            if outputs and some and self.self_check == "none":
                found |= {"probed": called[some]}
                found |= {"outputs": np.asarray(outputs[0])[slots[some]]}
            return found

        calls = call_log.begin(lambda: ("draws", job.identity, plan, items.draws, mine))
        for called, found in run_calls(mine, plan, job.mesh, send, receive, calls):
            table[called - mine[0]] = found["changes"]
            if "probed" in found:
                probed.update(zip(found["probed"].tolist(), found["outputs"], strict=True))
            report(found["changes"][items.are_draws(called)])
        return table, probed

    def _compare(
        self, items: _Items, table: np.ndarray, probed: dict[int, np.ndarray], start: int
    ) -> float:
        """How far the outputs of probes are from those of whole passes; 1 is the most allowed."""
        # What is in doubt is made again in any case.
        some = [item for item in sorted(probed) if np.isfinite(table[item - start, 0])]
        if not some or self.job.draw_reuse is None:
            return 0.0
        draws = items.draws[items.first[some]]
        expected = np.asarray(entries_of(jnp.asarray(outputs_of(self.job, draws))))
        # Entries are kept in float32, whatever the model's own numbers are.
        rounding = max(self.job.draw_reuse.rounding, float(jnp.finfo(jnp.float32).eps))
        found = np.stack([probed[item] for item in some])
        return float(disagreement(found, expected, rounding).max())

    def _refuted(self, wrong: float) -> None:
        warn_user(
            f"reuse gave another output than a whole pass, by up to {wrong:.1f} times what "
            "rounding explains; every draw takes a whole forward pass instead. This is a fault of "
            "jaxsens: please report it with the model (incremental=False avoids this warning)"
        )
        self._give_up_reuse()
        self.self_check = "failed"
