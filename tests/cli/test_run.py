"""The command line: listing, help, errors before any work, exit codes, and a whole run."""

import dataclasses
import json
import signal
import time

import pytest

import jaxsens.figures  # noqa: F401  matplotlib keeps its fonts in HOME, which the tests move
from jaxsens.reporting import machine
from jaxsens.reporting.results import Findings
from jaxsens.run import experiment_names, load_experiment, main, resolved

TINY = "--exp vision --models mlp-leaky mlp-sigmoid --epochs 2 --evaluate-every 1 --num-train 200"
TINY = [*TINY.split(), "--num-measured", "20", "--tolerance", "0.1"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Every test runs in an empty folder, so that what it creates can be seen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXSENS_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--exp is missing; choose one of"),
        ("--exp visoin", "no experiment 'visoin'; did you mean vision?"),
        ("--exp vision --epoch 3", "unknown flag --epoch; did you mean --epochs?"),
        ("--exp sharpness --no-relased", "unknown flag --no-relased; did you mean --no-released?"),
        ("--exp vision --epochs ten", "--epochs"),
        ("--exp vision --epochs 0", "epochs must be positive; got 0"),
        ("--exp vision --epochs -3", "epochs must be positive; got -3"),
        ("--exp vision --dataset digit", "did you mean digits?"),
        ("--exp vision --models vit", "did you mean vit-small?"),
        ("--exp vision --models cnn cnn", "named twice"),
        ("--exp vision --dataset mnist --models cnn", "mnist has no model cnn; choose from"),
        ("--exp vision --preset smal", "did you mean small?"),
        (
            "--exp vision --patch 3",
            "patch=3 does not divide image side 8; choose one of 1, 2, 4, 8",
        ),
        ("--exp vision --variance -1", "variance must be at least 0; got -1.0; the nearest is 0"),
        ("--exp vision stray", "stray"),
        ("--exp vision --dataset mnist --data-dir nowhere", "was not found in nowhere"),
    ],
)
def test_bad_arguments_end_with_one_line_and_create_nothing(
    arguments, message, capsys, tmp_path, monkeypatch
):
    # A closed port, so that looking for a download ends at once on any machine.
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_a_workdir_that_cannot_be_used_ends_with_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    assert main([*TINY, "--workdir", "file/below"]) == 2
    assert "cannot be used as a run folder" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    assert main([*TINY, "--workdir", "mine"]) == 2
    assert "is not a run folder" in capsys.readouterr().err
    assert main([*TINY, "--workdir", "long" * 1000]) == 2
    assert "File name too long" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_list_and_help_name_every_experiment_and_field(capsys):
    assert main(["--exp", "list"]) == 0
    listing = capsys.readouterr().out
    for name in experiment_names():
        module = load_experiment(name)
        assert name in listing
        assert module.COST["quick"] in listing
        with pytest.raises(SystemExit) as stop:
            main(["--exp", name, "--help"])
        assert stop.value.code == 0
        shown = capsys.readouterr().out
        for field in module.Config.__dataclass_fields__:
            assert "--" + field.replace("_", "-") in shown
    assert main(["--help"]) == 0
    assert "vision" in capsys.readouterr().out


def test_presets_are_valid_and_differ_in_numbers_only():
    for name in experiment_names():
        module = load_experiment(name)
        assert set(module.PRESETS) == set(module.COST) == {"quick", "small", "paper"}
        for preset, config in module.PRESETS.items():
            once = resolved(config, preset)
            assert once == resolved(once, preset)


def test_results_name_the_commit_that_the_run_began_with(monkeypatch, tmp_path):
    commits = iter(["before", "while it ran"])
    monkeypatch.setattr(machine, "_commit", lambda root: next(commits))
    vision = load_experiment("vision")
    finds = Findings(title="", summary="", claims=(), tables=(), figures=(), values={})

    def run(config, data, folder):
        return dataclasses.replace(finds, values={"commits": next(commits)})

    monkeypatch.setattr(vision, "run", run)
    assert main(["--exp", "vision", "--workdir", "run"]) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["environment"]["commit"] == "before"
    assert results["values"] == {"commits": "while it ran"}


def test_a_run_leaves_the_whole_folder_and_is_finished_the_second_time(capsys, tmp_path):
    command = [*TINY, "--workdir", "run"]
    assert main(command) == 0
    first = capsys.readouterr()
    assert first.err == ""
    assert "MLP-LeakyReLU" in first.out
    folder = tmp_path / "run"
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    expected = {"config.json", "metrics.jsonl", "results.json", "report.html"}
    for figure in ("training_curves", "final", "patches"):
        expected |= {f"figures/{figure}.{suffix}" for suffix in ("png", "pdf", "csv")}
    assert expected <= names
    assert (folder / "checkpoints" / "mlp-leaky" / "2").is_dir()
    results = json.loads((folder / "results.json").read_text())
    assert results["config"]["batch_size"] == 50
    assert len(results["tables"][0]["rows"]) == 2
    report = (folder / "report.html").read_text()
    assert "MLP-sigmoid" in report
    assert "http" not in report.replace("http-equiv", "")

    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != ".lock"}
    assert main(command) == 0
    assert "finished before" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != ".lock"} == before

    assert main([*command, "--seed", "7"]) == 2
    assert "seed: 42 there, 7 here" in capsys.readouterr().err


def test_divergence_ends_with_one_line_that_names_the_step(capsys):
    command = " ".join(TINY).replace(" mlp-sigmoid", " --learning-rate 1e30 --workdir run")
    assert main(command.split()) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "at step 2 (epoch 1, batch 2 of 4)" in err


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_an_interrupted_run_exits_with_75(number, forks, tmp_path):
    endless = " ".join(TINY).replace("--epochs 2", "--epochs 100000").split()
    command = ["-m", "jaxsens.run", *endless, "--workdir", "run"]
    with forks.start(*command) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(timeout=60) == 75
    assert process.said().strip() == "jaxsens: interrupted; the same command resumes"
