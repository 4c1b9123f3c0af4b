"""A run that is there already: shown, mended, or refused, in one line and without a traceback."""

import dataclasses
import importlib.util
import json
import shutil
from pathlib import Path

import pytest

import jaxsens.figures  # noqa: F401  matplotlib keeps its fonts in HOME, which the tests move
from jaxsens.core import fingerprint
from jaxsens.reporting.results import Findings
from jaxsens.run import load_experiment, main
from jaxsens.training.trainer import Trainer

FLAGS = ["--exp", "vision", "--workdir", "run"]
REAL = "--exp vision --models mlp-leaky --epochs 2 --evaluate-every 1 --num-train 100"
REAL = [*REAL.split(), "--num-measured", "5", "--tolerance", "0.4", "--workdir", "run"]


def tiny():
    """The smallest experiment, which the crash test runs."""
    file = Path(__file__).parents[1] / "crash" / "tiny.py"
    spec = importlib.util.spec_from_file_location("tiny", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run of the tiny experiment, which takes vision's place in this file."""
    folder, small = tmp_path_factory.mktemp("made") / "run", tiny()
    with pytest.MonkeyPatch.context() as patched:
        for name in ("load", "run"):
            patched.setattr(load_experiment("vision"), name, getattr(small, name))
        assert main([*FLAGS[:-1], str(folder)]) == 0
        yield folder


@pytest.fixture
def run(made, tmp_path, monkeypatch, capsys):
    """A copy of it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXSENS_DATA", raising=False)
    shutil.copytree(made, tmp_path / "run")
    capsys.readouterr()
    return tmp_path / "run"


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def numbers(folder):
    """What a run found, without the time it took."""
    results = json.loads((folder / "results.json").read_text())
    return {name: results[name] for name in ("claims", "tables", "values")}


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_a_missing_report_is_made_again(run, capsys):
    before = contents(run)
    (run / "report.html").unlink()
    assert main(FLAGS) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert contents(run) == before


def test_a_finished_run_that_cannot_be_written_to_is_shown(run, capsys, monkeypatch):
    def read_only(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("jaxsens.core.disk.write_atomic", read_only)
    monkeypatch.setattr("os.open", read_only)
    assert main(FLAGS) == 0
    (run / "report.html").unlink()
    assert main(FLAGS) == 0
    out, err = capsys.readouterr()
    assert out.count("nothing to do") == 2
    assert err.startswith("jaxsens: report.html is missing and cannot be made again: ")
    assert err.count("\n") == 1


def test_other_data_is_refused_whether_finished_or_not(run, capsys, monkeypatch):
    vision = load_experiment("vision")
    load = vision.load

    def flipped(config, data_dir):
        points = load(config, data_dir)
        return dataclasses.replace(points, y=1 - points.y)

    monkeypatch.setattr(vision, "load", flipped)
    for finished in (True, False):
        if not finished:
            (run / "results.json").unlink()
        before = contents(run)
        assert main([*FLAGS, "--data-dir", "."]) == 2
        err = capsys.readouterr().err
        assert "run was made with other data (y differ); give the --data-dir" in err
        assert err.count("\n") == 1
        assert contents(run) == before


def test_other_surroundings_are_said(run, capsys, monkeypatch):
    (run / "results.json").unlink()
    now = fingerprint.surroundings() | {"cores": 999}
    monkeypatch.setattr(fingerprint, "surroundings", lambda: now)
    assert main(FLAGS) == 0
    err = capsys.readouterr().err
    assert "was begun with other surroundings" in err
    assert "999 here" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("old", [False, True])
def test_damaged_files_are_named_and_computed_again(run, made, capsys, monkeypatch, old):
    """A folder of an earlier version has no checksums: then only what cannot be read is noticed."""
    (run / "results.json").unlink()
    flip(run / "estimates" / "kept.json")
    if old:
        (run / "estimates" / "kept.json").write_text("{")
        for file in [*run.rglob("*.sha256"), *run.rglob("checksums.json")]:
            file.unlink()
        identity = json.loads((run / "config.json").read_text())
        kept = {name: identity[name] for name in ("experiment", "config")}
        (run / "config.json").write_text(json.dumps(kept))
    else:
        for epoch in (2, 3):
            files = (p for p in (run / f"checkpoints/linear/{epoch}").rglob("d/*") if p.is_file())
            flip(max(files, key=lambda p: p.stat().st_size))
    assert main(FLAGS) == 0
    err = capsys.readouterr().err
    assert "estimates/kept.json is damaged; it is computed again" in err
    for epoch in () if old else (2, 3):
        assert f"checkpoints/linear/{epoch} is damaged: default/" in err
    assert "Traceback" not in err
    assert numbers(run) == numbers(made)

    def refuse(*_):
        raise AssertionError("trained again")

    # All of it is whole now.
    (run / "results.json").unlink()
    monkeypatch.setattr(Trainer, "epoch", refuse)
    assert main(FLAGS) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_damaged_estimate_of_a_real_experiment_is_measured_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    assert main(REAL) == 0
    before = numbers(run)
    for damage in (flip, lambda file: file.write_text(""), lambda file: file.unlink()):
        (run / "results.json").unlink()
        damage(run / "estimates" / "mlp-leaky.json")
        assert main(REAL) == 0
        assert numbers(run) == before


@pytest.mark.parametrize(
    "line", ["5", "{}", "[]", '{"model": "a"}', '{"model": "a", "epoch": "b", "seconds": 0}']
)
def test_a_line_that_is_no_record_ends_with_one_line(run, capsys, line):
    (run / "results.json").unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    before = contents(run)
    assert main(FLAGS) == 2
    err = capsys.readouterr().err
    assert "metrics.jsonl, line 5" in err
    assert "--workdir" in err
    assert err.count("\n") == 1
    assert contents(run) == before


@pytest.mark.parametrize(
    "error", [KeyError("a"), OSError(28, "No space"), MemoryError(), IndexError("\n")]
)
def test_an_error_that_nobody_foresaw_ends_with_one_line(run, capsys, monkeypatch, error):
    def fail(*_):
        raise error

    (run / "results.json").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(load_experiment("vision"), "run", fail)
        assert main(FLAGS) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith(f"jaxsens: {type(error).__name__}")
    assert "the traceback is in run/error.log" in err
    assert "in fail" in (run / "error.log").read_text()


def test_a_run_that_succeeds_leaves_no_error_behind(run):
    (run / "results.json").unlink()
    (run / "error.log").write_text("old")
    assert main(FLAGS) == 0
    assert not (run / "error.log").exists()


def test_an_error_before_there_is_a_folder_is_logged_elsewhere(tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise KeyError("a")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(load_experiment("vision"), "load", fail)
    assert main(FLAGS) == 1
    (log,) = tmp_path.iterdir()
    assert f"the traceback is in {log}" in capsys.readouterr().err
    assert "in fail" in log.read_text()


def test_a_folder_deleted_under_a_run_is_not_made_again(run, capsys, monkeypatch):
    vision = load_experiment("vision")

    def lose(config, data, folder):
        shutil.rmtree(run)
        return Findings("t", "s", (), (), (), {})

    (run / "results.json").unlink()
    monkeypatch.setattr(vision, "run", lose)
    assert main(FLAGS) == 1
    assert "was deleted, renamed or replaced" in capsys.readouterr().err
    assert not run.exists()
