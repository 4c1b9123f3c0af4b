"""Flags: what tyro would let pass is refused in one line, and names are read generously."""

import sys

import pytest

import jaxsens.figures  # noqa: F401  matplotlib keeps its fonts in HOME, which the tests move
from jaxsens.cli import discovery, flags
from jaxsens.run import load_experiment, main


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXSENS_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_what_cannot_have_been_meant_is_refused_before_anything_is_created(capsys, tmp_path):
    cases = {
        "--exp vision --exp language": "--exp is given twice; give it once",
        "--exp vision --exp vision": "--exp is given twice; give it once",
        "--exp vision --preset quick --preset small": "--preset is given twice",
        "--exp vision --batch-size 5 --batch_size=5": "--batch-size is given twice",
        "--exp vision --models cnn --models cnn": "--models is given twice",
        "--exp vision --workdir a --workdir b": "--workdir is given twice",
        "--exp language --authors --no-authors": "--authors and --no-authors are both given",
        "--exp language --authors yes": "--authors takes no value; got 'yes'",
        "--exp vision --models": "--models needs a value after it; None is none of them; leave",
        "--exp vision --models --epochs 3": "--models needs a value after it",
        "--exp vision --epochs": "--epochs needs a value after it",
        "--exp vision --epochs=": "--epochs must be a whole number; got ''",
        "--exp vision --epochs 2 3": "--epochs takes one value; got 2: '2 3'",
        "--exp vision --epochs 1.5": "--epochs must be a whole number; got '1.5'",
        "--exp vision --variance much": "--variance must be a number; got 'much'",
        "--exp vision --reduced yes": "--reduced has no choice 'yes'; choose one of False, True",
        "--exp vision --models vit": "--models has no choice 'vit'; did you mean vit-small?",
        "--exp language --models None": "models must have at least 1 of them; got none",
        "--exp list --foo": "--exp list takes nothing else; got --foo",
        "--exp list vision": "--exp list takes nothing else; got vision",
        "--exp list --preset quick": "--exp list takes nothing else; got --preset",
        "--exp": "--exp is missing; choose one of",
        "vision": "expected a flag such as --exp NAME first; got 'vision'",
        "--exp vision --data-dir ~nosuchuser/x": "a user that there is not: '~nosuchuser/x'",
        "--exp vision --workdir ~nosuchuser/x": "a user that there is not: '~nosuchuser/x'",
        "--exp vision --seed -1": "seed must be at least 0 (random keys are made from 32 bits)",
        "--exp vision --seed 4294967296": "seed must be at most 4294967295 (random keys",
        "--exp vision --learning-rate nan": "learning_rate must be a finite number; got nan",
        "--exp vision --num-train 10": "batch_size=50 is larger than the 10 training examples",
        "--exp vision --batch-size 100000": "is larger than the 1437 training examples",
        "--exp language --batch-size 100000": "is larger than the",
        "--exp language --vocab-size 10": "vocab_size must be at least 261; got 10",
        "--exp language --max-length 5": "max_length must be at least 6 for paraphrases",
        "--exp language --weight-decay -1": "weight_decay must be at least 0; got -1.0",
        "--exp language --variances 4 4.00000001": "variances must differ in six digits",
        "--exp language --width 1000000": "bytes",
        "--exp grokking --p 1000001": "bytes",
        "--exp grokking --parity-bits 1000000000": "bytes",
        "--exp grokking --seed 4294967295": "seeds from seed=4294967295 on must be below",
        "--exp grokking --p 3 --train-share 0.12": "choose a --train-share nearer to 0.5",
        "--exp synthetic --batch-size 0": "batch_size must be positive; got 0; the nearest is 1",
        "--exp synthetic --block 1000000000": "bytes",
        "--exp spectrum --univariate-d 1000000000": "bytes",
        "--exp spectrum --widths 16 16": "widths: 16 is named twice: 16, 16; name each once",
        "--exp ablations --depths 100000": "depths must be at most 100; got 100000",
        "--exp vision --estimator scattered-pixels --patch 9": "patch",
        "--exp vision --epochs 10000000 --batch-size 1": "steps, more than the 2147483647",
    }
    for arguments, message in cases.items():
        assert main(arguments.split(" ")) == 2, arguments
        out, err = capsys.readouterr()
        assert out == "", arguments
        assert err.count("\n") == 1, arguments
        assert message in err, arguments
        assert list(tmp_path.iterdir()) == [], arguments


@pytest.mark.parametrize("flag", ["--workdir", "--data-dir"])
@pytest.mark.parametrize("value", ["", " ", "a\0b", "\udcff", "x" * 5000])
def test_a_folder_needs_a_name(flag, value, capsys, tmp_path):
    for words in ([flag, value], [f"{flag}={value}"]):
        assert main(["--exp", "spectrum", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert list(tmp_path.iterdir()) == []


def test_the_environment_is_looked_at_like_the_flag(capsys, monkeypatch):
    monkeypatch.setenv("JAXSENS_DATA", "~nosuchuser/x")
    assert main(["--exp", "vision"]) == 2
    assert "JAXSENS_DATA names the home of a user that there is not" in capsys.readouterr().err


def parse(text: str):
    given = flags.split(text.split())
    return flags.parse(load_experiment(flags.experiment_name(given)), given)


def test_homes_are_expanded_and_none_is_no_value(tmp_path):
    options, config = parse("--exp language --workdir ~/run --data-dir=~/data --depths None")
    assert options.workdir == tmp_path / "home" / "run"
    assert options.data_dir == tmp_path / "home" / "data"
    assert config.depths == ()
    options, config = parse("--exp language --workdir None --depths 3 --epochs None")
    assert (options.workdir, config.depths, config.epochs) == (None, (3,), 12)


def test_hyphens_and_underscores_in_names_are_the_same(monkeypatch, capsys):
    """An experiment of two words, made of another one."""
    made = f"{discovery.PACKAGE}.two_words"
    monkeypatch.setitem(sys.modules, made, load_experiment("spectrum"))
    for module in (discovery, flags):
        monkeypatch.setattr(module, "experiment_names", lambda: ["spectrum", "two_words"])
    for name in ("two_words", "two-words"):
        options, _ = parse(f"--exp {name} --max_steps 7")
        assert options.exp == "two_words"
    assert main(["--exp", "tow-words"]) == 2
    assert "there is no experiment 'tow-words'; did you mean two_words?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", (None, None, None)),
        ("--exp vision --distributed off", None),
        ("--exp list --coordinator a:1", None),
        ("--coordinator=a:1 --num_processes 2 --process-id 1", ("a:1", 2, 1)),
        ("--coordinator None", (None, None, None)),
    ],
)
def test_what_is_said_of_processes(words, expected):
    assert flags.processes(words.split()) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--coordinator a", "--coordinator must be HOST:PORT"),
        ("--num-processes two", "--num-processes must be a whole number; got 'two'"),
        ("--num-processes 0", "--num-processes must be at least 1; got 0"),
        ("--num-processes 2 --process-id 2", "below --num-processes 2; got 2"),
        ("--process-id -1", "--process-id must be at least 0; got -1"),
        ("--distributed off --process-id 1", "leave out --process-id"),
    ],
)
def test_what_is_said_of_processes_is_checked(words, message):
    with pytest.raises(ValueError, match=message):
        flags.processes(words.split())
