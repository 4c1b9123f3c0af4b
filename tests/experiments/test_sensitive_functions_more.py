"""Sensitive functions: scratchpads and lengths; a tiny run of four parts."""

import importlib
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens.models import BitTransformer, ScratchpadTransformer
from jaxsens.models.tokens.bit_transformer import POSITIONS, prefix_parities, written_by
from jaxsens.run import load_experiment, main
from tests.helpers.weights import weights_of

experiment = load_experiment("sensitive-functions")
lengths, partial_functions, scratchpads, generalisation, length, scratchpad, training, measuring = (
    importlib.import_module(f"{experiment.__package__}.{name}")
    for name in (
        *("lengths", "partial_functions", "scratchpads", "parts.generalisation", "parts.length"),
        *("parts.scratchpad", "training", "measuring"),
    )
)
functions = importlib.import_module(f"{experiment.__package__}.functions")
FUNCTIONS, table = functions.FUNCTIONS, functions.table
Lanes, PRESETS = training.Lanes, experiment.PRESETS
KEY = jax.random.key(3)

# --- Scratchpads ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_sharpness_of_a_scratchpad_is_that_of_the_library():
    model, asked_strings = ScratchpadTransformer(3, 8, layers=1), 16
    bits = jnp.zeros((1, 3), jnp.int32)
    params = weights_of(model, bits, bits)
    asked = scratchpads.Asked(model, 0.1, 3, asked_strings)
    found = jax.jit(scratchpads.measure_lane, static_argnums=0)(asked, params, KEY)

    for_inputs, for_directions = jax.random.split(KEY, 2)
    inputs = jax.random.randint(for_inputs, (asked_strings, 3), 0, 2)
    estimate = jaxsens.sharpness(
        lambda params, x: 2 * model.apply(params, x, prefix_parities(x)),
        params,
        inputs,
        jaxsens.Sphere(0.1 * math.sqrt(measuring.num_parameters(params))),
        3,
        key=for_directions,
        mask={"params": {name: name != POSITIONS for name in params["params"]}},
    )
    squared = np.asarray(estimate.squared.per_example).mean()
    np.testing.assert_allclose(found["change"] * 3, squared, rtol=1e-4)

    written = written_by(model, params, inputs)
    right = np.asarray(written == prefix_parities(inputs))
    np.testing.assert_allclose(found["strings"], right.all(axis=1).mean())
    np.testing.assert_allclose(found["places"], right.mean(), rtol=1e-6)


def pad(n, seed, sharpness, strings=1.0):
    record = {"change": sharpness, "increase": sharpness, "last": sharpness, "strings": strings}
    return scratchpads.Scratchpad(
        n, seed, {**record, "places": 1.0, "places_forced": 1.0, "loss": 0.0}
    )


def points(by_length, strings=1.0):
    return [
        scratchpad.Point(n, tuple(pad(n, i, value, strings) for i, value in enumerate(values)))
        for n, values in by_length.items()
    ]


def test_a_slope_over_doublings_and_its_rises():
    found = points({4: [0.1, 0.1], 8: [0.2, 0.2], 16: [0.3, 0.3]})
    slope = scratchpad.slope_of(found, "definition")
    np.testing.assert_allclose(slope, 0.1, atol=1e-12)
    assert scratchpad.rises(found, "definition") == [math.inf, math.inf]
    # Means 1 and 2 with variances 0.02, two runs each: one over √0.02.
    (rise,) = scratchpad.rises(points({4: [0.9, 1.1], 8: [1.9, 2.1]}), "definition")
    np.testing.assert_allclose(rise, 1 / math.sqrt(0.02))


@pytest.mark.parametrize(
    ("by_length", "strings", "holds"),
    [
        ({4: [0.1, 0.2], 8: [0.1, 0.2], 16: [0.05, 0.1]}, 1.0, True),
        ({4: [0.1, 0.11], 8: [0.5, 0.51]}, 1.0, False),
        ({4: [0.1, 0.2], 8: [0.1, 0.2]}, 0.99, False),  # nothing was learnt
        ({4: [0.1, 0.2], 8: [0.1]}, 1.0, False),  # a length without an interval is not left out
    ],
)
def test_sharpness_of_scratchpads_must_not_rise_at_any_length(by_length, strings, holds):
    claim = scratchpad.does_not_grow(points(by_length, strings), "definition")
    assert claim.holds == holds
    assert scratchpad.writes_strings(points(by_length, strings)).holds == (strings == 1.0)


def test_a_scratchpad_that_diverged_has_not_learnt():
    assert pad(4, 0, 0.1).learnt
    assert not pad(4, 0, None).learnt


# --- Lengths --------------------------------------------------------------------------------------


def test_inputs_stand_anywhere_and_functions_see_nothing_else():
    sizes = jnp.array([1, 2, 5] * 200)
    bits, visible = (np.asarray(each) for each in lengths.placed(sizes, 5, key=KEY))
    np.testing.assert_array_equal(visible.sum(axis=1), sizes)
    # Every position is seen by inputs of one bit.
    assert visible[np.asarray(sizes) == 1].any(axis=0).all()
    inside = [row[seen] for row, seen in zip(bits, visible, strict=True)]
    expected = {
        "parity": [row.sum() % 2 for row in inside],
        "majority": [2 * row.sum() > len(row) for row in inside],
        "first": [row[0] for row in inside],
    }
    # Contiguous: between the first and the last there is no gap.
    for seen in visible:
        at = np.flatnonzero(seen)
        assert at[-1] - at[0] + 1 == len(at)
    for name, values in expected.items():
        number = jnp.int32(FUNCTIONS.index(name))
        lane = Lanes(KEY, jnp.float32(0), jnp.float32(0), function=number)
        found = lengths.values_of(lane, jnp.asarray(bits), jnp.asarray(visible))
        np.testing.assert_array_equal(found, np.array(values, float))


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("name", lengths.ASKED_FUNCTIONS)
def test_the_better_constant(name, n):
    ones = float(table(name, n).mean())
    assert lengths.base_rate(name, n) == max(ones, 1 - ones)


