"""Functions made of chains of blocks, and whether every value that an edit reaches is right.

A chain is drawn by a seed: a dtype, an example, a grid, two to six blocks with nothing between them
that would clip or normalise what a wrong rule makes, and a head. Shapes decide what may follow.
"""

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsens import Bits, OverlappingPatches, Patches, Tokens, Whole
from jaxsens.incremental import make_program, nearness, program
from jaxsens.incremental.values import Clean, Windowed
from tests.incremental.blocks import number, weights
from tests.incremental.idealised import evaluate
from tests.incremental.layers import ALL, IMAGES, ROWS, TO_ROWS, WINDOWED


@dataclass(frozen=True)
class Own:
    """A user's grid: windows of some size (0 for a whole axis) that start at base + step · τ."""

    size: tuple[int, ...]
    num: int
    base: tuple[int, ...]
    step: tuple[int, ...]

    def layout(self, shape):
        return (self.num,)

    def window_shape(self, shape):
        return tuple(min(size or n, n) for size, n in zip(self.size, shape, strict=True))

    def start(self, position, shape):
        return tuple(b + s * position for b, s in zip(self.base, self.step, strict=True))


#: By rank: patches that fit a stride or not, windows in any order, from the end, over the edge.
GRIDS = {
    1: (Bits(), Tokens(), Whole(), Own((3,), 5, (-1,), (-2,))),
    2: (
        Tokens(), Tokens(), Whole(), Own((2, 0), 5, (-1, 0), (-1, 0)),
        Own((3, 0), 4, (8, 0), (-3, 0)), Own((1, 1), 6, (0, 0), (1, 1)),
        Own((0, 1), 3, (0, 0), (0, 1)), Own((3, 0), 6, (1, 0), (2, 0)),
        Own((2, 2), 4, (-3, -2), (2, 0)),
    ),
    3: (
        Patches(1), Patches(2), Patches(3), Patches(4), Patches(7), OverlappingPatches(2),
        OverlappingPatches(3), Tokens(), Whole(), Own((2, 3, 0), 5, (-1, 0, 0), (-1, 1, 0)),
        Own((3, 2, 0), 6, (9, 9, 0), (-2, -1, 0)), Own((3, 3, 0), 6, (1, 0, 0), (1, 2, 0)),
        Own((2, 2, 1), 4, (1, 5, -1), (2, -1, 0)), Own((0, 3, 0), 4, (0, 1, 0), (0, 3, 0)),
        Own((4, 4, 0), 5, (-6, 2, 0), (4, 3, 0)),
    ),
}  # fmt: skip
SHAPES = ((12, 12, 1), (12, 12, 3), (14, 14, 1), (8, 8, 2), (9, 15, 1), (12, 3), (16, 2), (15, 4),
          (10, 4), (12,))  # fmt: skip
DTYPES = ("float32",) * 5 + ("bfloat16", "float16", "uint8", "int32")
#: Python scalars among the parameters: what they are multiplied with keeps its dtype.
PARAMS = (3, 0.5)


def begin(params, x):
    """Floats (n, …, c) of any input."""
    if x.dtype == jnp.uint8:
        x = (x * params[0]).astype(jnp.float32) / 255
    elif x.dtype == jnp.int32:
        x = jnp.take(weights(jnp.zeros((), jnp.float32), 5, 3), x, axis=0)
        x = x.reshape(*x.shape[:-2], -1) if x.ndim > 4 else x
    else:
        x = x * params[1]
    return x[..., None] if x.ndim == 2 else x


def _flat(x):
    return x.reshape(len(x), -1)


HEADS: dict[str, Callable] = {
    "mean": lambda x: x.mean(axis=tuple(range(1, x.ndim - 1))),
    "dense": lambda x: _flat(x) @ weights(x, math.prod(x.shape[1:]), 3),
    "largest": lambda x: x.max(axis=tuple(range(1, x.ndim - 1))),
    "mean, dense": lambda x: _flat(x.mean(axis=1)) @ weights(x, math.prod(x.shape[2:]), 3),
    "first": lambda x: _flat(x[:, 0]),
    "summed": lambda x: number(x, 0.1) * x.sum(axis=tuple(range(1, x.ndim))),
}


