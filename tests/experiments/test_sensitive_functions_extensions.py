"""Sensitive functions: networks with random weights, extensions of partial functions."""

import importlib
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.models import BitTransformer
from jaxsens.models.tokens.bit_transformer import tie_layers
from jaxsens.run import load_experiment

experiment = load_experiment("sensitive-functions")
networks, partial_functions, generalisation, random_init, functions = (
    importlib.import_module(f"{experiment.__package__}.{name}")
    for name in (
        *("random_networks", "partial_functions"),
        *("parts.generalisation", "parts.random_init", "functions"),
    )
)
table, PRESETS = functions.table, experiment.PRESETS
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
