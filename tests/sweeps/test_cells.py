"""The cells of a sweep: products, names, and bad files in one line before anything is created."""

import dataclasses
from pathlib import Path

import pytest

from jaxsens.cli.discovery import experiment_names
from jaxsens.reporting.run_folder import default_folder
from jaxsens.run import load_experiment, resolved
from jaxsens.sweep import main
from jaxsens.sweeps.cells import read_cells, sweep_names

RUNS = Path("runs")
JOBS = Path(__file__).resolve().parents[2] / "jobs"
JOB_FILES = ("sweep-job.yaml", "slurm-array.sbatch")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXSENS_DATA", raising=False)
    for name in ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)


def cells_of(text):
    Path("sweep.toml").write_text(text)
    return read_cells("sweep.toml", RUNS)


def test_the_cells_are_the_product_and_the_last_flag_changes_fastest():
    cells = cells_of('experiment = "vision"\nmodels = ["cnn", "vit-small"]\nseed = [0, 1, 2]')
    assert [(cell.config["models"], cell.seed) for cell in cells] == [
        ((model,), seed) for model in ("cnn", "vit-small") for seed in (0, 1, 2)
    ]
    assert [cell.label for cell in cells][1] == "vision quick models=cnn seed=1"
    assert len({cell.folder for cell in cells}) == 6
    assert len({cell.group for cell in cells}) == 2


def test_a_cell_is_the_run_that_its_command_makes():
    (cell,) = cells_of(
        'experiment = "word-sensitivity"\npreset = "small"\nd = [[16, 32]]\nnum-seeds = 3'
    )
    experiment = load_experiment("word_sensitivity")
    config = dataclasses.replace(experiment.PRESETS["small"], d=(16, 32), num_seeds=3)
    fields = dataclasses.asdict(resolved(config, "small"))
    assert cell.folder == default_folder("word_sensitivity", fields)
    words = "--exp word_sensitivity --preset small --d 16 32 --num-seeds 3 --workdir"
    assert cell.arguments() == [*words.split(), str(cell.folder)]
    assert cell.arguments(Path("data"))[-2:] == ["--data-dir", "data"]


def test_a_switch_takes_true_and_false():
    on, off = cells_of('experiment = "sharpness"\nreleased = [true, false]')
    assert (on.config["released"], off.config["released"]) == (True, False)
    assert "--released" in on.arguments()
    assert "--no-released" in off.arguments()
    (reduced,) = cells_of('experiment = "vision"\nreduced = true')
    assert reduced.config["reduced"] is True


def test_labels_have_what_differs():
    cells = cells_of(
        '[[block]]\nexperiment = "vision"\nepochs = 3\ndataset = "digits"\n'
        '[[block]]\nexperiment = "vision"\nepochs = 3\ndataset = ["shapes"]\nseed = [7]\n'
        '[[block]]\nexperiment = "spectrum"\nd = 6\n'
    )
    assert [cell.label for cell in cells] == [
        "vision quick dataset=digits",
        "vision quick dataset=shapes seed=7",
        "spectrum quick d=6",
    ]


def test_the_named_sweeps_have_every_experiment():
    assert sweep_names() == ["paper", "quick", "small"]
    cells = {name: read_cells(name, RUNS) for name in sweep_names()}
    for name, found in cells.items():
        assert {cell.experiment for cell in found} == set(experiment_names())
        assert {cell.preset for cell in found} == {name}
    assert len(cells["quick"]) == len(experiment_names())
    # jobs/ has scripts for the sweep `paper`.
    job, array = ((JOBS / name).read_text("utf-8") for name in JOB_FILES)
    assert f"completions: {len(cells['paper'])} " in job
    assert f"--array=0-{len(cells['paper']) - 1}%" in array


