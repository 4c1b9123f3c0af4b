"""Sensitive functions: exact values, lanes, measures against the library's, claims, a tiny run."""

import dataclasses
import importlib
import json
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
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.run import load_experiment, main
from jaxsens.training import lanes as many

experiment = load_experiment("sensitive-functions")
functions, training, measuring, stages = (
    importlib.import_module(f"{experiment.__package__}.{name}")
    for name in ("functions", "training", "measuring", "stages")
)
scaling, claims, scaling_figures, tradeoff, dynamics, inequality = (
    importlib.import_module(f"{experiment.__package__}.parts.{name}")
    for name in (
        *("scaling", "scaling_claims", "scaling_figures", "tradeoff", "dynamics", "inequality"),
    )
)
KEY = jax.random.key(0)
MODEL = BitTransformer(3, 8)
TASK = training.BitTask(MODEL, batch=16)


def test_hyphen_and_underscore_name_the_same_experiment():
    assert load_experiment("sensitive_functions") is experiment
    assert set(experiment.PRESETS) == set(experiment.COST) == {"quick", "small", "paper"}


# --- Functions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", functions.FUNCTIONS)
@pytest.mark.parametrize("n", [3, 4, 8])
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
    params, loss = TASK.init(one_lane()), jax.jit(TASK.loss)
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
        blowup = jaxsens.blowup(MODEL, mine, bits)
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


def test_many_inputs_go_in_chunks(measured, monkeypatch):
    lanes, params, spec, full = measured
    monkeypatch.setattr(measuring, "_CHUNK", 4)
    found = measuring.measure_lane(
        spec, lane_of(lanes, 0), lane_of(params, 0), jax.random.fold_in(KEY, 0)
    )
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


# --- Claims, of made-up models --------------------------------------------------------------------


def made_up(function, n, seed=0, sharp=0.1, *, loss=1e-5, decay=0.1, norm=10.0, blowup=2.0):
    """A model with these numbers; its sensitivity is the function's own and the noise leaves it."""
    known = functions.known_sensitivity(function, n)
    table = [[sharp] * 3, [sharp] * 3]
    record = {
        "loss": loss,
        "norm": norm,
        "change": table,
        "increase": (2 * np.array(table)).tolist(),
        "blowup": 10 * blowup,
        "blowup_released": blowup,
        "blowup_squared": 100 * blowup**2,
        "sensitivity": known,
        "noisy_sensitivity": [[known] * 3] * 2,
        "profile": [1.0] + [0.0] * n,
        "noisy_profile": [[1.0] + [0.0] * n] * 3,
        "theorem4_left": 1.0,
        "theorem4_right": 2.0,
        "theorem4_constant": 0.5,
    }
    return stages.TrainedModel("made-up", n, training.Run(function, seed, 1e-3, decay), record)


def made_up_points(slope=0.1, control=0.0, unlearnt=()):
    models = [
        made_up(
            "parity", n, seed, slope * n + 0.01 * seed, loss=0.2 if (n, seed) in unlearnt else 1e-5
        )
        for n in (4, 8)
        for seed in range(3)
    ]
    models += [
        made_up(name, n, seed, 0.1 + control * (n - 4) + 0.001 * seed)
        for name in functions.CONTROLS
        for n in (4, 8)
        for seed in range(2)
    ]
    return stages.points_of(models)


def holds(found):
    return {claim.statement: claim.holds for claim in found}


def test_scaling_claims_hold_where_they_should(check_claims):
    found = claims.claims_of(made_up_points(), experiment.Config())
    assert all(holds(found).values()), holds(found)
    check_claims([dataclasses.asdict(claim) for claim in found])
    slope = claims.slope_of(made_up_points(), "parity", "definition")
    assert slope == pytest.approx((0.1, 0.1, 0.1))
    assert claims.slope_of(made_up_points(), "parity", "released").mean == pytest.approx(0.2)


def test_scaling_claims_fail_where_they_should():
    flat = holds(claims.claims_of(made_up_points(slope=0.0), experiment.Config()))
    failing = [statement for statement, right in flat.items() if not right]
    assert len(failing) == 4  # the slope, the slopes, the ranks, the ratio
    growing = holds(claims.claims_of(made_up_points(control=0.5), experiment.Config()))
    assert not any(right for statement, right in growing.items() if "factor of 2" in statement)


def test_runs_that_did_not_learn_are_counted_and_left_out():
    points = made_up_points(unlearnt={(8, 0), (8, 1)})
    assert [len(p.learnt) for p in points[:2]] == [3, 1]
    found = holds(claims.claims_of(points, experiment.Config()))
    assert not found["PARITY: at least 3 runs learnt it at every length"]
    # One seed has both lengths: a line, and no interval to claim anything with.
    assert not found["PARITY: sharpness rises with n"]
    none = made_up_points(unlearnt={(n, seed) for n in (4, 8) for seed in range(3)})
    assert not any(
        right
        for statement, right in holds(claims.claims_of(none, experiment.Config())).items()
        if "PARITY" in statement
    )