def test_a_model_that_says_0_is_right_as_often_as_the_value_is_0():
    model = BitTransformer(4, 4, layers=1)
    params = weights_of(model, jnp.zeros((1, 4), jnp.int32))
    zeros = jax.tree.map(lambda leaf: jnp.zeros((2, *leaf.shape)), params)
    places = jnp.array([FUNCTIONS.index(name) for name in ("parity", "majority")])
    lanes = Lanes(jax.random.split(KEY, 2), jnp.zeros(2), jnp.zeros(2), function=places)
    found = np.array(lengths.accuracies(model, lanes, zeros, (1, 2, 4), 2_000, key=KEY))
    expected = np.array([[0.5, 0.5, 0.5], [0.5, 0.75, lengths.base_rate("majority", 4)]])
    assert (np.abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / 2_000)).all()
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, zeros)
    assert not np.any(lengths.accuracies(model, lanes, broken, (1,), 10, key=KEY))


def length_run(function, seed, longer, trained=1.0):
    return lengths.LengthRun(function, seed, 2, {1: 1.0, 2: trained, 4: longer})


@pytest.mark.parametrize(
    ("of_parity", "trained", "fails", "better"),
    [(0.5, 1.0, True, True), (1.0, 1.0, False, False), (0.5, 0.9, False, False)],
)
def test_claims_about_longer_inputs(of_parity, trained, fails, better):
    runs = [length_run("parity", s, of_parity - 0.01 * s, trained) for s in range(3)]
    runs += [length_run("first", s, 0.95 + 0.01 * s) for s in range(3)]
    assert length.parity_fails(runs, 4).holds == fails
    claim = length.generalises_better(runs, "first", 4)
    assert claim.holds == better
    assert length_run("majority", 0, 0.6875).skill(4) == 0.0


# --- The experiment -------------------------------------------------------------------------------

PARTS = ("generalisation", "scratchpad", "random-init", "length")
TINY = (
    "--exp sensitive-functions --width 4 "
    "--layers 1 --heads 1 --batch 4 --block 4 --num-directions 2 --generalisation-bits 3 "
    "--generalisation-sizes 1 2 --generalisation-random-sizes 2 --generalisation-functions 2 "
    "--generalisation-steps 3 --scratchpad-lengths 2 3 --scratchpad-width 4 --scratchpad-steps 2 "
    "--scratchpad-seeds 2 --scratchpad-batch 4 --scratchpad-strings 4 --random-init-bits 3 "
    "--random-init-widths 4 --random-init-networks 4 --length-trained 2 --length-asked 3 "
    "--length-steps 2 --length-seeds 2 --length-inputs 8"
)


def run_in(name, tmp_path, parts=PARTS):
    assert main([*TINY.split(), "--parts", *parts, "--workdir", name]) == 0
    return json.loads((tmp_path / name / "results.json").read_text())


@pytest.mark.parametrize("parts", [PARTS[2:3], pytest.param(PARTS, marks=pytest.mark.slow)])
def test_a_tiny_run(parts, tmp_path, check_claims):
    results = run_in("run", tmp_path, parts)
    check_claims(results["claims"])
    assert set(results["values"]) == set(parts)
    assert len(results["tables"]) == len(parts)
    for figure in results["figures"]:
        assert (tmp_path / "run" / figure["file"]).stat().st_size > 5_000


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise RuntimeError("stopped")

    places = [(generalisation, "retrained"), (scratchpads, "measure_lanes")]
    for stopped_in, function in [*places, (lengths, "accuracies")]:
        with monkeypatch.context() as patch:
            patch.setattr(stopped_in, function, stop)
            assert main([*TINY.split(), "--parts", *PARTS, "--workdir", "stopped"]) == 1
    stopped, whole = run_in("stopped", tmp_path), run_in("whole", tmp_path)
    for field in ("claims", "tables", "values", "summary"):
        assert stopped[field] == whole[field]


def test_the_paper_preset_is_the_paper_s():
    config = PRESETS["paper"]
    assert len(partial_functions.partial_functions(config)) == 400
    assert config.generalisation_retrain_seeds == 5
    assert (len(config.scratchpad_lengths), max(config.scratchpad_lengths)) == (30, 1024)
    assert (config.scratchpad_width, config.scratchpad_batch) == (32, 128)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--generalisation-sizes 3 64 --generalisation-random-sizes 3", "divide the largest"),
        ("--generalisation-sizes 64 256", "at most 2^7"),
        ("--generalisation-random-sizes 32", "not among"),
        ("--length-asked 4", "longer than length_trained=4"),
        ("--random-init-widths 6", "random_init_widths"),
        ("--scratchpad-width 2", "scratchpad_width"),
        ("--scratchpad-lengths 4 100000", "shorter --scratchpad-lengths"),
        ("--parts lengths", "length"),
    ],
)
def test_bad_arguments_end_with_one_line(flags, message, capsys):
    assert main(["--exp", "sensitive-functions", *flags.split()]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