BAD = {
    'experiment = "visoin"': "there is no experiment 'visoin'; did you mean vision?",
    'experiment = "vision"\nepoch = 3': "unknown flag --epoch; did you mean --epochs?",
    'experiment = "vision"\nepochs = "ten"': "--epochs must be a whole number",
    'experiment = "vision"\nepochs = [3, 0]': "epochs must be positive; got 0",
    'experiment = "vision"\npreset = "smal"': "did you mean small?",
    'experiment = "vision"\nseed = []': "seed has no values",
    'experiment = "vision"\nmodels = [["cnn", "cnn"]]': "named twice",
    'experiment = "vision"\nseed = [1, 1]': "cells 0 and 1 are the same run (vision quick seed=1)",
    'experiment = "vision"\nnum_train = 9\nnum-train = 8': "--num-train is given twice",
    'experiment = "vision"\nworkdir = "x"': "workdir has no place in a sweep's file",
    'experiment = "vision"\nseed = 1979-05-27': "seed: expected numbers, texts",
    'experiment = "vision"\nmodels = "--exp"': "a value cannot start with --",
    'experiment = "vision"\nseed = {a = 1}': "seed: expected numbers, texts",
    'experiment = "vision"\nseed = [[[1]]]': "seed: expected numbers, texts",
    "experiment = 3": "expected names of an experiment",
    'experimnt = "vision"': "expected an experiment; did you mean experimnt?",
    "": "expected an experiment",
    "block = []": "there is no block in it",
    '[block]\nexperiment = "vision"': "with two brackets",
    'preset = "quick"\n[[block]]\nexperiment = "vision"': "preset stands beside [[block]]",
    '[[block]]\nexperiment = "vision"\n[[block]]\nexperiment = "vison"': "block 2: there is no",
    'experiment = "vision': "is no TOML file",
    'experiment = "vision"\nseed = [' + "1," * 10_001 + "]": "at most 10000 cells, got 10001",
}


@pytest.mark.parametrize(("text", "message"), BAD.items())
def test_a_bad_file_ends_with_one_line_and_creates_nothing(text, message, capsys, tmp_path):
    (tmp_path / "sweep.toml").write_text(text)
    assert main(["sweep.toml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert [file.name for file in tmp_path.iterdir()] == ["sweep.toml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "required: CELLS"),
        ("quik", "there is no sweep and no file 'quik'; did you mean quick?"),
        ("missing.toml", "there is no sweep and no file 'missing.toml'"),
        (".", "cannot be read: Is a directory"),
        ("bytes.toml", "is no TOML file"),
        ("quick --lsit", "unknown flag --lsit; did you mean --list?"),
        ("quick small", "expected one CELLS; got 'small' as well"),
        ("quick --list --status", "not allowed with argument"),
        ("quick --index 11", "--index must be from 0 to 10, for 11 cells; got '11'"),
        ("quick --index -1", "--index must be from 0 to 10"),
        ("quick --index one", "invalid int value: 'one'"),
        ("quick --jobs 0", "--jobs must be from 1 to 1000; got 0"),
        ("quick --runs s3://bucket/runs", "--runs must be a folder of a file system"),
        ("quick --runs bytes.toml", "--runs must be a folder; bytes.toml is a file"),
        ("quick --runs a*b", "--runs cannot have * in its path"),
        ("quick --collect", "none of the 11 cells is finished"),
    ],
)
def test_bad_arguments_end_with_one_line_and_create_nothing(arguments, message, capsys, tmp_path):
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert [file.name for file in tmp_path.iterdir()] == ["bytes.toml"]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SLURM_ARRAY_TASK_ID": "11"}, "SLURM_ARRAY_TASK_ID must be from 0 to 10"),
        ({"JOB_COMPLETION_INDEX": "x"}, "JOB_COMPLETION_INDEX must be from 0 to 10"),
        ({"SLURM_ARRAY_TASK_ID": "1", "JOB_COMPLETION_INDEX": "2"}, "name different cells"),
    ],
)
def test_a_schedulers_index_that_is_none_of_the_cells(variables, message, capsys, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["quick"]) == 2
    assert message in capsys.readouterr().err


def test_list_has_one_line_a_cell_and_help_shows_the_commands(capsys):
    assert main(["quick", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(experiment_names())
    assert lines[0].startswith("0  ablations quick  runs/ablations/")
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "SLURM_ARRAY_TASK_ID" in capsys.readouterr().out
