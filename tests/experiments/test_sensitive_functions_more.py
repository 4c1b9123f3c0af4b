"""Sensitive functions: random weights, partial functions, scratchpads, lengths; and a tiny run."""

import importlib
import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsens
from jaxsens.models import BitTransformer, ScratchpadTransformer
from jaxsens.models.tokens.bit_transformer import POSITIONS, prefix_parities, tie_layers, written_by
from jaxsens.run import load_experiment, main

experiment = load_experiment("sensitive-functions")


def module(name):
    return importlib.import_module(f"{experiment.__package__}.{name}")


lengths, networks, partial_functions, scratchpads = map(
    module, ("lengths", "random_networks", "partial_functions", "scratchpads")
)
generalisation, length, random_init, scratchpad = (
    module(f"parts.{name}") for name in ("generalisation", "length", "random_init", "scratchpad")
)
FUNCTIONS, table = module("functions").FUNCTIONS, module("functions").table
Lanes, PRESETS = module("training").Lanes, experiment.PRESETS
KEY = jax.random.key(3)

# --- Random weights -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "sensitivity"), [("parity", 5.0), ("first", 1.0)])
def test_the_median_finds_a_balanced_function_in_any_unit(name, sensitivity):
    outputs = 7.0 + 0.1 * table(name, 5)[None]
    found = networks.thresholded(outputs, "median")
    assert (found["sensitivity"], found["ones"]) == ([sensitivity], [0.5])
    # All outputs are above 0: a constant, which is not sensitive whatever the network computes.
    found = networks.thresholded(outputs, "zero")
    assert (found["sensitivity"], found["ones"]) == ([0.0], [1.0])


@pytest.mark.parametrize("ones", [0, 1, 3])
def test_the_mean_over_all_functions_with_so_many_ones(ones):
    tables = [t for t in itertools.product([-1.0, 1.0], repeat=8) if t.count(1.0) == ones]
    found = networks.thresholded(jnp.array(tables), "zero")
    expected = networks.expected_sensitivity(found["ones"], 3)
    np.testing.assert_allclose(found["sensitivity"].mean(), expected[0], rtol=1e-6)


def test_random_networks_are_those_that_training_starts_from():
    model = BitTransformer(3, 4)
    bits = jnp.arange(8)[:, None] >> jnp.arange(3)[None] & 1
    found = networks.random_outputs(model, 3, 8, key=KEY)

    @jax.jit
    def outputs(key):
        return model.apply(tie_layers(model.init(key, bits[:1])), bits)

    for number in (0, 7):
        expected = outputs(jax.random.fold_in(KEY, number))
        np.testing.assert_allclose(found[number], expected, atol=1e-5)


@pytest.mark.parametrize("kind", networks.KINDS)
def test_a_network_does_not_depend_on_how_many_are_drawn(kind):
    model = networks.network(kind, 3, 4)
    few, many = (networks.random_outputs(model, 3, num, key=KEY) for num in (8, 9))
    np.testing.assert_allclose(few, many[:8], atol=1e-6)
    assert np.ptp(np.asarray(many), axis=1).min() > 0
    assert len(np.unique(np.asarray(many)[:, 0])) == 9


def test_random_functions_have_half_of_all_sensitivities():
    found = networks.thresholded(networks.random_outputs(None, 6, 200, key=KEY), "median")[
        "sensitivity"
    ]
    expected = networks.expected_sensitivity(np.array([0.5]), 6)[0]
    assert abs(found.mean() - expected) < 4 * found.std() / math.sqrt(200)


def drawn(sensitivity):
    values = sensitivity + np.linspace(-0.1, 0.1, 5)
    return {cut: {"sensitivity": values, "ones": np.full(5, 0.5)} for cut in ("median", "zero")}