def test_thirty_bits_are_held_against_the_paper_s_number():
    models = [made_up("parity", 30, seed, 1.0 + 0.01 * seed) for seed in range(3)]
    models += [made_up(name, 30, seed, 0.05) for name in functions.CONTROLS for seed in range(2)]
    found = claims.paper_size_claims(stages.points_of(models), "definition")
    assert [claim.holds for claim in found] == [True, True, True, True]
    assert not claims.paper_size_claims(made_up_points(), "definition")


def tradeoff_made_up(shift):
    return [
        made_up(
            name,
            n,
            seed,
            decay=decay,
            norm=20 - 20 * decay + 0.1 * seed + by * n,
            blowup=1 + 50 * decay,
        )
        for name, by in (("parity", shift), ("majority", 0.0))
        for n in (5, 10)
        for decay in (0.0, 0.1, 0.4)
        for seed in range(2)
    ]


def test_tradeoff_claims(check_claims):
    models, names = tradeoff_made_up(0.1), ("parity", "majority")
    found = [*tradeoff.tradeoff_claims(models, names), *tradeoff.shift_claims(models, names)]
    check_claims([dataclasses.asdict(claim) for claim in found])
    assert [claim.holds for claim in found] == [True, True, True, True]
    assert tradeoff.shift_of(models, "parity", tradeoff.norm).mean == pytest.approx(0.1)
    inward = tradeoff.shift_claims(tradeoff_made_up(-0.1), names)
    assert [claim.holds for claim in inward] == [False, False]


STEPS = np.arange(0, 1000, 100)
LOSS = np.array([0.3, 0.25, 0.25, 0.25, 0.1, 0.005, 0.001, 0.001, 0.001, 0.001])
SHARP = np.array([0.05, 0.05, 0.05, 0.05, 0.2, 0.6, 0.5, 0.4, 0.35, 0.35])


def curve(loss=LOSS, sharp=SHARP, seed=0):
    measured = dict.fromkeys(dynamics.MEASURES, np.ones(10)) | {"loss": loss, "sharpness": sharp}
    return dynamics.Curve(0.1, seed, STEPS, measured)


def test_the_drop_of_a_curve():
    one = curve()
    assert (one.plateau, one.dropped) == (3, 5)
    assert one.rise("definition") == pytest.approx(12)
    assert one.final_share("definition") == pytest.approx(0.35 / 0.6)
    assert one.rises_in_drop("definition")
    assert not curve(sharp=np.roll(SHARP, -3)).rises_in_drop("definition")
    assert curve(loss=np.full(10, 0.25)).dropped is None


def test_dynamics_claims(check_claims):
    runs = [curve(seed=seed) for seed in range(3)]
    found = dynamics.claims_of(runs, "definition", "PARITY")
    check_claims([dataclasses.asdict(claim) for claim in found])
    assert [claim.holds for claim in found] == [True, True, True]
    flat = dynamics.claims_of([curve(sharp=np.full(10, 0.1))] * 2, "definition", "PARITY")
    assert [claim.holds for claim in flat] == [False, False, False]
    none = dynamics.claims_of([curve(loss=np.full(10, 0.25))], "definition", "PARITY")
    assert [claim.holds for claim in none] == [False, False, False]


def test_a_violation_of_the_inequality_is_counted():
    right = made_up("parity", 4, sharp=1.0)
    wrong = made_up("parity", 4, sharp=0.9)
    for model in (right, wrong):
        model.record["noisy_sensitivity"] = [[0.0] * 3] * 2
    pairs = inequality.pairs_of([right, wrong], "parity", "sphere")
    np.testing.assert_allclose(pairs.left, 1.0)
    assert pairs.violations == 2
    claim = inequality.inequality_claim([right, wrong], [pairs])
    assert (claim.holds, claim.values["pairs"]) == (False, 4)
    assert inequality.inequality_claim(
        [right], [inequality.pairs_of([right], "parity", "sphere")]
    ).holds


def drawn_points(axes, **look):
    """How many points an axes has of which `look` is true of a line's properties."""
    return sum(
        len(line.get_xdata())
        for line in axes.lines
        if all(getattr(line, f"get_{name}")() == value for name, value in look.items())
    )


def test_figures_show_every_run_and_hollow_those_that_did_not_learn():
    points = made_up_points(unlearnt={(8, 0), (8, 1)})
    drawing = scaling_figures.draw_pair(points, "definition")
    parity = drawing.axes[0]
    assert drawn_points(parity, marker="o") == 6
    assert drawn_points(parity, marker="o", markerfacecolor="none") == 2
    assert len(scaling_figures.draw_measures(points).axes) == 3
    models = tradeoff_made_up(0.1)
    trade = tradeoff.draw(models)
    assert sum(len(axes.lines) for axes in trade.axes) == 2 * len(models)
    shown = dynamics.draw([curve(), curve(loss=np.full(10, 0.25))], "definition")
    assert all(drawn_points(axes, linestyle=":") == 10 for axes in shown.axes)
    exact = [model for point in points for model in point.models]
    pairs = [inequality.pairs_of(exact, name, "sphere") for name in functions.FUNCTIONS]
    bound = inequality.draw(exact, pairs)
    assert drawn_points(bound.axes[0], marker="o") == 2 * len(exact)


