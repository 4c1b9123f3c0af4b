"""The transformers of bits: sizes of the paper, shortcuts that change nothing, decoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens.models.layers.post_norm import EncoderLayer, FirstLayer, Layer
from jaxsens.models.tokens.bit_transformer import (
    POSITIONS,
    BitTransformer,
    ScratchpadTransformer,
    prefix_parities,
    tie_layers,
    written_by,
)
from tests.helpers.weights import weights_of

KEY = jax.random.key(0)
BITS = jax.random.bernoulli(jax.random.key(1), shape=(6, 7)).astype(int)


def count(variables):
    """Parameters beside the positions."""
    params = {name: leaf for name, leaf in variables["params"].items() if name != POSITIONS}
    return sum(leaf.size for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("width", "number"), [(128, 199_425), (64, 50_561), (32, 12_993), (4, 281)]
)
def test_as_many_parameters_as_the_paper_s(width, number):
    assert count(jax.eval_shape(BitTransformer(7, width).init, KEY, BITS)) == number


def test_the_scratchpad_model_has_as_many_parameters_as_the_paper_s():
    shapes = jax.eval_shape(ScratchpadTransformer(7).init, KEY, BITS, BITS)
    assert count(shapes) == 34_641


def test_reading_one_position_is_computing_all_of_them():
    model = BitTransformer(7, 16)
    variables = model.init(KEY, BITS)
    # With a third layer, whose weights make it the identity but for its norms, the second computes
    # every position; with two, only the last.
    params = variables["params"]
    longer = BitTransformer(7, 16, layers=3)
    zeros = jax.tree.map(jnp.zeros_like, params["layer_1"])
    ones = {
        name: {**leaf, "scale": jnp.ones_like(leaf["scale"])} if name.startswith("norm") else leaf
        for name, leaf in zeros.items()
    }
    more = longer.apply({"params": {**params, "layer_2": ones}}, BITS)
    # Its norms standardise what layer_1 gives, which starts with scale 1 and bias 0: a fixed point.
    np.testing.assert_allclose(model.apply(variables, BITS), more, atol=2e-5)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("shorter", [False, True])
def test_positions_that_are_not_read_change_nothing_but_blowup(layers, shorter):
    model = BitTransformer(7, 16, layers)
    visible = (jnp.arange(7)[None] < 5) | jnp.zeros_like(BITS, bool) if shorter else None
    variables = weights_of(model, BITS)
    outputs = [model.apply(variables, BITS, visible, every_position=on) for on in (False, True)]
    np.testing.assert_allclose(*outputs, atol=1e-5)
    gains = [
        jaxsens.blowup(model, variables, BITS, visible, every_position=on) for on in (False, True)
    ]
    assert {gain.shape[1] for gain in gains[1].gains.values()} == {7}
    for name, gain in gains[0].gains.items():
        full = gains[1].gains[name]
        read = full if gain.shape[1] == 7 else full[:, 4:5] if shorter else full[:, -1:]
        np.testing.assert_allclose(gain, read, rtol=1e-3)


def test_a_layer_by_tables_is_the_layer_itself():
    layer = Layer(16, 2)
    table = jax.random.normal(KEY, (2, 7, 16))
    tokens = table[BITS, jnp.arange(7)[None]]
    visible = (jnp.arange(7)[None] >= jnp.arange(6)[:, None]) & (jnp.arange(7)[None] < 6)
    variables = weights_of(EncoderLayer(layer), tokens, tokens)
    for seen in (None, visible):
        whole = EncoderLayer(layer).apply(variables, tokens, tokens, seen)
        tabulated = FirstLayer(layer).apply(variables, table, BITS, seen)
        np.testing.assert_allclose(tabulated, whole, atol=2e-6)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_shorter_input_is_an_input_of_a_shorter_model(layers):
    model, shorter = BitTransformer(7, 16, layers), BitTransformer(4, 16, layers)
    params = model.init(KEY, BITS)["params"]
    visible = jnp.zeros((6, 7), bool).at[:, 2:6].set(True)
    found = model.apply({"params": params}, BITS, visible)
    inside = {**params, POSITIONS: params[POSITIONS][2:6]}
    np.testing.assert_allclose(found, shorter.apply({"params": inside}, BITS[:, 2:6]), atol=1e-6)


def test_tied_layers_start_alike_and_others_do_not():
    variables = weights_of(BitTransformer(7, 16), BITS)
    apart, tied = variables["params"], tie_layers(variables)["params"]
    kernel = ("attention", "query", "kernel")

    def of(params, layer):
        found = params[layer]
        for name in kernel:
            found = found[name]
        return np.asarray(found)

    assert not np.array_equal(of(apart, "layer_0"), of(apart, "layer_1"))
    assert np.array_equal(of(tied, "layer_0"), of(tied, "layer_1"))
    assert np.array_equal(of(tied, "layer_0"), of(apart, "layer_0"))


def test_first_weights_have_pytorch_s_ranges():
    params = BitTransformer(7, 64).init(KEY, BITS)["params"]
    layer = params["layer_0"]
    for leaf, bound in [
        (layer["attention"]["key"]["kernel"], np.sqrt(6 / (4 * 64))),
        (layer["attention"]["out"]["kernel"], 1 / 8),
        (layer["feed_forward"]["up"]["kernel"], 1 / 8),
        (layer["feed_forward"]["down"]["bias"], 1 / 8),
        (params["head"]["kernel"], 1 / 8),
    ]:
        assert 0.8 * bound < np.abs(leaf).max() <= bound
    assert not layer["attention"]["query"]["bias"].any()
    assert 0.7 < np.std(params["positions"]) < 1.3


def test_the_decoder_sees_what_was_written_before_and_nothing_else():
    model = ScratchpadTransformer(7, 16)
    written = prefix_parities(BITS)
    variables = weights_of(model, BITS, written)
    clean = model.apply(variables, BITS, written)
    other = model.apply(variables, BITS, written.at[:, 3].set(1 - written[:, 3]))
    np.testing.assert_allclose(clean[:, :4], other[:, :4], atol=1e-6)
    assert (np.abs(clean - other)[:, 4:].max(axis=1) > 1e-4).all()


def test_what_it_writes_is_what_it_would_write_after_it():
    model = ScratchpadTransformer(7, 16)
    variables = weights_of(model, BITS, BITS)
    # A bias that makes ones and zeros about equally frequent.
    middle = jnp.median(model.apply(variables, BITS, prefix_parities(BITS)))
    head = variables["params"]["head"]
    params = {**variables["params"], "head": {**head, "bias": head["bias"] + 0.5 - middle}}
    written = written_by(model, {"params": params}, BITS)
    assert 0.1 < written.mean() < 0.9
    again = model.apply({"params": params}, BITS, written) > 0.5
    np.testing.assert_array_equal(again, written.astype(bool))


def test_prefix_parities_end_with_the_parity():
    np.testing.assert_array_equal(prefix_parities(BITS)[:, -1], BITS.sum(axis=1) % 2)
