"""Functions of which a part is read: without the rest they give the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

from jaxsens import attention
from jaxsens.core.constants import unfolded
from jaxsens.core.jaxprs import equations
from jaxsens.incremental import flops
from jaxsens.incremental.needed import needed_alone, without_unneeded
from jaxsens.incremental.needed.rewriting import rewritten
from tests.incremental.as_written import BERT, GPT, IMAGES, MASK, ROWS, ViT, weights
from tests.incremental.idealised import evaluate
from tests.incremental.layers import ALL, TO_ROWS
from tests.incremental.layers import IMAGES as OF_IMAGES
from tests.incremental.layers import ROWS as OF_ROWS
from tests.incremental.test_models import IDS, TEXT, VISION

IMAGE = np.random.default_rng(0).normal(size=(2, 12, 12, 4)).astype(np.float32)
SEQUENCE = np.random.default_rng(1).normal(size=(2, 10, 4)).astype(np.float32)

#: Ways to read a part of (n, T, …).
READ = {
    "first": lambda y: y[:, 0],
    "last": lambda y: y[:, -1],
    "two": lambda y: y[:, 1:3],
    "first and last": lambda y: jnp.concatenate([y[:, :1], y[:, -1:]], axis=1),
    "some taken": lambda y: jnp.take(y, jnp.array([0, y.shape[1] - 1]), axis=1),
    "one taken": lambda y: jnp.take(y, 1 % y.shape[1], axis=1),
    "every second, last feature": lambda y: y[:, ::2, ..., -1],
    "at a known place": lambda y: lax.dynamic_index_in_dim(y, jnp.int32(-1), 1),
    "at another place": lambda y: lax.dynamic_index_in_dim(
        y, jnp.argmax(y.sum(axis=tuple(range(2, y.ndim)))[0]).astype(jnp.int32), 1),
    "backwards": lambda y: y[:, ::-1][:, :1],
    "an example": lambda y: y[:1],
}  # fmt: skip
FAMILIES = {
    **{name: (family, IMAGE) for name, family in ALL.items()},
    "images": (OF_IMAGES, IMAGE), "to rows": (TO_ROWS, IMAGE), "rows": (OF_ROWS, SEQUENCE),
}  # fmt: skip


def check_same(function, *inputs):
    """Asserts that a function gives the same without what nobody reads; returns both."""
    closed = jax.make_jaxpr(function)(*inputs)
    new = rewritten(closed)
    for expected, found in zip(evaluate(closed, *inputs), evaluate(new, *inputs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    return closed, new


#: Most of these are computed whole.
WHOLE = {"complex", "convolutions", "images", "integer", "pooling", "sorting", "unary"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in WHOLE else ()) for n in FAMILIES]
)
def test_a_part_of_every_block(name):
    family, x = FAMILIES[name]
    readers = list(READ.values())
    for number, (block, function) in enumerate(family.items()):
        reader = readers[number % len(readers)]
        try:
            check_same(lambda x, f=function, read=reader: read(f(x)), x)
        except Exception as error:
            raise AssertionError(block) from error


def rows(x):
    """Products, residuals, axes merged, split and joined; attention; running sums."""
    q, k, v = ((x @ weights(4, 4, seed=s)).reshape(*x.shape[:2], 2, 2) for s in range(3))
    y = x + attention(q, k, v).reshape(x.shape)
    y = jax.nn.relu(y.reshape(-1, 4) @ weights(4, 8)).reshape(*x.shape[:2], 8)
    a, b = jnp.split(y, 2, axis=-1)
    a = lax.cumsum(jax.nn.softmax(a), axis=2) * jnp.pad(b, ((0, 0), (0, 0), (1, 1)))[..., 2:]
    return jnp.concatenate([a, b[..., ::-1], jax.nn.standardize(x)], axis=-1)


@pytest.mark.parametrize("name", READ)
def test_every_way_to_read(name):
    closed, new = check_same(lambda x: READ[name](rows(x)), SEQUENCE)
    saved = 1 - flops.count(new.jaxpr) / flops.count(closed.jaxpr)
    assert (saved > 0.1) == (name != "at another place")


def test_exactly_the_row_that_is_read():
    _, new = check_same(lambda x: (jnp.tanh(x @ weights(4, 9)) @ weights(9, 5))[:, 3], SEQUENCE)
    products = [each for each in equations(new.jaxpr) if each.primitive.name == "dot_general"]
    assert [each.outvars[0].aval.shape for each in products] == [(2, 1, 9), (2, 1, 5)]


def test_keys_and_values_are_needed_whole():
    def one_block(x):
        q, k, v = ((x @ weights(4, 4, seed=s)).reshape(2, 10, 2, 2) for s in range(3))
        return jax.nn.dot_product_attention(q, k, v).reshape(2, 10, 4)[:, 0]

    _, new = check_same(one_block, SEQUENCE)
    shapes = [e.outvars[0].aval.shape for e in equations(new.jaxpr) if len(e.invars) == 2
              and e.primitive.name == "dot_general"]  # fmt: skip
    assert sorted(shapes[:3]) == [(2, 1, 4), (2, 10, 4), (2, 10, 4)]
    assert all(1 in shape for shape in shapes[3:])


def mixed(x, w):
    """A layer in which every token is made of all, and something of each."""
    mean = jnp.tanh(x @ w).mean(axis=1, keepdims=True)
    return x + jax.nn.gelu((x + mean) @ w), mean[:, 0]


@pytest.mark.parametrize("backwards", [False, True])
def test_the_last_layer_of_a_loop_is_one_by_itself(backwards):
    layers = weights(3, 4, 4)

    def looped(layers, x):
        return lax.scan(mixed, x, layers, reverse=backwards)

    _, new = check_same(lambda w, x: looped(w, x)[0][:, 0], layers, SEQUENCE)
    (loop,) = [each for each in new.jaxpr.eqns if each.primitive.name == "scan"]
    assert loop.params["length"] == 2
    after = new.jaxpr.eqns[new.jaxpr.eqns.index(loop) :]
    shapes = [e.outvars[0].aval.shape for e in after if e.primitive.name == "dot_general"]
    assert sorted(shapes) == [(2, 1, 4), (2, 10, 4)]
    check_same(lambda w, x: looped(w, x)[0][:, 0] + looped(w, x)[1].sum(axis=0), layers, SEQUENCE)
    _, whole = check_same(lambda w, x: looped(w, x)[0], layers, SEQUENCE)
    assert [e.params["length"] for e in whole.jaxpr.eqns if e.primitive.name == "scan"] == [3]


MODELS = {
    "ViT": (ViT(), (IMAGES,)),
    "BERT": (BERT(), (ROWS, MASK)),
    "GPT": (GPT(), (ROWS,)),
    "GPT, padded": (GPT(), (ROWS, MASK)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_as_people_write_them(name):
    model, inputs = MODELS[name]
    params = jax.eval_shape(model.init, jax.random.key(0), *inputs)
    params = jax.tree.map(lambda a: weights(*a.shape) + 0.1, params)
    leaves, tree = jax.tree.flatten(params)
    closed, new = check_same(
        lambda *given: model.apply(jax.tree.unflatten(tree, given[: len(leaves)]),
                                   *given[len(leaves) :]),
        *leaves, *inputs,
    )  # fmt: skip
    # Of two blocks one is computed for a single token, but for its keys and values.
    assert flops.count(new.jaxpr) < 0.65 * flops.count(closed.jaxpr)
    assert flops.count(without_unneeded(closed).jaxpr) == flops.count(new.jaxpr)


OURS = VISION | TEXT | IDS


@pytest.mark.parametrize("name", OURS)
def test_models_of_the_project_have_nothing_to_leave_out(name):
    model, apply_fn = OURS[name], OURS[name].apply
    shape, dtype = ((2, 16, 16, 1), jnp.float32) if name in VISION else ((2, 12), jnp.int32)
    inputs = [jax.ShapeDtypeStruct(shape, dtype)]
    params = jax.eval_shape(model.init, jax.random.key(0), *inputs)
    if name in TEXT:

        def apply_fn(params, x, mask):
            return model.apply(params, x, mask, method="from_embeddings")

        inputs = [jax.ShapeDtypeStruct((2, 12, n), d) for n, d in ((8, jnp.float32),)]
        inputs.append(jax.ShapeDtypeStruct((2, 12), jnp.bool))
    closed = jax.make_jaxpr(apply_fn)(params, *inputs)
    assert without_unneeded(closed) is closed


def test_a_function_with_effects_stays_as_it_is():
    def talks(x):
        y = x @ weights(4, 9)
        jax.debug.callback(lambda _: None, y)
        return y[:, 0]

    closed = jax.make_jaxpr(talks)(SEQUENCE)
    assert closed.effects
    assert without_unneeded(closed) is closed


def test_derivatives_that_a_function_gives_itself():
    def function(x):
        return (jax.nn.silu(jax.nn.relu(x) @ weights(4, 9)) @ weights(9, 5))[:, 0].sum()

    gradients = [jax.grad(f)(jnp.asarray(SEQUENCE)) for f in (function, needed_alone(function))]
    np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-6)


def test_what_gives_its_derivative_itself_by_hand_keeps_it():
    @jax.custom_vjp
    def straight_through(x):
        return jnp.round(x)

    straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g,))

    def function(x):
        return (straight_through(x @ weights(4, 9)) @ weights(9, 5))[:, 0].sum()

    gradients = [jax.grad(f)(jnp.asarray(SEQUENCE)) for f in (function, needed_alone(function))]
    assert (gradients[0] != 0).any()
    np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-6)


def test_large_constants_stay_behind_their_barriers():
    table = np.ones((300, 300), np.float32)
    closed = jax.make_jaxpr(unfolded(lambda x: (x @ (table + 1.0))[0]))(
        np.ones((9, 300), np.float32)
    )
    new = without_unneeded(closed)
    assert new is not closed
    assert "optimization_barrier" in str(new)
    found = jaxpr_as_fun(new)(np.ones((9, 300), np.float32))
    np.testing.assert_allclose(found[0], np.full(300, 600.0))


def test_parameters_that_are_numbers_keep_their_weak_type():
    def function(factor, x):
        return (factor * x @ weights(4, 9))[:, 0]

    found = needed_alone(function)(3, SEQUENCE)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, function(3, SEQUENCE), rtol=1e-5)


def test_asked_twice_it_is_the_same_function():
    assert needed_alone(rows) is needed_alone(rows)