@dataclass(frozen=True)
class Chain:
    """One function, one example and one grid.

    Attributes:
      seed: it is drawn by.
      blocks: by name, head included.
      x: an example.
      grid: where its windows lie.
      is_wide: whether JAX has 64 bits.
    """

    seed: int
    blocks: dict[str, Callable]
    x: np.ndarray
    grid: object
    is_wide: bool

    def __call__(self, params, x):
        x = begin(params, x)
        for block in self.blocks.values():
            x = block(x)
        return x

    def __str__(self):
        bits = ", 64 bits" if self.is_wide else ""
        names = " → ".join(self.blocks)
        return f"seed {self.seed}: {self.x.dtype}{self.x.shape}{bits}, {self.grid}: {names}"

    def precision(self):
        return jax.enable_x64(True) if self.is_wide else contextlib.nullcontext()


def make_chain(seed: int) -> Chain:
    """The chain of a seed."""
    rng = np.random.default_rng(seed)

    def choose(options):
        options = list(options)
        return options[rng.integers(len(options))]

    shape, dtype = choose(SHAPES), jnp.dtype(choose(DTYPES))
    grid = choose(each for each in GRIDS[len(shape)] if _lies(each, shape))
    values = rng.integers(0, 5, shape) if dtype.kind in "iu" else rng.normal(size=shape)
    x, is_wide = values.astype(dtype), rng.random() < 0.1
    with jax.enable_x64(True) if is_wide else contextlib.nullcontext():
        now = jax.eval_shape(begin, PARAMS, jax.ShapeDtypeStruct((2, *shape), dtype))
        blocks, wanted = {}, rng.integers(2, 7)
        # Half of the chains are made of what keeps a window a window: wrong layouts show there.
        keeps = rng.random() < 0.5
        while len(blocks) < wanted:
            families = dict(WINDOWED if keeps else ALL)
            families |= {"images": IMAGES, "to rows": TO_ROWS} if now.ndim == 4 else {"rows": ROWS}
            name, block = choose(choose(families.values()).items())
            then = _result(block, now)
            if then is not None and name not in blocks:
                blocks[name], now = block, then
    name = choose(HEADS)
    return Chain(seed, {**blocks, f"{name} (head)": HEADS[name]}, x, grid, is_wide)


def _lies(grid, shape):
    try:
        grid.layout(shape)
    except ValueError:
        return False
    return True


def _result(block, now):
    """What the block makes of an array; None if it cannot, or if that would be too large."""
    try:
        then = jax.eval_shape(block, now)
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
        return None
    fits = then.dtype == now.dtype and then.shape[0] == 2 and len(then.shape) in (3, 4)
    return then if fits and 0 < math.prod(then.shape[1:]) <= 3000 else None


def first_wrong(f, x, grid, *, params=PARAMS, seed=0, positions=6):
    """The first value that an edit gets wrong, in words; None if there is none.

    For every operation the edited value must be the whole one, changes must be 0 out of bounds,
    `reachable` must cover all that differs, and what is called clean must not differ. A result that
    is in doubt is decided by a whole pass and may be anything, but not every one may be. Of a
    comparison that only chooses between two values, it is these that must be right.
    """
    x, rng, shape = np.asarray(x), np.random.default_rng(seed), jax.ShapeDtypeStruct
    made = make_program(f, params, shape(x.shape, x.dtype), (), grid, "cpu", 1)
    num, window = len(made.position_groups[0].positions), grid.window_shape(x.shape)
    some = np.unique([0, num - 1, *rng.permutation(num)[: positions - 2]])
    windows = [_window(rng, window, x.dtype) for _ in some]
    edited = [_put(x, new, grid, int(at)) for new, at in zip(windows, some, strict=True)]

    spec = shape(x.shape, x.dtype)
    of_clean, tree = jax.make_jaxpr(lambda x: made.clean(params, x, ()), return_shape=True)(spec)
    leaves, treedef = jax.tree.flatten(tree)
    of_edit, kinds, found_tree = _traced_edit(made, leaves, treedef, window, x.dtype)
    batch = shape((len(some), *x.shape), x.dtype)
    of_whole = jax.make_jaxpr(lambda x: f(params, x))(batch)

    clean = evaluate(of_clean, x)
    (expected,) = evaluate(of_whole, np.stack(edited))
    chooses = {id(jump.operation) for jump in made.jumps if jump.choices}
    num_decided = 0
    for at, new, whole_input, output in zip(some, windows, edited, expected, strict=True):
        whole = jax.tree.unflatten(treedef, evaluate(of_clean, whole_input)).values
        results = evaluate(of_edit, *clean, np.int32(at), new)
        out, doubt, found = jax.tree.unflatten(found_tree, results)
        if doubt or not np.isfinite(output).all():
            continue
        num_decided += 1
        unedited = jax.tree.unflatten(treedef, clean).values
        for operation in made.trace.operations:
            for n in () if id(operation) in chooses else operation.outputs:
                fault = _fault(kinds.get(n), found.get(n), whole[n], unedited[n], int(at))
                if fault:
                    return f"{operation.name}: {fault}, position {at}"
        if not _same(out, output, output):
            return f"the output is off by {np.abs(out - output).max()}, position {at}"
    return None if num_decided else "every edit is in doubt"


