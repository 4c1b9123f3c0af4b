"""Ids without a row in the model's table are refused, however the model looks them up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import jaxsens
from jaxsens import Perturbation, Resample, Tokens
from jaxsens.measurement.lookups import check_ids
from jaxsens.measurement.ragged import ragged_sensitivity
from jaxsens.text.buckets import into_buckets

KEY, ROWS = jax.random.key(0), 10
TABLE = jnp.arange(ROWS * 3.0).reshape(ROWS, 3)


def embedded(params, x):
    return nn.Embed(ROWS, 3).apply({"params": {"embedding": params}}, x).sum(axis=1)


#: Models that look up ids as they are.
DIRECT = {
    "index": lambda params, x: params[x].sum(axis=1),
    "take": lambda params, x: jnp.take(params, x, axis=0).sum(axis=1),
    "embed": embedded,
    "jit": jax.jit(lambda params, x: params[x].sum(axis=1)),
    "vmap": lambda params, x: jax.vmap(lambda ids: params[ids].sum(axis=0))(x),
    "constant": lambda params, x: TABLE[x].sum(axis=1),
    "narrow": lambda params, x: params[x.astype(jnp.int16)].sum(axis=1),
    "second table": lambda params, x: jnp.ones(99)[x] + params[x].sum(axis=(1, 2))[:, None],
}
#: Models that say themselves what becomes of other numbers, or look up something else.
OTHER = {
    "clip": lambda params, x: params.at[x].get(mode="clip").sum(axis=1),
    "fill": lambda params, x: params.at[x].get(mode="fill", fill_value=0).sum(axis=1),
    "modulo": lambda params, x: params[x % ROWS].sum(axis=1),
    "bits": lambda params, x: params[(x > 0).astype(jnp.int32).sum(axis=1)],
    "none": lambda params, x: x.astype(jnp.float32) @ jnp.ones((4, 3)),
    "other": lambda params, x: x.astype(jnp.float32) @ params[jnp.arange(4)],
}
GOOD = np.array([[0, 9, 1, 2], [3, 4, 5, 6]], np.int32)


def with_id(number):
    x = GOOD.copy()
    x[1, 2] = number
    return x


def resample(vocabulary=ROWS):
    return Perturbation(Tokens(), Resample(vocabulary))


def measure(model, x, perturbation, **options):
    return jaxsens.sensitivity(model, TABLE, x, perturbation, 2, key=KEY, **options)


class Shift:
    """An edit that says nothing about ids."""

    def __call__(self, key, window, /):
        return (window + 1) % ROWS


SHIFT = Perturbation(Tokens(), Shift())


@pytest.mark.parametrize("model", DIRECT.values(), ids=DIRECT)
def test_an_id_without_a_row_is_refused(model):
    for number, message in ((ROWS, "x holds the id 10, .* table of 10 rows"), (-1, "the id -1")):
        with pytest.raises(ValueError, match=message):
            measure(model, with_id(number), SHIFT)
        with pytest.raises(ValueError, match=message):
            jaxsens.sharpness(model, TABLE, with_id(number), jaxsens.Sphere(1.0), 2, key=KEY)
    with pytest.raises(ValueError, match=r"perturbation draws ids up to 10, .* vocabulary=10"):
        measure(model, GOOD, resample(ROWS + 1))


def test_ids_that_have_their_row_and_those_of_padding_are_measured():
    model = DIRECT["index"]
    assert measure(model, GOOD, resample()).num_draws == 2 * 4 * 2
    mask = with_id(ROWS) < ROWS
    assert measure(model, with_id(ROWS), resample(), mask=mask).num_draws == 7 * 2


@pytest.mark.parametrize("model", OTHER.values(), ids=OTHER)
def test_models_that_say_what_other_numbers_mean_are_left_alone(model):
    for number in (ROWS, -1):
        check_ids(model, TABLE, (with_id(number),), with_id(number), vocabulary=99)


def test_a_vocabulary_smaller_than_the_ids_is_refused():
    for x, message in ((GOOD, "ids from 0 to 4; got x with ids from 0 to 9"),
                       (with_id(-1), "got x with ids from -1 to 9")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            measure(OTHER["none"], x, resample(5))
    with pytest.raises(ValueError, match="draws ids up to 299; got x of uint8"):
        measure(OTHER["none"], GOOD.astype(np.uint8), resample(300))


def test_embeddings_of_ragged_texts_are_looked_up_too():
    buckets = into_buckets([np.array([1, 2, ROWS], np.int32)], (4,))
    noise = Perturbation(Tokens(), jaxsens.Gaussian(sigma=1.0))
    with pytest.raises(ValueError, match="x holds the id 10"):
        ragged_sensitivity(
            lambda params, x, mask: x.sum(axis=1), TABLE, buckets, noise, key=KEY,
            embed=lambda params, tokens: params[tokens],
        )  # fmt: skip


def test_a_model_with_a_callback_that_must_not_be_mapped_is_measured():
    def on_host(params, x):
        shape = jax.ShapeDtypeStruct(x.shape, jnp.float32)
        scores = jax.pure_callback(
            lambda ids: np.asarray(ids, np.float32), shape, x, vmap_method="broadcast_all"
        )
        return scores.sum(axis=1) - 20.0

    assert measure(on_host, GOOD, resample(), incremental=False).num_draws > 0
    with pytest.warns(UserWarning, match="the model cannot be mapped over edits"):
        measure(on_host, GOOD, resample())
