"""A model ready to be asked about edits: clean values once per example, then edit after edit.

Positions are cut into buckets, each with windows of its own shape: where the order of positions is
an order in time, later ones leave more of the work clean.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Array, Bool, Int

from jaxsens.core.jaxprs import bytes_of, output_bytes
from jaxsens.incremental import flops
from jaxsens.incremental.attention_operation import is_marked
from jaxsens.incremental.layout import Layout, as_layout, runs
from jaxsens.incremental.propagate import prepare, propagate
from jaxsens.incremental.recognition.recognise import recognise
from jaxsens.incremental.trace import Prepare, Trace, trace, value_of
from jaxsens.incremental.values import Place
from jaxsens.perturbations.grids import Grid

#: More buckets are taken only if they save this share: each is compiled by itself.
_WORTH_A_BUCKET = 0.07
_BUCKETS = (1, 4, 8)
#: Incremental evaluation is taken if it needs less than this share of the operations: its own are
#: slower, and where it saves less (ConvMixer, DenseNet, deep ViTs) it gained nothing or lost.
_WORTHWHILE = 0.75


@dataclass(frozen=True, eq=False)
class Program:
    """A traced model and where the windows of its input lie.

    Attributes:
      trace: the model as a function of flat arguments, for one example.
      edited: the number of the input that is edited.
      buckets: for each bucket its positions and their windows.
    """

    trace: Trace
    edited: int
    buckets: tuple[tuple[Int[np.ndarray, " _"], Layout], ...]

    def clean(self, params: Any, x: Array, context: Any) -> "CleanValues":
        """All values of the model for one example."""
        values = self._values(params, x, context, prepare)
        return CleanValues(
            values,
            [
                _is_finite(value) if number in self._reachable else None
                for number, value in enumerate(values)
            ],
        )

    def forward(self, params: Any, x: Array, context: Any) -> Array:
        """The clean output, without what edits want to know besides."""
        return self._output(self._values(params, x, context, lambda *_: None))

    def _values(self, params: Any, x: Array, context: Any, prepare: Prepare) -> list[Any]:
        one = jax.tree.map(lambda a: a[None], (x, context))
        return self.trace.values(jax.tree.leaves((params, *one)), prepare)

    def output(self, clean: "CleanValues") -> Array:
        """The clean output."""
        return self._output(clean.values)

    def _output(self, values: list[Any]) -> Array:
        (output,) = self.trace.outputs
        return jnp.asarray(value_of(values, output))[0]

    @functools.cached_property
    def _reachable(self) -> set[int]:
        """The numbers of the values that depend on what is edited."""
        found = {self.edited}
        for operation in self.trace.operations:
            for part in operation.parts or (operation,):
                if found.intersection(each for each in part.inputs if isinstance(each, int)):
                    found.update(part.outputs)
        return found

    @functools.cached_property
    def rounding(self) -> float:
        """The relative rounding error of the coarsest floating-point numbers of the model."""
        floats = [a.dtype for a in self.trace.avals.values() if _is_inexact(a)]
        return max((float(jnp.finfo(dtype).eps) for dtype in floats), default=0.0)

    def edit(
        self, clean: "CleanValues", bucket: int, index: Int[Array, ""], window: Array
    ) -> tuple[Array, Bool[Array, ""]]:
        """The output with new entries in the window of the bucket's position `index`.

        Returns:
          The output, and whether it is in doubt: the difference of two infinities, or the small
          rest of two large numbers, somewhere on the way. Only a whole pass can tell then.
        """
        layout, place = self.buckets[bucket][1], Place(index)
        out, _ = propagate(self.trace, clean.values, self.edited, layout, window[None], place)
        numbers = {id(value): number for number, value in enumerate(clean.values)}
        doubt = jnp.asarray(False)
        for value in {id(value): value for value in place.trusted}.values():
            number = numbers.get(id(value))
            finite = jnp.isfinite(value).all() if number is None else clean.finite[number]
            doubt |= ~finite
        for each in place.doubts:
            doubt |= each
        return out[0], doubt


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CleanValues:
    """What a model computes of an unedited example.

    Attributes:
      values: all values of its trace, and what rules want to know besides, by their numbers.
      finite: for floating-point values whether all their entries are finite.
    """

    values: list[Any]
    finite: list[Any]


def _is_inexact(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.inexact)


def _is_finite(value: Any) -> Array | None:
    return jnp.isfinite(value).all() if _is_inexact(value) else None


def make_program(
    apply_fn: Callable, params: Any, x: Any, context: Any, grid: Grid, platform: str, buckets: int
) -> Program:
    """Traces a model for one example.

    Args:
      apply_fn: `apply_fn(params, x, *context)`.
      params: its parameters, or their shapes.
      x: one example, or its shape.
      context: a tuple of what else it takes, for one example.
      grid: where windows lie.
      platform: cpu, gpu or tpu.
      buckets: how many buckets to cut positions into.
    """
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape), a.dtype), (x, context))
    leaves, tree = jax.tree.flatten((as_shapes(params), *one))

    def flat(*arguments: Array) -> Array:
        params, x, context = jax.tree.unflatten(tree, arguments)
        return apply_fn(params, x, *context)

    traced = recognise(trace(flat, *leaves, platform=platform, is_mark=is_marked))
    layout = input_layout(grid, tuple(x.shape))
    parts = np.array_split(np.arange(len(layout.touched)), buckets)
    return Program(
        traced,
        traced.inputs[len(jax.tree.leaves(params))],
        tuple((part, _rows(layout, part)) for part in parts),
    )


def as_shapes(tree: Any) -> Any:
    """The shapes of arrays, or of what are shapes already."""
    avals = jax.tree.map(jax.typeof, tree)
    return jax.tree.map(
        lambda aval: jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type), avals
    )


def _rows(layout: Layout, rows: np.ndarray) -> Layout:
    tables = tuple(None if table is None else table[rows] for table in layout.tables)
    return Layout(layout.shape, tables, layout.touched[rows])


def input_layout(grid: Grid, shape: tuple[int, ...]) -> Layout:
    """The windows of a grid on a batch of one example."""
    window, num = grid.window_shape(shape), math.prod(grid.layout(shape))
    # A grid may look its starts up in an array of its own, and this may run while JAX traces.
    with jax.ensure_compile_time_eval():
        starts = np.array([[int(s) for s in grid.start(t, shape)] for t in range(num)])
    starts = starts.reshape(num, len(shape))
    # As `lax.dynamic_slice` has it, a negative start counts from the end, and a window that would
    # hang over the edge is moved inside.
    starts = np.where(starts < 0, starts + np.array(shape), starts)
    starts = np.clip(starts, 0, np.subtract(shape, window))
    touched = np.ones((num, 1), bool)
    for axis, (n, width) in enumerate(zip(shape, window, strict=True)):
        places = np.arange(1 if width == n else n) - starts[:, axis, None]
        inside = (places >= 0) & (places < width)
        touched = touched[..., None] & inside.reshape(num, *(1,) * (axis + 1), inside.shape[1])
    tables = [runs(starts[:, axis], width) for axis, width in enumerate(window)]
    return as_layout((1, *shape), [None, *tables], touched)


def table_size(grid: Grid, shape: tuple[int, ...]) -> int:
    """Entries of the table that says what each position touches: T times the windowed axes."""
    window = grid.window_shape(shape)
    windowed = (n for n, width in zip(shape, window, strict=True) if width < n)
    return math.prod((*grid.layout(shape), *windowed))


@dataclass(frozen=True)
class Costs:
    """What one edit costs, plainly and incrementally.

    Attributes:
      plain: operations of one forward pass.
      incremental: operations of one edit, its share of the clean pass included.
      buckets: how many buckets that takes.
      bytes: of the widest intermediate of one edit.
      clean_bytes: of the clean values that edits of an example take.
      rounding: the relative rounding error of the coarsest numbers of the model.
    """

    plain: float
    incremental: float
    buckets: int
    bytes: int
    clean_bytes: int
    rounding: float

    @property
    def worthwhile(self) -> bool:
        """Whether incremental evaluation saves enough to be taken."""
        return self.incremental < _WORTHWHILE * self.plain


def count_costs(
    apply_fn: Callable, params: Any, x: Any, context: Any, grid: Grid, samples: int, platform: str
) -> Costs:
    """Counts operations, without compiling anything.

    Args:
      apply_fn: the model.
      params: its parameters, or their shapes.
      x: one example's shape.
      context: shapes of what else it takes, for one example.
      grid: where windows lie.
      samples: edits of each position, which share what depends on the position alone.
      platform: cpu, gpu or tpu.
    """
    leaves, tree = jax.tree.flatten((as_shapes(params), x, context))
    return _costs(apply_fn, tuple(leaves), tree, grid, samples, platform)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=64)
def _costs(apply_fn, leaves, tree, grid, samples, platform) -> Costs:
    params, x, context = jax.tree.unflatten(tree, leaves)
    found: list[Costs] = []
    for buckets in _BUCKETS:
        program = make_program(apply_fn, params, x, context, grid, platform, buckets)
        num = sum(len(positions) for positions, _ in program.buckets)
        if buckets > 1 and num < 4 * buckets:
            continue
        clean = jax.make_jaxpr(program.clean)(params, x, context)
        values = jax.eval_shape(program.clean, params, x, context)
        total, widest, kept = 0.0, 1, 1
        for bucket, (positions, _) in enumerate(program.buckets):
            jaxpr = _bucket_jaxpr(program, bucket, grid, samples, values, x)
            # The last two inputs are the position and its windows: the rest is done once per block.
            total += len(positions) * flops.count_from(jaxpr, jaxpr.invars[-2:])
            widest = max(widest, *output_bytes(jaxpr))
            num_params = len(jax.tree.leaves(params))
            of_params = set(program.trace.inputs[:num_params])
            kept = max(kept, _taken_bytes(jaxpr, values.values, of_params))
        edits = num * samples
        plain = flops.count(jax.make_jaxpr(program.forward)(params, x, context).jaxpr)
        once = flops.count(clean.jaxpr)
        edit_bytes, each = -(-widest // samples), (total + once) / edits
        found.append(Costs(plain, each, buckets, edit_bytes, kept, program.rounding))
    best = found[0]
    for other in found[1:]:
        if other.incremental < (1 - _WORTH_A_BUCKET) * best.incremental:
            best = other
    return best


def _taken_bytes(jaxpr: Any, values: list[Any], params: set[int]) -> int:
    """Bytes of the clean values of an example that edits take; parameters are no example's."""
    owners = [number for number, value in enumerate(values) for _ in jax.tree.leaves(value)]
    taken = {atom for each in jaxpr.eqns for atom in each.invars if not isinstance(atom, Literal)}
    leaves = zip(owners, jaxpr.invars, strict=False)  # the last inputs are no values
    return sum(bytes_of(a.aval) for number, a in leaves if a in taken and number not in params)


def _bucket_jaxpr(
    program: Program, bucket: int, grid: Grid, samples: int, values: CleanValues, x: Any
) -> Any:
    """All edits of one position, as a function of the clean values."""
    windows = jax.ShapeDtypeStruct((samples, *grid.window_shape(tuple(x.shape))), x.dtype)

    def edits(values, index, windows):
        return jax.vmap(lambda window: program.edit(values, bucket, index, window))(windows)

    index = jax.ShapeDtypeStruct((), jnp.int32)
    return jax.make_jaxpr(edits)(values, index, windows).jaxpr
