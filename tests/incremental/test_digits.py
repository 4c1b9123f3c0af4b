"""Where a clean entry is large, infinite, narrow or out of bounds: no digit of an edit is lost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens import OverlappingPatches, Tokens, attention
from jaxsens.incremental import make_program

ROWS = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
#: One row is a thousand times larger until it is edited.
UNEVEN = ROWS * np.float32([1e3 if t == 3 else 1.0 for t in range(12)])[:, None]
IMAGE = np.random.default_rng(1).normal(size=(6, 6, 2)).astype(np.float32)
BYTES = np.random.default_rng(2).integers(-127, -100, (12, 6)).astype(np.int8)


def weights(*shape):
    return jnp.asarray(np.random.default_rng(shape).normal(size=shape), jnp.float32)


def heads(x):
    return (jnp.einsum("ntd,dhe->nthe", x, weights(6, 2, 3) + i) for i in range(3))


def convolved(x):
    dims = ("NWC", "WIO", "NWC")
    return lax.conv_general_dilated(x, weights(3, 6, 6), (1,), "SAME", dimension_numbers=dims)


def convolved_as(x, dtype, result):
    dims, kernel = ("NWC", "WIO", "NWC"), (50 * weights(3, 6, 6)).astype(dtype)
    return lax.conv_general_dilated(
        x, kernel, (1,), "SAME", dimension_numbers=dims, preferred_element_type=result
    )


def few(x):
    """Entries that are as low as masks make them, by the sign of another."""
    return jnp.where(x[..., :1] > 0, x, -1e9)


def border(x, **options):
    return jnp.pad(x, ((0, 0), (1, 1), (0, 0)), **options)


def pooled(x, nothing, combine):
    return lax.reduce_window(x, x.dtype.type(nothing), combine, (1, 3, 1), (1, 1, 1), "SAME")


def spread(x):
    """A zero between any two rows, and one more at the end."""
    return lax.pad(x, np.float32(0), ((0, 0, 0), (0, 1, 1), (0, 0, 0)))


def every_second(x):
    dims, padding = ("NWC", "WIO", "NWC"), [(-1, 0)]
    return lax.conv_general_dilated(x, weights(1, 6, 6), (2,), padding, dimension_numbers=dims)


def single(x):
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


MOVED = {
    "padded": (ROWS, lambda x: jax.nn.softmax(border(few(x), constant_values=-1e9)[..., 0])),
    "padded infinities": (ROWS, lambda x: jnp.exp(border(jnp.where(x > 0, x, -jnp.inf)))),
    "side by side": (ROWS, lambda x: jax.nn.softmax(jnp.concatenate([few(x), x], 2), axis=-1)),
    "squares": (UNEVEN, lambda x: jnp.concatenate([x * x, x], 1)),
    "bfloat16": (ROWS.astype(jnp.bfloat16), lambda x: border(x).astype(jnp.float32)),
    "float16": (
        ROWS.astype(np.float16), lambda x: jnp.concatenate([x, x], 2).astype(jnp.float32)
    ),
    "integers": (BYTES, lambda x: jnp.concatenate([x, x + x], 1).astype(jnp.float32)),
}  # fmt: skip
SUMMED = {
    "an outer product": (UNEVEN, lambda x: jnp.einsum("ntd,ntd->nt", x, x)),
    "linear attention": (UNEVEN, lambda x: jnp.einsum("ntd,nte->nde", x * x, x)),
    "sum pooling": (UNEVEN, lambda x: pooled(x * x, 0, lax.add)),
    "integer pooling": (BYTES, lambda x: pooled(x, -128, lax.max).astype(jnp.float32)),
    "bytes, summed as floats": (
        BYTES,
        lambda x: lax.dot_general(
            x, jnp.ones((12, 4), jnp.int8), (((1,), (0,)), ((), ())),
            preferred_element_type=jnp.float32,
        ),
    ),
    "bytes, convolved as integers": (
        BYTES, lambda x: convolved_as(x, jnp.int8, jnp.int32).astype(jnp.float32)
    ),
    "halves, convolved as floats": (
        UNEVEN.astype(jnp.bfloat16), lambda x: convolved_as(x, jnp.bfloat16, jnp.float32)
    ),
    "a running mean by halves": (
        ROWS, lambda x: lax.associative_scan(lambda a, b: 0.5 * a + b, x, axis=1)
    ),
    "a stride past every entry": (ROWS, lambda x: every_second(spread(x))),
}  # fmt: skip
ATTENDED = {
    "out of bounds": (ROWS, lambda x: attention(*heads(single(convolved(x))))),
    "written": (ROWS, lambda x: jax.nn.dot_product_attention(*heads(single(convolved(x))))),
    "vmapped": (ROWS, lambda x: jax.vmap(lambda a: attention(*heads(a[None]))[0])(x)),
    "a derivative": (ROWS, jax.grad(lambda x: jnp.sin(attention(*heads(x))).sum())),
    "a tangent": (
        ROWS, lambda x: jax.jvp(lambda a: attention(*heads(a)), (x,), (jnp.ones_like(x),))[1]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("x", "f"), [*MOVED.values(), *SUMMED.values(), *ATTENDED.values()],
                         ids=[*MOVED, *SUMMED, *ATTENDED])  # fmt: skip
def test_no_digit_is_lost(x, f, compare):
    compare(lambda _, x: f(x).reshape(len(x), -1), x.astype(x.dtype), Tokens())


def test_a_window_that_a_reshape_cuts(compare):
    def f(_, x):
        return jax.nn.softmax(few(x).reshape(1, 3, 2, 3, 2, 2), axis=-1).reshape(1, -1)

    compare(f, IMAGE, OverlappingPatches(2))


@pytest.mark.parametrize("num_position_groups", [1, 3])
def test_a_causal_query_that_sees_nothing_sees_nothing_later(num_position_groups, compare):
    token = np.arange(12)
    visible = jnp.asarray((token[:, None] >= token) & (token >= 3))[None]

    def f(_, x):
        return attention(*heads(x), visible=visible, causal=True).reshape(len(x), -1)

    compare(f, ROWS, Tokens(), num_position_groups=num_position_groups)
    later = f((), jnp.asarray(ROWS)[None]) - f((), jnp.asarray(ROWS)[None].at[:, 5].add(1.0))
    assert not later.reshape(12, -1)[:5].any()
    assert later.reshape(12, -1)[5:].any()


@pytest.mark.parametrize("num_position_groups", [1, 3])
def test_a_derivative_of_causal_attention_is_that_of_a_whole_pass(num_position_groups):
    def f(_, x):
        out = attention(*heads(x), visible=jnp.tri(12, dtype=bool)[None], causal=True)
        return jnp.sin(out).reshape(len(x), -1)

    x = jnp.asarray(ROWS)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    made = make_program(f, (), shape, (), Tokens(), "cpu", num_position_groups)

    def whole(window, position):
        return f((), jax.lax.dynamic_update_slice(x, window, (position, 0))[None])[0].sum()

    def derivatives(index, position, group, clean):
        window = x[position][None] + 0.3
        edit = jax.grad(lambda w: made.edit(clean, group, index, w)[0].sum())(window)
        return edit, jax.grad(whole)(window, position)

    clean = jax.jit(made.clean)((), x, ())
    for group, (positions, _) in enumerate(made.position_groups):
        for index in (0, len(positions) - 1):
            found, expected = derivatives(jnp.int32(index), int(positions[index]), group, clean)
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
