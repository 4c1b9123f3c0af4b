"""Sensitive functions: exact values, lanes, measures against the library's."""

import dataclasses
import functools
import importlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens import Gaussian, Sphere, boolean
from jaxsens.measurement import metrics
from jaxsens.models import BitTransformer
from jaxsens.models.tokens.bit_transformer import POSITIONS
from jaxsens.perturbations import weight_noise
from jaxsens.run import load_experiment
from jaxsens.training import lanes as many

experiment = load_experiment("sensitive-functions")
functions, training, measuring, stages = (
    importlib.import_module(f"{experiment.__package__}.{name}")
    for name in ("functions", "training", "measuring", "stages")
)
KEY = jax.random.key(0)
MODEL = BitTransformer(3, 8)
TASK = training.BitTask(MODEL, batch=16)


def test_hyphen_and_underscore_name_the_same_experiment():
    assert load_experiment("sensitive_functions") is experiment
    assert set(experiment.PRESETS) == set(experiment.COST) == {"quick", "small", "paper"}


# --- Functions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", functions.FUNCTIONS)
@pytest.mark.parametrize("n", [pytest.param(3, marks=pytest.mark.slow), 4, 8])
def test_average_sensitivity_by_table_spectrum_and_library(name, n):
    values = 2 * functions.table(name, n) - 1
    known = functions.known_sensitivity(name, n)
    assert functions.sensitivity_of_table(values) == pytest.approx(known, rel=1e-6)
    spectrum = float(boolean.average_sensitivity_from_fourier(values))
    assert spectrum == pytest.approx(known, rel=1e-5)
    estimate = jaxsens.sensitivity(
        lambda table, x: table[boolean.index_of(x)],
        values,
        boolean.cube(n),
        jaxsens.Perturbation(jaxsens.Bits(), jaxsens.Flip()),
        "all",
        key=KEY,
        metric=metrics.squared_change,
    )
    # The library's is a mean over positions, without the ¼ of ±1 outputs.
    assert n * estimate.mean / 4 == pytest.approx(known, rel=1e-6)


@pytest.mark.parametrize(
    ("n", "known"), [(4, 1.5), (8, 2.1875), (10, 2.4609), (20, 3.524), (30, 4.334)]
)
def test_majority_s_sensitivity_is_the_spec_s(n, known):
    assert functions.known_sensitivity("majority", n) == pytest.approx(known, abs=5e-4)


def test_functions_are_those_of_the_cube():
    for name, function in (("parity", boolean.parity), ("majority", boolean.majority)):
        table = 1 - 2 * np.asarray(functions.table(name, 5))  # −1 stands for true there
        np.testing.assert_array_equal(table, boolean.table_of(function, 5))
    # Strict: a tie is no majority.
    assert functions.table("majority", 2).tolist() == [0, 0, 0, 1]


# --- Training -------------------------------------------------------------------------------------


def one_lane(**changes):
    lane = training.Lanes(KEY, jnp.float32(1e-3), jnp.float32(0.1), jnp.int32(0))
    return dataclasses.replace(lane, **changes)


@pytest.mark.parametrize("batch", [8, 100])
def test_all_inputs_weighted_are_the_batch_that_was_drawn(batch):
    task = dataclasses.replace(TASK, batch=batch)
    points, bits, weights = task.drawn(one_lane(), KEY)
    drawn = np.asarray(jax.random.randint(KEY, (batch,), 0, 8))
    assert points.tolist() == list(range(8))
    np.testing.assert_allclose(weights, np.bincount(drawn, minlength=8) / batch, atol=1e-6)
    np.testing.assert_array_equal(bits, (np.arange(8)[:, None] >> np.arange(3)) & 1)


def test_fewer_inputs_than_there_are_come_as_drawn():
    task = dataclasses.replace(TASK, batch=5)
    points, bits, weights = task.drawn(one_lane(), KEY)
    assert (len(points), bits.shape, weights.tolist()) == (5, (5, 3), [np.float32(0.2)] * 5)
    only = task.drawn(one_lane(points=jnp.array([6, 1, 4])), KEY)
    assert only[0].tolist() == [6, 1, 4]
    assert float(only[2].sum()) == pytest.approx(1)


