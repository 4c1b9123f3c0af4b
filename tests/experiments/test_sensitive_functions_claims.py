"""Sensitive functions: claims, figures and tables of made-up models; tiny runs, bad input."""

import dataclasses
import importlib
import json
import math

import numpy as np
import pytest

from jaxsens.reporting.run_folder import RunFolder
from jaxsens.run import load_experiment, main

experiment = load_experiment("sensitive-functions")
functions, training, stages = (
    importlib.import_module(f"{experiment.__package__}.{name}")
    for name in ("functions", "training", "stages")
)
scaling, claims, scaling_figures, tradeoff, dynamics, inequality = (
    importlib.import_module(f"{experiment.__package__}.parts.{name}")
    for name in (
        *("scaling", "scaling_claims", "scaling_figures", "tradeoff", "dynamics", "inequality"),
    )
)


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


def test_a_function_that_no_seed_learnt_is_not_left_out_of_a_comparison():
    points = made_up_points()
    unlearnt = [
        dataclasses.replace(
            point,
            models=tuple(
                dataclasses.replace(model, record=model.record | {"loss": 0.2})
                for model in point.models
            ),
        )
        if point.function == "mean"
        else point
        for point in points
    ]
    statement = "Sharpness rises faster for PARITY than for MAJORITY, FIRST and MEAN"
    assert holds([claims.slopes_claim(points, "definition")]) == {statement: True}
    assert holds([claims.slopes_claim(unlearnt, "definition")]) == {statement: False}
    (change,) = [c for c in claims.control_claims(unlearnt, "definition") if "MEAN" in c.statement]
    assert not change.holds
    assert change.measured.startswith("no run learnt it")


def test_ratios_and_ranks_have_intervals_over_seeds():
    found = {c.decided_by: c for c in claims.claims_of(made_up_points(), experiment.Config())}
    ((low, high),) = found["mean ratio"].values["intervals of ratios of geometric means"]
    assert low < found["mean ratio"].values["mean ratio"] < high
    models = [
        made_up("parity", n, seed, sharp)
        for seed, curve in enumerate([(0.1, 0.2, 0.3), (0.1, 0.3, 0.2), (0.3, 0.2, 0.1)])
        for n, sharp in zip((4, 6, 8), curve, strict=True)
    ]
    claim = claims.rank_claim(stages.points_of(models), "definition")
    assert claim.values["mean within a seed"] == pytest.approx((1.0 + 0.5 - 1.0) / 3)


def test_thirty_bits_are_held_against_the_paper_s_number():
    models = [made_up("parity", 30, seed, 1.0 + 0.01 * seed) for seed in range(3)]
    models += [made_up(name, 30, seed, 0.05) for name in functions.CONTROLS for seed in range(2)]
    found = claims.paper_size_claims(stages.points_of(models), "definition")
    size = {claim.statement: claim.holds for claim in found if "rises" not in claim.statement}
    assert [*size.values()] == [True, True, True, True]
    # One length has no slope.
    assert not any(claim.holds for claim in found if "rises" in claim.statement)
    assert not claims.paper_size_claims(made_up_points(), "definition")
    models += [made_up("parity", 4, seed, 0.1) for seed in range(3)]
    models += [made_up(name, 4, seed, 0.04) for name in functions.CONTROLS for seed in range(2)]
    found = claims.paper_size_claims(stages.points_of(models), "definition")
    assert all(claim.holds for claim in found)
    assert sum("rises" in claim.statement for claim in found) == 3


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


def test_tradeoff_intervals_are_over_seeds_and_no_row_is_left_out():
    models = tradeoff_made_up(0.1)
    assert tradeoff.correlations(models, "parity").keys() == {0, 1}
    assert tradeoff.shifts_by_seed(models, "parity", tradeoff.norm) == pytest.approx(
        {0: 0.1, 1: 0.1}
    )
    # One seed has no interval, however many rows it has.
    one = [model for model in models if model.run.seed == 0]
    assert math.isinf(tradeoff.shift_of(one, "parity", tradeoff.norm).half_width)
    assert not tradeoff.tradeoff_claims(one, ("parity",))[0].holds
    strongest = [
        dataclasses.replace(model, record=model.record | {"loss": 0.2})
        if model.run.weight_decay == 0.4 and model.run.function == "parity"
        else model
        for model in models
    ]
    claim = tradeoff.shift_claims(strongest, ("parity", "majority"))[0]
    assert not claim.holds
    assert "not learnt at decay 0.4, rate 0.001" in claim.measured


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
    claim = inequality.inequality_claim(2, [pairs])
    assert (claim.holds, claim.values["pairs"]) == (False, 4)
    assert inequality.inequality_claim(1, [inequality.pairs_of([right], "parity", "sphere")]).holds


def test_models_of_whole_tables_are_held_against_the_inequality_too():
    partial_functions = importlib.import_module(f"{experiment.__package__}.partial_functions")
    target = np.arange(16) % 2 == 1
    partial = partial_functions.Partial(0, 0, target, np.arange(4), ~target)
    extension = partial_functions.Extension(partial, target)
    record = {"loss": 1e-4, "sensitivity": 1.0, "change": [[0.3, 0.2]] * 2}
    record["noisy_sensitivity"] = [[0.0, 0.0]] * 2
    model = partial_functions.Retrained(extension, "learned", 0, record)
    assert model.exact
    # (√1 − 0)²/4 = 0.25 is less than 0.3 and more than 0.2.
    violations = {
        noise: inequality.table_pairs([model], noise).violations for noise in ("sphere", "gaussian")
    }
    assert violations == {"sphere": 0, "gaussian": 2}
    assert not inequality.inequality_claim(0, [inequality.table_pairs([], "sphere")]).holds


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
    assert "a constant passes" not in table.note
    models = [made_up("mean", n, seed) for n in (100, 300, 500) for seed in range(2)]
    assert (
        "MEAN from n = 300 on: a constant passes"
        in scaling.table_of(stages.points_of(models), config).note
    )
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