def test_tables_have_a_row_for_every_point():
    config, points = experiment.Config(), made_up_points(unlearnt={(8, 0), (8, 1), (8, 2)})
    table = scaling.table_of(points, config)
    assert len(table.rows) == len(points)
    assert [row[3] for row in table.rows[:2]] == ["3 of 3", "0 of 3"]
    # Nothing learnt: no sharpness of those that did, but of all runs.
    assert table.rows[1][5] == "no run"
    assert table.rows[1][6].startswith("0.81")
    assert len(tradeoff.table_of(tradeoff_made_up(0.1)).rows) == 2 * 3 * 2
    (dropped, stayed) = dynamics.table_of(
        [curve(), curve(loss=np.full(10, 0.25))], "definition", 8
    ).rows
    assert dropped[2:4] == (300, 500)
    assert stayed[2:4] == (None, None)
    models = [model for point in points for model in point.models]
    theorem = inequality.theorem_table(models, heads=2)
    assert [row[:3] for row in theorem.rows[:2]] == [("PARITY", 4, 3), ("MAJORITY", 4, 2)]
    as_n, growth, heads = 4, math.sqrt(4 * math.log(4)), 2
    assert theorem.rows[0][6].startswith(f"{as_n / growth - heads / 4:.3f}")


# --- Whole runs -----------------------------------------------------------------------------------

#: Stages of one shape share their programs: eight runs of three and of four bits in each.
TINY = (
    "--exp sensitive-functions --width 8 --batch 16 --learning-rate 0.01 --num-directions 2 "
    "--num-inputs 16 --scaling-lengths 3 4 --scaling-control-lengths 3 4 --scaling-seeds 2 "
    "--scaling-control-seeds 2 --scaling-steps 150 --tradeoff-lengths 3 4 --tradeoff-seeds 2 "
    "--tradeoff-control-seeds 2 --tradeoff-functions parity majority --tradeoff-rates 0.01 "
    "--tradeoff-decays 0 0.1 --tradeoff-steps 150 --dynamics-length 3 --dynamics-seeds 2 "
    "--dynamics-decays 0 0.1 0.2 0.3 --dynamics-rate 0.01 --dynamics-steps 300 "
    "--dynamics-every 50 --dynamics-directions 2 --dynamics-inputs 8"
)


def run_tiny(parts, workdir, flags=TINY):
    return main([*flags.split(), "--parts", *parts.split(), "--workdir", workdir])


class Killed(BaseException):
    pass


@pytest.mark.slow
def test_a_tiny_run_of_four_parts_resumes_to_the_bit(tmp_path, check_claims, monkeypatch):
    parts = "scaling tradeoff dynamics inequality"
    assert run_tiny(parts, "whole") == 0
    results = json.loads((tmp_path / "whole" / "results.json").read_text())
    check_claims(results["claims"])
    for figure in results["figures"]:
        assert (tmp_path / "whole" / figure["file"]).stat().st_size > 5_000
    assert len(results["values"]["scaling"]["runs"]) == 2 * 8
    assert results["values"]["inequality"] == {
        "pairs": 32 * 2 * 3,
        "violations": 0,
        "models": 32,
        "models not measured on all inputs": 0,
    }
    append, count = RunFolder.append, 0

    def append_and_die(folder, record):
        nonlocal count
        append(folder, record)
        count += 1
        if count in (4, 15, 40):
            raise Killed

    monkeypatch.setattr(RunFolder, "append", append_and_die)
    for _ in range(3):
        with pytest.raises(Killed):
            run_tiny(parts, "killed")
    assert run_tiny(parts, "killed") == 0
    again = json.loads((tmp_path / "killed" / "results.json").read_text())
    for name in ("claims", "tables", "values"):
        assert again[name] == results[name]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--parts scaling --scaling-lengths 4 500000",
            "scaling: training 8 transformers of n=500000",
        ),
        ("--parts scalling", "did you mean scaling?"),
        ("--parts scaling --heads 3", "width must be a multiple of 2 and of heads"),
        ("--parts scaling --seed 4294967295", "choose a --seed of at most"),
    ],
)
def test_bad_input_is_one_clear_line(flags, message, capsys):
    assert main(["--exp", "sensitive-functions", *flags.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_a_rate_at_which_every_run_diverges_is_one_clear_line(capsys):
    flags = TINY.replace("--learning-rate 0.01", "--learning-rate 1e30")
    assert run_tiny("scaling", "diverged", flags) != 0
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert "scaling-3: all 8 runs have diverged by step" in error
    assert "lower the learning rate (1e+30)" in error
