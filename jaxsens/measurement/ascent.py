"""The jitted program of the worst case: projected ascents from several starts, for some cells.

A cell is one position of one example. From each start the move Δ of its window climbs what the
metric calls its height h (for most metrics the change itself, for the label flip the margin):

    Δ_{t+1} = Π( Δ_t + 0.3 (1 - t/steps) · radius · g/‖g‖ ),    g = ∇_Δ h( f(x), f(x with Δ) )

with Π the projection onto the ball around the clean window. The best of all Δ_t is kept.

Gradients go through whole passes of the model or, by reuse, through the operations that the window
reaches. Whatever an ascent by reuse finds is looked at by a whole pass of the model; so is one
gradient of every call, since a function with a derivative of its own (`jax.custom_vjp`) may have
another one there.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from jaxsens import incremental
from jaxsens.core import runtime
from jaxsens.core.runtime import REPLICATED, SPLIT
from jaxsens.measurement.arguments import shapes
from jaxsens.measurement.batching import BatchPlan
from jaxsens.measurement.jobs import Context, MeasurementSpec
from jaxsens.measurement.whole_passes import entries_of
from jaxsens.perturbations.ball import Ball, exact_dtype, step_size


@dataclass(frozen=True)
class Search:
    """What is looked for: the static, hashable half of an ascent.

    Attributes:
      spec: model, window edit and metric; the edit is a `Ball`.
      num_starts: S, ascents of each cell.
      num_position_groups: into how many groups of positions reuse cuts an example; 0 for whole
        passes.
      position_group: which of them all cells of a call are of.
    """

    spec: MeasurementSpec
    num_starts: int
    num_position_groups: int = 0
    position_group: int = 0

    @property
    def ball(self) -> Ball:
        """Where windows may move."""
        edit = self.spec.perturbation.edit
        assert isinstance(edit, Ball)
        return edit


class Found(NamedTuple):
    """What the ascents of c cells found; the last three by reuse alone.

    Attributes:
      windows: (c, …) the window with the largest height.
      changes: (c,) the metric there, by a whole pass.
      heights: (c,) the height there, by a whole pass.
      start_changes: (c, S) the metric at the best window of each start.
      start_heights: (c, S) the height there.
      is_finite: (c,) whether no output and no height on the way was nan or infinite.
      has_gradient: (c,) whether no gradient was nan or infinite.
      moves: (c,) whether some gradient was not 0.
      outputs: (c, 2, E) some entries of the output for the best window: by reuse, by a whole pass.
      doubts: (c,) whether reuse itself does not trust the first.
      slope_errors: (devices,) ‖a - b‖ for the normalised gradients a and b at the first start of
        the first cell: by reuse, by a whole pass.
    """

    windows: Shaped[Array, "c ..."]
    changes: Float[Array, " c"]
    heights: Float[Array, " c"]
    start_changes: Float[Array, "c S"]
    start_heights: Float[Array, "c S"]
    is_finite: Bool[Array, " c"]
    has_gradient: Bool[Array, " c"]
    moves: Bool[Array, " c"]
    outputs: Float[Array, "c 2 E"] | None = None
    doubts: Bool[Array, " c"] | None = None
    slope_errors: Float[Array, " devices"] | None = None


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def ascend(
    search: Search,
    plan: BatchPlan,
    mesh: Mesh,
    params: Any,
    x: Shaped[Array, "c ..."],
    context: Context,
    examples: Int[Array, " c"],
    positions: Int[Array, " c"],
    num_steps: Int[Array, ""],
    key: PRNGKeyArray,
) -> Found:
    """Ascents from all starts, for one cell of each of these examples.

    Args:
      search: what is looked for.
      plan: how many starts climb together.
      mesh: the devices.
      params: the model's parameters.
      x: the examples of the cells.
      context: what the model needs beside them.
      examples: their ids.
      positions: the positions of the cells.
      num_steps: of every ascent.
      key: of the measurement.
    """
    found = functools.partial(_device_ascents, search, plan, runtime.platform(mesh))
    in_specs = (REPLICATED, SPLIT, SPLIT, SPLIT, SPLIT, REPLICATED, REPLICATED)
    return runtime.over_devices(found, mesh, in_specs)(
        params, x, context, examples, positions, num_steps, key
    )


class _Cells(NamedTuple):
    """Some cells of one device."""

    x: Any
    context: Any
    examples: Any
    positions: Any


class _Model(NamedTuple):
    """The model as a function of the windows of c cells.

    Attributes:
      clean: (c, …) the outputs of the unedited examples.
      outputs: from windows (c, b, …) to outputs (c, b, …).
    """

    clean: Array
    outputs: Callable[[Array], Array]


def _device_ascents(
    search, plan, platform, params, x, context, examples, positions, num_steps, key
):
    spec, cells = search.spec, _Cells(x, context, examples, positions)
    doubts_of: Callable = lambda windows: None  # noqa: E731
    model = _by_whole_passes(spec, params, cells)
    if search.num_position_groups:
        model, doubts_of = _by_reuse(search, platform, params, cells)
    climb = functools.partial(_climb, search, model, cells, num_steps, key)
    starts = jnp.arange(-(-search.num_starts // plan.block) * plan.block).reshape(-1, plan.block)
    climbed = lax.map(climb, jnp.minimum(starts, search.num_starts - 1))
    # (blocks, c, b, …) to (c, S, …)
    climbed = jax.tree.map(lambda a: _by_cell(a)[:, : search.num_starts], climbed)

    best = jnp.argmax(climbed.heights, axis=1)
    windows = jax.vmap(lambda a, i: a[i])(climbed.windows, best)
    found = Found(
        windows=windows,
        changes=jax.vmap(lambda a, i: a[i])(climbed.changes, best),
        heights=climbed.heights.max(axis=1),
        start_changes=climbed.changes,
        start_heights=climbed.heights,
        is_finite=climbed.is_finite.all(axis=1),
        has_gradient=climbed.has_gradient.all(axis=1),
        moves=climbed.moves.any(axis=1),
    )
    if not search.num_position_groups:
        return found
    outputs, doubts = doubts_of(windows)
    return _verified(spec, params, cells, found, outputs, doubts, climbed)


def _by_cell(values: Shaped[Array, "k c b ..."]) -> Shaped[Array, "c S ..."]:
    values = jnp.moveaxis(values, 0, 1)
    return values.reshape(values.shape[0], -1, *values.shape[3:])


class _Climbed(NamedTuple):
    """Where b ascents of c cells ended, as in `Found`; the gradients are those of the starts."""

    windows: Array
    changes: Array
    heights: Array
    is_finite: Array
    has_gradient: Array
    moves: Array
    starts: Array
    gradients: Array


class _State(NamedTuple):
    moves: Array
    best_moves: Array
    best: Array
    is_finite: Array
    has_gradient: Array
    has_slope: Array
    gradients: Array


def _climb(search, model, cells, num_steps, key, starts):
    """Ascents of every cell from these starts."""
    spec, ball = search.spec, search.ball
    each = lambda function: jax.vmap(jax.vmap(function))  # noqa: E731
    height = jax.vmap(jax.vmap(spec.metric.height, (None, 0)))

    def drawn(x_i, example, position):
        # The draws of `sensitivity` with the same key: the worst case is no less than those.
        def one(start):
            return spec.edited_window(key, x_i, example, position, start, None)

        return jax.vmap(one)(starts)

    # A move of nothing gives the clean window.
    clean = jax.vmap(spec.perturbation.current_window)(cells.x, cells.positions)[:, None]
    first = jax.vmap(drawn)(cells.x, cells.examples, cells.positions)
    exact = exact_dtype(clean.dtype)
    moves = first.astype(exact) - clean.astype(exact)

    def windows_of(moves):
        return (clean.astype(exact) + moves).astype(clean.dtype)

    def total(moves):
        heights = height(model.clean, model.outputs(windows_of(moves)))
        return heights.sum(), heights

    def step(t, state):
        (_, heights), gradients = jax.value_and_grad(total, has_aux=True)(state.moves)
        better = heights > state.best
        size = step_size(t.astype(exact), num_steps.astype(exact))
        climb = each(functools.partial(ball.climb, size=size))
        return _State(
            climb(state.moves, gradients),
            _where(better, state.moves, state.best_moves),
            jnp.where(better, heights, state.best),
            # After a gradient of nan all is nan: that is not the outputs' fault.
            state.is_finite & (jnp.isfinite(heights) | ~state.has_gradient),
            state.has_gradient & each(lambda g: jnp.isfinite(g).all())(gradients),
            state.has_slope | each(lambda g: (g != 0).any())(gradients),
            jnp.where(t == 0, gradients, state.gradients),
        )

    yes = jnp.ones(moves.shape[:2], bool)
    before = _State(moves, moves, jnp.full(yes.shape, -jnp.inf), yes, yes, ~yes, moves)
    # One step more than asked for: its move is of length 0, and its heights those of the last.
    after = lax.fori_loop(jnp.int32(0), num_steps + 1, step, before)
    windows = windows_of(after.best_moves)
    changes = jax.vmap(jax.vmap(spec.change, (None, 0)))(model.clean, model.outputs(windows))
    return _Climbed(
        windows, changes, after.best, after.is_finite, after.has_gradient, after.has_slope,
        windows_of(moves), after.gradients,
    )  # fmt: skip


def _where(condition: Bool[Array, "c b"], a: Array, b: Array) -> Array:
    return jnp.where(condition.reshape(*condition.shape, *(1,) * (a.ndim - 2)), a, b)


def _by_whole_passes(spec, params, cells) -> _Model:
    """Every window takes a whole forward pass."""

    def outputs(windows):
        c, b = windows.shape[:2]
        put = jax.vmap(jax.vmap(spec.perturbation.put, (None, 0, None)))
        inputs = put(cells.x, windows, cells.positions).reshape(c * b, *cells.x.shape[1:])
        context = jax.tree.map(lambda values: jnp.repeat(values, b, axis=0), cells.context)
        found = spec.model(params, inputs, *context)
        return found.reshape(c, b, *found.shape[1:])

    return _Model(spec.model(params, cells.x, *cells.context), outputs)


def _by_reuse(search, platform, params, cells) -> tuple[_Model, Callable]:
    """All that a window cannot reach is computed once per cell.

    Also a function from windows (c, …) to the outputs and to whether they are in doubt.
    """
    spec, group = search.spec, search.position_group
    x, context = shapes((cells.x, cells.context))
    program = incremental.make_program(
        spec.model, params, x, context, spec.perturbation.grid, platform,
        search.num_position_groups,
    )  # fmt: skip
    first = int(program.position_groups[group].positions[0])
    clean = jax.vmap(lambda x_i, c_i: program.clean(params, x_i, c_i))(cells.x, cells.context)
    window = jax.ShapeDtypeStruct(spec.perturbation.grid.window_shape(tuple(x.shape)), x.dtype)
    edit = incremental.split_edit(
        program, group, jax.eval_shape(program.clean, params, x, context), window
    )
    prepared = _over_cells(edit.prepare)(clean, cells.positions - first)

    def doubts_of(windows):
        def one(clean, position, window):
            return program.edit(clean, group, position - first, window)

        return jax.vmap(one)(clean, cells.positions, windows)

    outputs = _over_cells(jax.vmap(edit.output, (None, 0)))
    return _Model(
        jax.vmap(program.output)(clean), lambda windows: outputs(prepared, windows)
    ), doubts_of


def _over_cells(function: Callable) -> Callable:
    """`vmap`, but for a single cell: its position is then one index, where vmap would scatter."""

    def mapped(*arrays):
        if len(jax.tree.leaves(arrays)[0]) > 1:
            return jax.vmap(function)(*arrays)
        result = function(*jax.tree.map(lambda a: a[0], arrays))
        return jax.tree.map(lambda a: a[None], result)

    return mapped


def _verified(spec, params, cells, found, outputs, doubts, climbed) -> Found:
    """What reuse found, with the numbers of whole passes."""

    def look(of_cell):
        cell, window = jax.tree.map(lambda a: a[None], of_cell)
        model = _by_whole_passes(spec, params, cell)
        output = model.outputs(window[:, None])[0, 0]
        clean = model.clean[0]
        return spec.change(clean, output), spec.metric.height(clean, output), output

    # One by one: beside hundreds of steps of each they take no time, and no memory.
    changes, heights, expected = lax.map(look, (cells, found.windows))

    def slope(windows):
        model = _by_whole_passes(spec, params, jax.tree.map(lambda a: a[:1], cells))
        return spec.metric.height(model.clean[0], model.outputs(windows)[0, 0])

    gradient = jax.grad(slope)(climbed.starts[:1, :1])
    return found._replace(
        changes=changes,
        heights=heights,
        outputs=jnp.stack([entries_of(outputs), entries_of(expected)], axis=1),
        doubts=doubts,
        slope_errors=_apart(climbed.gradients[:1, :1], gradient)[None],
    )


def _apart(a: Array, b: Array) -> Float[Array, ""]:
    """The distance of two normalised vectors; 0 if both are 0."""

    def unit(values: Array) -> Array:
        values = values.astype(jnp.float32).ravel()
        norm = jnp.linalg.norm(values / jnp.maximum(jnp.abs(values).max(), 1e-30))
        scale = jnp.abs(values).max() * norm
        return values / jnp.where(scale > 0, scale, 1)

    return jnp.linalg.norm(unit(a) - unit(b))
