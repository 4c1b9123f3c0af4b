"""A campaign against the command line: every field of every experiment with hostile values.

Each command goes through `main` up to, and not including, training. It must end with status 2, one
line on stderr and nothing created, or be accepted; never with a traceback. What is accepted though
it looks hostile is listed in `ACCEPTED`, each for a reason, so that a change of the list is seen.
"""

import dataclasses
import functools
import shutil
import types
import typing
from collections.abc import Iterator

import pytest

import jaxsens.figures  # noqa: F401  matplotlib keeps its fonts in HOME, which the tests move
from jaxsens import data
from jaxsens.run import experiment_names, load_experiment, main

INTS = ["0", "-1", "1", "2", "4294967296", str(10**18), str(10**30), "9" * 5000]
FLOATS = ["0", "-1", "nan", "inf", "-inf", "1e-320", "1e300", "1e400", str(10**30)]
WRONG = ["", " ", "x", "None", "1.5", "True", "é", "\udcff", "a\0b", "--", "-", "1,2"]


class Accepted(BaseException):
    """Raised in place of training."""


@pytest.fixture(autouse=True)
def _stop_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXSENS_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def stop(config, data, folder):
        raise Accepted

    for name in experiment_names():
        monkeypatch.setattr(load_experiment(name), "run", stop)
    texts = load_experiment("language").lab
    # What is loaded is the same for all commands; corrupting images compiles.
    monkeypatch.setattr(data, "load", functools.cache(data.load))
    monkeypatch.setattr(texts, "load_text", functools.cache(texts.load_text))
    monkeypatch.setattr(load_experiment("robustness"), "_corrupted", lambda *_: None)


def leaf_types(hint: typing.Any) -> Iterator[typing.Any]:
    """The types of single values in an annotation."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    arguments = [a for a in typing.get_args(hint) if a is not Ellipsis]
    if typing.get_origin(hint) in (tuple, typing.Union, types.UnionType):
        for argument in arguments:
            yield from leaf_types(argument)
    elif hint is not type(None):
        yield hint


def hostile_values(hint: typing.Any) -> list[list[str]]:
    """Words to put after a flag of this type."""
    kinds = list(leaf_types(hint))
    singles = list(WRONG)
    if int in kinds:
        singles += INTS
    if float in kinds:
        singles += FLOATS
    if str in kinds:
        singles += ["~nosuchuser/x", "/dev/null", "a\nb", "x" * 5000]
    words = [[], *([value] for value in singles), ["1", "1"], ["None", "None"]]
    for kind in kinds:
        words += [2 * [str(choice)] for choice in typing.get_args(kind)[:1]]
    return words


def commands(name: str) -> Iterator[tuple[str, list[str]]]:
    """Every (field, command line) of an experiment."""
    config = load_experiment(name).Config
    hints = typing.get_type_hints(config, include_extras=True)
    for field in dataclasses.fields(config):
        flag = "--" + field.name.replace("_", "-")
        for words in hostile_values(hints[field.name]):
            yield field.name, ["--exp", name, flag, *words]
        yield field.name, ["--exp", name, flag, "1", flag, "1"]


def outcome(arguments: list[str], tmp_path, capsys) -> str:
    """How a command ends: "accepted" or the one line it was refused with; fails otherwise."""
    try:
        status = main(arguments)
    except Accepted:
        shutil.rmtree(tmp_path / "runs")
        return "accepted"
    out, err = capsys.readouterr()
    shown = f"{[a[:40] for a in arguments]}: {err[:500]}"
    assert status == 2, shown
    assert out == "", shown
    assert err.count("\n") == 1, shown
    assert list(tmp_path.iterdir()) == [], shown
    return err
