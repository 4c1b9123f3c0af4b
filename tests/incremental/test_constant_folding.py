"""Masks of constants: XLA does not compute with them while it compiles.

What was tried on masks of 1,024 × 1,024 entries, on two cores, before there were barriers: a
running sum over a literal took 30 to 95 seconds to compile, plainly and by reuse, and a sort of one
had not ended after seven minutes. Masks that a model makes of `iota` were not folded, whatever was
made of them, and took no longer than others.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxsens import Gaussian, Perturbation, Tokens, attention, sensitivity
from jaxsens.core.constants import LARGE, unfolded
from jaxsens.core.jaxprs import equations
from jaxsens.incremental import make_program, trace

WIDTH = 4


def numbers(length):
    return np.random.default_rng(0).normal(size=(length, length)).astype(np.float32)


def segments(length):
    return np.sort(np.random.default_rng(1).integers(0, 9, length)).astype(np.int32)


def distances(length):
    return jnp.arange(length)[:, None] - jnp.arange(length)[None]


def scattered(length):
    ids = np.random.default_rng(2).integers(0, length, (length, length)).astype(np.int32)
    return jnp.zeros((length, length)).at[jnp.arange(length)[:, None], ids].add(numbers(length))


def running_count(length):
    return jnp.cumsum(numbers(length) > 0, axis=0, dtype=jnp.int32).astype(jnp.float32)


MASKS = {
    "literal": lambda n: jnp.asarray(numbers(n)),
    "chosen by a literal": lambda n: jnp.where(numbers(n) > 0, 0.0, -1e9),
    "chosen by distance": lambda n: jnp.where(
        distances(n) > 5, 0.0, jnp.where(distances(n) % 3 == 0, -1e9, 1.0)
    ),
    "segments": lambda n: jnp.where(segments(n)[:, None] == segments(n)[None], 0.0, -1e9),
    "one_hot": lambda n: jax.nn.one_hot(np.random.default_rng(3).permutation(n), n),
    "one_hot of segments": lambda n: (
        jax.nn.one_hot(segments(n), 16) @ jax.nn.one_hot(segments(n), 16).T
    ),
    "looked up": lambda n: jnp.linspace(0, 1, 64)[(np.abs(numbers(n)) * 9).astype(np.int32)],
    "looked up by distance": lambda n: jnp.linspace(0, 1, 64)[jnp.clip(distances(n) + 32, 0, 63)],
    "running sum": lambda n: jnp.cumsum(numbers(n), axis=-1),
    "running count": running_count,
    "running sum of distances": lambda n: jnp.cumsum((distances(n) % 3) / 3, axis=-1),
    "running maximum": lambda n: lax.associative_scan(jnp.maximum, jnp.asarray(numbers(n)), axis=1),
    "sorted": lambda n: jnp.sort(jnp.asarray(numbers(n)), axis=-1),
    "ranks": lambda n: jnp.argsort(jnp.argsort(distances(n) * 7919 % n)).astype(jnp.float32),
    "largest of each row": lambda n: jnp.where(
        numbers(n) >= lax.top_k(jnp.asarray(numbers(n)), 16)[0][:, -1:], 0.0, -1e9
    ),
    "centred": lambda n: numbers(n) - jnp.mean(numbers(n), axis=-1, keepdims=True),
    "softmax": lambda n: jax.nn.softmax(numbers(n)),
    "pooled": lambda n: lax.reduce_window(
        jnp.asarray(numbers(n)), -jnp.inf, lax.max, (9, 9), (1, 1), "SAME"
    ),
    "convolved": lambda n: lax.conv_general_dilated(
        jnp.asarray(numbers(n))[None, None], jnp.ones((1, 1, 5, 5)), (1, 1), "SAME"
    )[0, 0],
    "scattered": scattered,
    "product": lambda n: jnp.asarray(numbers(n)) @ numbers(n),
    "reversed and transposed": lambda n: jnp.asarray(numbers(n)).T[::-1],
    "rolled": lambda n: jax.vmap(jnp.roll)(jnp.asarray(numbers(n)), jnp.arange(n)),
    "drawn": lambda n: jax.random.normal(jax.random.key(0), (n, n)),
    "permuted": lambda n: jax.random.permutation(jax.random.key(0), jnp.eye(n)),
}


def as_bias(x, mask):
    weights = jax.nn.softmax(jnp.einsum("nqd,nkd->nqk", x, jnp.sin(x)) + mask[None])
    return jnp.einsum("nqk,nkd->nqd", weights, x).mean(axis=1)


def as_weights(x, mask):
    return jnp.einsum("qk,nkd->nqd", mask, jnp.tanh(x)).mean(axis=1)


def as_visible(x, mask):
    heads = x[:, :, None]
    return attention(heads, jnp.sin(heads), heads, visible=(mask > -1.0)[None]).mean(axis=(1, 2))


WAYS = {"bias": as_bias, "weights": as_weights, "visible": as_visible}


def model(mask, way, length):
    return lambda _, x: WAYS[way](x, MASKS[mask](length))


def traced_edit(f, length):
    """One example and one edit of it, and the shapes of the arguments."""
    shape = jax.ShapeDtypeStruct
    x = shape((length, WIDTH), jnp.float32)
    program = make_program(f, (), x, (), Tokens(), "cpu", 1)

    def run(x, index, window):
        return program.edit(program.clean((), x, ()), 0, index, window)

    return run, (x, shape((), jnp.int32), shape((1, WIDTH), jnp.float32))


def users_of_large_constants(closed):
    """The names of what takes a large constant, but for what looks up a traced row of a table."""
    large = {id(atom) for atom in closed.jaxpr.constvars if atom.aval.size >= LARGE}
    found = set()
    for equation in equations(closed.jaxpr):
        if equation.params.get("name") != "dynamic_index_in_dim":
            found |= {equation.primitive.name for atom in equation.invars if id(atom) in large}
        for inner in equation.params.values():
            if any(np.size(const) >= LARGE for const in getattr(inner, "consts", ())):
                found.add(f"within {equation.primitive.name}")
    return found


FAST = ("literal", "chosen by distance", "running count", "sorted")


@pytest.mark.parametrize(
    "mask", [pytest.param(m, marks=() if m in FAST else pytest.mark.slow) for m in MASKS]
)
def test_a_large_constant_goes_through_a_barrier(mask):
    for way in WAYS:
        run, arguments = traced_edit(model(mask, way, 256), 256)
        assert users_of_large_constants(jax.make_jaxpr(run)(*arguments)) <= {"optimization_barrier"}


def test_a_large_constant_without_a_barrier_is_found(monkeypatch):
    monkeypatch.setattr(trace, "with_unfoldable_constants", lambda closed: closed)
    run, arguments = traced_edit(model("sorted", "weights", 256), 256)
    assert "sort" in users_of_large_constants(jax.make_jaxpr(run)(*arguments))


@pytest.mark.parametrize("incremental", [False, True])
def test_a_large_constant_changes_no_number(incremental, all_devices):
    """On all devices, whether the model closes over it or is given it."""
    table, x = numbers(300), np.random.default_rng(5).normal(size=(9, 6, WIDTH)).astype("float32")

    def mixed(table, x):
        weights = jnp.cumsum(table, axis=1)[:6, :6]
        return jnp.tanh(jnp.einsum("st,ntd->nsd", weights, x)).sum(axis=1)

    noise = Perturbation(Tokens(), Gaussian(sigma=1.0))
    given, closed_over = (
        sensitivity(model, params, x, noise, 3, key=jax.random.key(0), incremental=incremental)
        for model, params in ((mixed, table), (lambda _, x: mixed(table, x), ()))
    )
    assert given.mean > 0
    np.testing.assert_array_equal(given.totals, closed_over.totals)


@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
def test_nothing_is_folded_for_long(mask, capfd):
    length = 1024
    for way in WAYS:
        f = model(mask, way, length)
        run, arguments = traced_edit(f, length)
        jax.jit(run).lower(*arguments).compile()
        batch = jax.ShapeDtypeStruct((1, length, WIDTH), jnp.float32)
        jax.jit(lambda x, f=f: unfolded(f)((), x)).lower(batch).compile()
    assert "onstant folding" not in capfd.readouterr().err
