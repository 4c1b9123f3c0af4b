"""A tiny run of `spectrum`, and the verification script with its exit status."""

import dataclasses
import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import jaxsens.figures
from jaxsens.run import experiment_names, load_experiment, main
from jaxsens.spectrum import MLP, Transformer

TINY = (
    "--exp spectrum --d 4 --scan-pure 2 4 --scan-stacks 2 4 --univariate-d 16 --finite-d 4 "
    "--widths 4 64 --num-seeds 3 --train-d 4 --train-width 32 --max-steps 200 --sets-per-degree 1"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One tiny run: (results, folder)."""
    folder = tmp_path_factory.mktemp("spectrum") / "run"
    networks = load_experiment("spectrum").networks
    with pytest.MonkeyPatch.context() as patch:
        # Compiling larger networks would take most of the time; tests/spectrum has them.
        patch.setattr(networks, "CROSS_CHECKED", networks.CROSS_CHECKED[:1])
        patch.setattr(networks, "UNIVARIATE", networks.UNIVARIATE[2:5])
        smaller = {"MLP": MLP(depth=2), "transformer": Transformer(tokens=2, embed=False)}
        patch.setattr(networks, "TRAINED", smaller)
        assert main([*TINY.split(), "--workdir", str(folder)]) == 0
    return json.loads((folder / "results.json").read_text()), folder


def claims(results):
    return {claim["statement"]: claim for claim in results["claims"]}


def test_the_experiment_finds_where_the_proposition_holds(finished):
    results, _ = finished
    found = {statement: claim["holds"] for statement, claim in claims(results).items()}
    stated = "Proposition 3.1 holds as stated "
    assert found[stated + "for one token (T = 1)"]
    assert not found[stated + "for every tokenisation, scaling and readout"]
    assert not found[stated + "for tokens of one bit (T = d), mean readout"]
    assert not found[stated + "for several tokens of several bits (1 < T < d)"]
    pure = [row for row in results["values"]["scan"] if row["stack"] == "attention"]
    bits = [row for row in pure if row["tokenisation"] == "tokens of one bit"]
    assert all(row["proposition"] == (row["readout"] == "flatten") for row in bits)


def test_attention_after_an_mlp_fails_from_two_coordinates_on(finished):
    results, _ = finished
    table = next(t for t in results["tables"] if t["title"].endswith("by layers"))
    fails = {tuple(row[:3]): row[-1] for row in table["rows"]}
    assert fails["2 × (attention, ReLU MLP)", "tokens of one bit", "flatten"] == "d = 2"
    assert fails["attention", "tokens of one bit", "flatten"] is None
    assert fails["attention", "several wide tokens", "flatten"] == "d = 4"


def test_exact_statements(finished):
    results, _ = finished
    (exact,) = [c for s, c in claims(results).items() if "2/27" in s]
    assert exact["holds"]
    assert "μ_1 = 2/27" in exact["measured"]
    titles = [table["title"] for table in results["tables"]]
    assert any("Smallest counterexample with the flatten readout: d = 4" in t for t in titles)
    assert any("Smallest counterexample with the mean readout: d = 2" in t for t in titles)
    assert results["values"]["precision"] == "float64"
    assert "float64" in results["summary"]


def test_claims_have_their_numbers(finished, check_claims):
    results, _ = finished
    check_claims(results["claims"])
    (stated,) = [c for c in results["claims"] if c["statement"].endswith("one token (T = 1)")]
    assert stated["values"]["kernels as stated"] == stated["values"]["kernels"] > 0


def test_figures_are_drawn(finished):
    results, folder = finished
    assert len(results["figures"]) == 5
    for figure in results["figures"]:
        assert (folder / figure["file"]).stat().st_size > 2_000


def test_a_mean_that_rounds_above_the_largest_is_drawn():
    experiment = load_experiment("spectrum")
    (drawn, *_) = experiment.measuring.drawn_kernels(experiment.Config(d=4))
    found = drawn.found
    shifted = dataclasses.replace(found, mu_mean=np.nextafter(found.mu_max, np.inf))
    drawn = dataclasses.replace(drawn, found=shifted)
    univariate = [{"kind": "ntk", "label": "MLP", "mu": [1.0, 0.5, 0.1]}]
    figure = experiment.figures._draw_eigenvalues(univariate, [drawn])
    assert len(figure.axes) == 2


def test_a_resumed_run_repeats_nothing_and_ends_the_same(finished, tmp_path, monkeypatch):
    results, folder = finished
    (tmp_path / "run").mkdir()
    for name in ("config.json", "metrics.jsonl"):
        (tmp_path / "run" / name).write_bytes((folder / name).read_bytes())
    shutil.copytree(folder / "figures", tmp_path / "run" / "figures")
    experiment = load_experiment("spectrum")
    monkeypatch.setattr(jaxsens.figures, "save", lambda *_: None)
    for stage in ("cross_checks", "univariate_spectra", "finite_widths"):
        monkeypatch.setattr(experiment.measuring, stage, lambda config: pytest.fail("done before"))
    monkeypatch.setattr(
        experiment.training, "characters", lambda config: pytest.fail("done before")
    )
    assert main([*TINY.split(), "--workdir", str(tmp_path / "run")]) == 0
    again = json.loads((tmp_path / "run" / "results.json").read_text())
    assert again["values"] == results["values"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--widths 8", "widths must have at least 2 of them; got 8"),
        ("--d 5", "must be even"),
        ("--scan-pure 2", "scan_pure must contain 4"),
        ("--d 30", "bytes"),
        ("--precision float16", "float16"),
    ],
)
def test_bad_arguments_end_with_one_line(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--exp", "spectrum", *flags.split()]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err


@pytest.fixture(scope="module")
def verify():
    file = Path(__file__).parents[2] / "experiments" / "verify_ntk_spectrum.py"
    spec = importlib.util.spec_from_file_location("verify_ntk_spectrum", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def test_the_script_is_no_experiment():
    assert "spectrum" in experiment_names()
    assert "verify_ntk_spectrum" not in experiment_names()


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        ("--d 6 --tokens 1 --kernel ck --attention linear", 0),
        ("--d 6 --tokens 1 --kernel ntk --activation relu --residual --depth 2", 0),
        ("--d 6 --tokens 6 --kernel ntk", 0),
        ("--d 6 --tokens 2 --kernel ck", 1),
        ("--d 6 --tokens 6 --readout mean", 1),
        ("--d 4 --attention none --activation erf --depth 2 --precision float32", 0),
        ("--d 40 --attention none --depth 2", 0),
        ("--d 40 --tokens 1", 0),
        ("--d 6 --tokens 4", 2),
        ("--d 20 --tokens 2", 2),
    ],
)
def test_exit_status(verify, flags, status, capsys):
    assert verify(flags.split()) == status
    out = capsys.readouterr()
    assert ("FAILS" in out.out) == (status == 1)
    assert bool(out.err) == (status == 2)


def test_the_json_has_everything(verify, tmp_path):
    file = tmp_path / "out.json"
    assert verify([*["--d", "4", "--tokens", "2", "--kernel", "ck", "--json"], str(file)]) == 1
    record = json.loads(file.read_text())
    assert record["check"]["precision"] == "float64"
    assert record["check"]["univariate"] is False
    assert "K = 2" in record["counterexample"]
    assert {v["claim"]: v["holds"] for v in record["verdicts"]}[
        "K(x,y) is a function of ⟨x,y⟩"
    ] is False
