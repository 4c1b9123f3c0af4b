"""Models whose output for an example depends on its batch are refused, others are not."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Ball, Gaussian, Perturbation, Tokens, sensitivity, sharpness, worst_case

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(9, 6, 4)).astype(np.float32)
W = jnp.asarray(GENERATOR.normal(size=(24, 5)), jnp.float32)
NOISE = Perturbation(Tokens(), Gaussian(sigma=1.0))


def read(x):
    return x.reshape(len(x), -1) @ W


def mean_over_the_batch(_, x):
    return read(x - x.mean(axis=0, keepdims=True))


def batch_norm_in_training(_, x):
    norm = nn.BatchNorm(use_running_average=False, use_bias=False, use_scale=False)
    statistics = {"batch_stats": {"mean": jnp.zeros(4), "var": jnp.ones(4)}}
    return read(norm.apply(statistics, x, mutable=["batch_stats"])[0])


def dropout(_, x):
    layer = nn.Dropout(0.5, deterministic=False)
    return read(layer.apply({}, x, rngs={"dropout": jax.random.key(0)}))


def order_of_examples(_, x):
    return read(x) * jnp.arange(len(x), dtype=jnp.float32)[:, None]


def branch_on_one(_, x):
    return read(jnp.tanh(x)) if len(x) == 1 else read(x)


def branch_on_few(_, x):
    return read(jnp.tanh(x)) if len(x) < 3 else read(x)


def branch_on_several(_, x):
    return read(jnp.tanh(x)) if len(x) < 7 else read(x)


def branch_on_many(_, x):
    return read(jnp.tanh(x)) if len(x) > 28 else read(x)


def number_of_examples(_, x):
    return read(x) * len(x)


def number_of_examples_as_an_array(_, x):
    return read(x) * jnp.asarray(np.float32(len(x)))


DEPENDENT = [
    mean_over_the_batch, batch_norm_in_training, dropout, order_of_examples, branch_on_one,
    branch_on_few, branch_on_several, branch_on_many, number_of_examples,
    number_of_examples_as_an_array,
]  # fmt: skip


@pytest.mark.parametrize("incremental", ["auto", False])
@pytest.mark.parametrize("f", DEPENDENT)
def test_a_model_that_mixes_examples_is_refused(f, incremental):
    with pytest.raises(ValueError, match="apply_fn's output for an example depends on") as refused:
        sensitivity(f, (), X, NOISE, key=jax.random.key(0), incremental=incremental)
    assert "\n" not in str(refused.value)


def test_one_example_is_enough_to_tell():
    with pytest.raises(ValueError, match="depends on the others in its batch"):
        sensitivity(mean_over_the_batch, (), X[:1], NOISE, key=jax.random.key(0))


@pytest.mark.parametrize("num_devices", [1, 8])
def test_it_can_be_asked_for_all_the_same(num_devices):
    found = sensitivity(
        mean_over_the_batch, (), X, NOISE, key=jax.random.key(0), check=False, incremental=False,
        devices=jax.local_devices()[:num_devices],
    )  # fmt: skip
    assert np.isfinite(found.totals).all()


def squeezed(_, x):
    return read(x).squeeze()


def squeezed_input(_, x):
    x = x[..., None].squeeze()
    return x.reshape(x.shape[0], -1)[:, :3] @ W[:3]


@pytest.mark.parametrize("f", DEPENDENT)
def test_sharpness_refuses_it_too(f):
    def model(scale, x):
        return scale * f((), x)

    arguments = (model, jnp.float32(1.0), GENERATOR.normal(size=(300, 6, 4)), Gaussian(sigma=1.0))
    with pytest.raises(ValueError, match="apply_fn's output for an example depends on"):
        sharpness(*arguments, key=jax.random.key(0), devices=jax.local_devices()[:1])


@pytest.mark.parametrize("f", [mean_over_the_batch, branch_on_one, number_of_examples])
def test_the_worst_case_refuses_it_too(f):
    ball = Perturbation(Tokens(), Ball(1.0))
    with pytest.raises(ValueError, match="apply_fn's output for an example depends on"):
        worst_case(f, (), X, ball, key=jax.random.key(0), num_starts=1, num_steps=1)


def test_sharpness_can_be_asked_for_all_the_same():
    def model(scale, x):
        return scale * mean_over_the_batch((), x)

    arguments = (model, jnp.float32(1.0), X, Gaussian(sigma=1.0))
    sharpness(*arguments, key=jax.random.key(0), check=False)
    single = (*arguments[:2], X[:1], arguments[3])
    sharpness(*single, key=jax.random.key(0))


@pytest.mark.parametrize("options", [{}, {"incremental": True}, {"check": False}])
@pytest.mark.parametrize("f", [squeezed, squeezed_input])
def test_a_batch_of_one_must_stay_a_batch(f, options):
    with pytest.raises(ValueError, match="for a batch of one example"):
        sensitivity(f, (), X, NOISE, key=jax.random.key(0), **options)


def branch_without_effect(_, x):
    return read(x + 0.0 * x**2) if len(x) == 1 else read(x)


def with_class_token(_, x):
    token = jnp.broadcast_to(jnp.ones((1, 1, 4)), (len(x), 1, 4))
    return read(jnp.concatenate([token, x], axis=1)[:, 1:] + token)


@pytest.mark.parametrize("f", [lambda _, x: read(x), branch_without_effect, with_class_token])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_other_models_pass(f, dtype):
    def model(params, x):
        return f(params, x.astype(dtype).astype(jnp.float32))

    sensitivity(model, (), X, NOISE, key=jax.random.key(0))


def test_a_model_is_asked_once(monkeypatch):
    def model(_, x):
        return read(x)

    sensitivity(model, (), X, NOISE, key=jax.random.key(0), incremental=False)
    from jaxsens.measurement import independence

    def asked(*_):
        raise AssertionError

    monkeypatch.setattr(independence, "outputs_of", asked)
    sensitivity(model, (), X[:4], NOISE, key=jax.random.key(1), incremental=False)
    with pytest.raises(AssertionError):
        sensitivity(lambda p, x: model(p, x), (), X, NOISE, key=jax.random.key(0))


def test_company_is_looked_for_also_where_one_fits_at_a_time():
    with pytest.raises(ValueError, match="depends on the others in its batch"):
        sensitivity(
            lambda p, x: mean_over_the_batch(p, x), (), X, NOISE, key=jax.random.key(0),
            chunk_bytes=1, devices=jax.local_devices()[:1],
        )  # fmt: skip


def test_a_model_has_not_passed_because_nothing_could_be_compared():
    def model(scale, x):
        return scale * mean_over_the_batch((), x)

    for scale, reason in ((np.nan, "not finite"), (1.0, "depends on the others in its batch")):
        with pytest.raises(ValueError, match=reason):
            sensitivity(model, jnp.float32(scale), X, NOISE, key=jax.random.key(0))