@pytest.mark.parametrize(("mine", "holds"), [(1.0, [True, True, False]), (1.9, [False] * 3)])
def test_claims_about_random_networks(mine, holds):
    by_kind = {
        "transformer": drawn(mine),
        "MLP": drawn(1.6),
        "LSTM": drawn(1.0),
        "random function": drawn(3.5),
    }
    assert [claim.holds for claim in random_init.claims_of((7, 32), by_kind)] == holds


# --- Partial functions ----------------------------------------------------------------------------


def test_sets_of_inputs_are_nested_and_extensions_keep_the_labels():
    partials = partial_functions.partial_functions(PRESETS["quick"])
    num = 2 ** PRESETS["quick"].generalisation_bits
    assert [(p.function, p.size) for p in partials[:3]] == [(0, 16), (0, 64), (1, 16)]
    small, large = partials[:2]
    assert {*small.points} < {*large.points}
    for p in partials:
        assert len({*p.points}) == p.size
        np.testing.assert_array_equal(p.random[p.points], p.target[p.points])
        others = np.setdiff1d(np.arange(num), p.points)
        # Elsewhere, coins: neither the target nor its opposite.
        assert 0.2 < (p.random[others] == p.target[others]).mean() < 0.8
    assert not np.array_equal(partials[0].target, partials[2].target)


def parity(n):
    return np.asarray(table("parity", n)) > 0.5


def extension(function, size, *, learned, random, n=4):
    """Labels 0 at the first inputs; what is learned and what random elsewhere is given."""
    known = np.arange(2**n) < size
    target = np.where(known, False, parity(n))
    partial = partial_functions.Partial(
        function, 0, target, np.flatnonzero(known), np.where(known, False, random)
    )
    return partial_functions.Extension(partial, np.where(known, False, learned))


def test_a_fit_is_right_at_all_labels_and_its_accuracy_is_that_elsewhere():
    fit = extension(0, 4, learned=parity(4), random=parity(4))
    assert (fit.fits, fit.open, fit.other_accuracy) == (True, True, 1.0)
    assert not partial_functions.Extension(fit.partial, ~fit.learned).fits
    all_known = extension(0, 16, learned=parity(4), random=parity(4))
    assert not all_known.open
    assert math.isnan(all_known.other_accuracy)


CONSTANT = np.zeros(16, bool)


def test_less_sensitive_is_judged_against_the_random_extension():
    smooth = [extension(f, 2, learned=CONSTANT, random=parity(4)) for f in range(3)]
    rough = [extension(f, 2, learned=parity(4), random=CONSTANT) for f in range(3)]
    assert generalisation.less_sensitive(smooth).holds
    assert not generalisation.less_sensitive(rough).holds
    assert not generalisation.less_sensitive([*smooth, rough[0]]).holds
    assert not generalisation.less_sensitive([]).holds


def test_sensitivity_must_grow_from_each_size_to_the_next():
    # Parities of few and of more bits: more labels, more sensitivity, or the other way round.
    def fits(*bits):
        tables = [np.tile(parity(b), 2 ** (4 - b)) for b in bits]
        return [
            extension(function, size, learned=each, random=each)
            for function in (0, 1)
            for size, each in enumerate(tables, start=1)
        ]

    up, down = fits(1, 3), fits(3, 1)
    assert generalisation.grows_with_size(up).holds
    assert not generalisation.grows_with_size(down).holds
    assert not generalisation.grows_with_size(up[:1]).holds


def model_of(extension, kind, sharpness, loss=1e-4):
    record = {"loss": loss, "change": [[sharpness, 0.0]] * 2, "increase": [[0.0, sharpness]] * 2}
    return partial_functions.Retrained(extension, kind, 0, record)


def pairs_of(num, learned, random, loss):
    fits = [extension(f, 2, learned=CONSTANT, random=parity(4)) for f in range(num)]
    return [
        model
        for f, fit in enumerate(fits)
        for model in (
            model_of(fit, "learned", learned + 0.001 * f, loss),
            model_of(fit, "random", random),
        )
    ]