def _window(rng, shape, dtype):
    if dtype.kind in "iu":
        return rng.integers(0, 5, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def _put(x, new, grid, position):
    with jax.enable_x64(False):
        return np.asarray(lax.dynamic_update_slice(x, new, grid.start(position, x.shape)))


def _traced_edit(made, leaves, treedef, window, dtype):
    """A jaxpr of the edit with every value that it reaches, and what kinds of values these are."""
    kinds = {}
    propagate = program.propagate

    def edit(leaves, index, window):
        def recorded(*arguments):
            out, reached = propagate(*arguments)
            kinds.update(reached)
            return out, reached

        # Every float is a float64 when this is evaluated, and rounds like one.
        rounding = mock.patch.object(nearness, "rounding_of", return_value=np.finfo(float).eps)
        with rounding, mock.patch.object(program, "propagate", recorded):
            out, doubt = made.edit(jax.tree.unflatten(treedef, leaves), 0, index, window)
        return out, doubt, {n: _given(value) for n, value in kinds.items()}

    shape = jax.ShapeDtypeStruct
    arguments = leaves, shape((), jnp.int32), shape(window, dtype)
    closed, tree = jax.make_jaxpr(edit, return_shape=True)(*arguments)
    return closed, kinds, jax.tree.structure(tree)


def _given(value):
    """The new entries or the change of a window, or the whole value."""
    return value.given if isinstance(value, Windowed) else value.value


def _placed(kind, given, clean, position):
    """The whole value that a window stands for, and its change out of bounds."""
    if not isinstance(kind, Windowed):
        return given, np.zeros(())
    layout, rows, in_bounds = kind.layout, [], []
    for axis, n in enumerate(layout.shape):
        table = layout.tables[axis]
        rows.append(np.arange(n) if table is None else table[position])
        in_bounds.append((rows[-1] >= 0) & (rows[-1] < n))
    is_entry = functools.reduce(np.logical_and.outer, in_bounds)
    inside = np.ix_(*(row[some] for row, some in zip(rows, in_bounds, strict=True)))
    whole, entries = clean.copy(), given[np.ix_(*in_bounds)]
    whole[inside] = clean[inside] + entries if kind.is_change else entries
    return whole, given[~is_entry] if kind.is_change else np.zeros(())


def _fault(kind, found, whole, clean, position):
    if not isinstance(whole, np.ndarray) or whole.dtype.kind not in "fiub":
        return None
    differs = (whole != clean) & ~((whole != whole) & (clean != clean))
    if kind is None or isinstance(kind, Clean):
        return "differs, but is called clean" if differs.any() else None
    value, beyond = _placed(kind, found, clean, position)
    if not _same(value, whole, clean):
        return (
            f"{_named(kind)} is off by {np.nanmax(np.abs(np.subtract(value, whole, dtype=float)))}"
        )
    if np.any(beyond):
        return f"{_named(kind)} has a change out of bounds"
    if isinstance(kind, Windowed):
        reachable = np.broadcast_to(kind.layout.reachable[position], whole.shape)
        if (differs & ~reachable).any():
            return f"{_named(kind)} differs where it is not reachable"
    return None


def _named(kind):
    window = f" {kind.layout.window} of {kind.layout.shape}" if isinstance(kind, Windowed) else ""
    return type(kind).__name__.lower() + window


def _same(value, whole, clean):
    """Equal but for what float64 rounds; where something is not finite, where both are."""
    if whole.dtype.kind != "f":
        return bool((value == whole).all())
    finite = np.isfinite(whole) & np.isfinite(clean)
    if not finite.any():
        return True
    size = max(np.abs(whole[finite]).max(), np.abs(clean[finite]).max(), 1e-3)
    return bool((np.abs(value - whole)[finite] <= 1e-9 * size).all())