def test_bits_beyond_numbers_are_drawn_one_by_one():
    task = training.BitTask(BitTransformer(40, 8), batch=64)
    points, bits, _ = task.drawn(one_lane(), KEY)
    assert points is None
    assert bits.shape == (64, 40)
    assert 0.4 < float(bits.mean()) < 0.6
    np.testing.assert_array_equal(
        training.values_of(one_lane(), points, bits), np.asarray(bits).sum(axis=1) % 2
    )


def test_a_function_and_its_table_are_the_same_target():
    params, loss = jax.jit(TASK.init)(one_lane()), jax.jit(TASK.loss)
    for number, name in enumerate(functions.FUNCTIONS):
        by_name = one_lane(function=jnp.int32(number))
        by_table = one_lane(function=None, table=functions.table(name, 3))
        losses = [loss(params, lane, jnp.int32(7)) for lane in (by_name, by_table)]
        assert float(losses[0]) == float(losses[1]) > 0
    with pytest.raises(ValueError, match="a lane needs a function or a table"):
        TASK.loss(params, one_lane(function=None), jnp.int32(0))


def test_lanes_of_a_seed_share_first_weights_and_layers_are_tied():
    runs = [training.Run(name, 3, 1e-3, 0.1) for name in ("parity", "mean")]
    state = many.start(TASK, training.make_lanes(runs))
    for leaf in jax.tree.leaves(state.params):
        np.testing.assert_array_equal(leaf[0], leaf[1])
    first, second = (state.params["params"][f"layer_{i}"] for i in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, second)


# --- Measures -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured():
    """Three lanes, the last two equal, with weights that are not the first ones."""
    runs = [
        training.Run(name, seed, 1e-2, 0.1) for name, seed in (("parity", 0), *2 * [("mean", 1)])
    ]
    lanes = training.make_lanes(runs)
    params = many.start(TASK, lanes).params
    params = jax.tree.map(lambda leaf: 1.5 * leaf, params)
    spec = measuring.Measurement(MODEL, epsilon=0.05, num_directions=6, num_inputs=8)
    return lanes, params, spec, measuring.measure_lanes(spec, lanes, params, key=KEY)