@pytest.mark.parametrize(
    ("num", "learned", "random", "loss", "holds"),
    [
        (8, 0.1, 0.3, 1e-4, True),
        (7, 0.1, 0.3, 1e-4, False),  # too few
        (8, 0.3, 0.1, 1e-4, False),
        (8, 0.1, 0.3, 2e-3, False),  # one of each pair did not learn
        (8, 0.1, 0.3, None, False),  # or diverged
    ],
)
def test_less_sharp_needs_enough_pairs_that_learnt(num, learned, random, loss, holds):
    models = pairs_of(num, learned, random, loss)
    for kind in ("definition", "released"):
        pairs = generalisation.strict_pairs(models)
        claim = generalisation.less_sharp(pairs, generalisation.num_pairs(models), kind)
        assert claim.holds == holds
        assert claim.values["pairs"] == len(models) // 2


def test_sharpness_is_ordered_with_sensitivity_within_each_function():
    def models(sign):
        fits = [
            extension(f, size, learned=CONSTANT, random=parity(4))
            for f in (0, 1)
            for size in (2, 4)
        ]
        both = [model_of(fit, kind, 0.0) for fit in fits for kind in ("learned", "random")]
        return [model_of(m.extension, m.kind, 1 + sign * m.sensitivity / 10) for m in both]

    assert generalisation.ordered_with_sensitivity(models(1), "definition").holds
    assert not generalisation.ordered_with_sensitivity(models(-1), "definition").holds
    assert not generalisation.ordered_with_sensitivity([], "definition").holds


# --- Scratchpads ----------------------------------------------------------------------------------


def test_sharpness_of_a_scratchpad_is_that_of_the_library():
    model, asked_strings = ScratchpadTransformer(3, 8, layers=1), 16
    bits = jnp.zeros((1, 3), jnp.int32)
    params = jax.jit(model.init)(jax.random.key(0), bits, bits)
    asked = scratchpads.Asked(model, 0.1, 3, asked_strings)
    found = jax.jit(scratchpads.measure_lane, static_argnums=0)(asked, params, KEY)

    for_inputs, for_directions = jax.random.split(KEY, 2)
    inputs = jax.random.randint(for_inputs, (asked_strings, 3), 0, 2)
    estimate = jaxsens.sharpness(
        lambda params, x: 2 * model.apply(params, x, prefix_parities(x)),
        params,
        inputs,
        jaxsens.Sphere(0.1 * math.sqrt(module("measuring").num_parameters(params))),
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
    params = jax.jit(model.init)(KEY, jnp.zeros((1, 4), jnp.int32))
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

TINY = (
    "--exp sensitive-functions --parts generalisation scratchpad random-init length --width 4 "
    "--layers 1 --heads 1 --batch 4 --block 4 --num-directions 2 --generalisation-bits 3 "
    "--generalisation-sizes 1 2 --generalisation-random-sizes 2 --generalisation-functions 2 "
    "--generalisation-steps 3 --scratchpad-lengths 2 3 --scratchpad-width 4 --scratchpad-steps 2 "
    "--scratchpad-seeds 2 --scratchpad-batch 4 --scratchpad-strings 4 --random-init-bits 3 "
    "--random-init-widths 4 --random-init-networks 4 --length-trained 2 --length-asked 3 "
    "--length-steps 2 --length-seeds 2 --length-inputs 8"
)


def run_in(name, tmp_path):
    assert main([*TINY.split(), "--workdir", name]) == 0
    return json.loads((tmp_path / name / "results.json").read_text())


def test_a_tiny_run(tmp_path, check_claims):
    results = run_in("run", tmp_path)
    check_claims(results["claims"])
    assert set(results["values"]) == {"generalisation", "scratchpad", "random-init", "length"}
    assert len(results["tables"]) == 4
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
            assert main([*TINY.split(), "--workdir", "stopped"]) == 1
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