def lane_of(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


def bits_of_all(n):
    return functions.bits_of(jnp.arange(2**n), n)


@pytest.mark.parametrize("noise", measuring.NOISES)
def test_sharpness_is_the_library_s(measured, noise):
    _, params, _, found = measured
    mine = lane_of(params, 1)
    mask = {"params": {name: name != POSITIONS for name in mine["params"]}}
    radius = 0.05 * math.sqrt(measuring.num_parameters(mine))
    noises = {
        "sphere": Sphere(radius),
        "gaussian": Gaussian(sigma=0.05),
        "matched": Sphere(measuring.PAPER_RADIUS),
    }
    estimate = jaxsens.sharpness(
        lambda params, bits: 2 * MODEL.apply(params, bits) - 1,
        mine,
        bits_of_all(3),
        noises[noise],
        6,
        key=jax.random.fold_in(jax.random.fold_in(KEY, 1), 0),
        mask=mask,
    )
    draws = measuring.draws_of(lane_of_record(found, 1), "change", noise)
    np.testing.assert_allclose(draws, estimate.squared.per_draw, rtol=2e-3)
    assert draws.min() > 0


def lane_of_record(found, i):
    return {name: values[i] for name, values in found.items()}


def test_the_released_sharpness_is_four_times_the_increase_of_the_loss(measured):
    _, params, _, found = measured
    mine, bits = lane_of(params, 0), bits_of_all(3)
    targets = functions.table("parity", 3)
    selected = measuring.selected_weights(mine)
    key = jax.random.fold_in(jax.random.fold_in(KEY, 0), 0)

    def loss(params):
        return float(jnp.mean((MODEL.apply(params, bits) - targets) ** 2))

    assert found["loss"][0] == pytest.approx(loss(mine), rel=1e-5)
    for number in range(6):
        xi = weight_noise.directions(key, number, mine)
        noise = Gaussian(sigma=0.05)
        moved = weight_noise.perturb(noise, xi, mine, selected)
        noisy = weight_noise.with_weights(mine, selected, moved)
        expected = 4 * (loss(noisy) - loss(mine))
        got = found["increase"][0][number][measuring.NOISES.index("gaussian")]
        assert got == pytest.approx(expected, rel=5e-3, abs=1e-5)


def test_blowup_norm_and_sensitivity_are_the_library_s(measured):
    _, params, _, found = measured
    for i in range(2):
        mine, bits = lane_of(params, i), bits_of_all(3)
        blowup = jaxsens.blowup(MODEL, mine, bits, every_position=True)
        assert {gain.shape[1] for gain in blowup.gains.values()} == {3}
        assert found["blowup"][i] == pytest.approx(blowup.mean, rel=1e-4)
        squared = float(np.mean(blowup.per_example**2))
        assert found["blowup_squared"][i] == pytest.approx(squared, rel=1e-4)
        released = jaxsens.blowup(MODEL, mine, bits, kind="released").mean
        assert found["blowup_released"][i] == pytest.approx(released, rel=1e-4)
        leaves = dict(mine["params"])
        leaves.pop(POSITIONS)
        norm = math.sqrt(sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(leaves)))
        assert found["norm"][i] == pytest.approx(norm, rel=1e-5)
        outputs = 2 * np.asarray(MODEL.apply(mine, bits)) - 1
        by_flips = functions.sensitivity_of_table(outputs)
        assert found["sensitivity"][i] == pytest.approx(by_flips, rel=1e-4)
        assert sum(found["profile"][i]) == pytest.approx(np.mean(outputs**2), rel=1e-4)
        left = found["theorem4_left"][i] * math.sqrt(3 * math.log(3))
        assert left == pytest.approx(by_flips, rel=1e-4)
        assert found["theorem4_right"][i] == pytest.approx(2 * squared, rel=1e-4)


def test_every_model_has_directions_of_its_own(measured):
    _, params, _, found = measured
    for leaf in jax.tree.leaves(params):
        np.testing.assert_array_equal(leaf[1], leaf[2])
    assert found["loss"][1] == pytest.approx(found["loss"][2], rel=1e-6)
    assert np.abs(np.array(found["change"][1]) - found["change"][2]).min() > 0


def test_a_sample_of_inputs_leaves_out_what_needs_all(measured):
    lanes, params, spec, full = measured
    some = dataclasses.replace(spec, num_inputs=6, num_directions=2)
    assert not some.exact
    found = measuring.measure_lanes(some, lanes, params, key=KEY)
    assert not {"sensitivity", "profile", "theorem4_left"} & set(found)
    assert found["norm"] == full["norm"]


@pytest.mark.parametrize("chunk", [4, 3])
def test_many_inputs_go_in_chunks(measured, monkeypatch, chunk):
    lanes, params, spec, full = measured
    monkeypatch.setattr(measuring, "_CHUNK", chunk)
    measure = jax.jit(functools.partial(measuring.measure_lane, spec))
    found = measure(lane_of(lanes, 0), lane_of(params, 0), jax.random.fold_in(KEY, 0))
    np.testing.assert_allclose(found["change"], full["change"][0], rtol=1e-3)
    assert float(found["blowup"]) == pytest.approx(full["blowup"][0], rel=1e-5)


def test_models_that_diverged_are_none(measured):
    lanes, params, spec, _ = measured
    broken = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), params)
    found = measuring.measure_lanes(spec, lanes, broken, key=KEY)
    assert found["loss"][0] is None
    assert found["loss"][1] is not None
    model = stages.TrainedModel(
        "s", 3, training.Run("parity", 0, 1.0, 0.0), lane_of_record(found, 0)
    )
    assert not model.finite
    assert not model.learnt
