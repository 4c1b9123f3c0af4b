"""The command in a report gives back the config of the run, whatever it was."""

import dataclasses
import importlib
import shlex
import typing
from collections.abc import Iterator

import pytest

from jaxsens.cli import flags
from jaxsens.cli.bounds import declared_fields
from jaxsens.cli.command import reproduce
from jaxsens.run import experiment_names, load_experiment


def parsed(command: str):
    """What the command runs: the experiment and the config."""
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "jaxsens.run"]
    given = flags.split(words[3:])
    options, config = flags.parse(load_experiment(flags.experiment_name(given)), given)
    return options.exp, config


def round_trip(name: str, config) -> str:
    command = reproduce(name, load_experiment(name), config)
    assert parsed(command) == (name, config), command
    return command


def datasets(module) -> tuple[str, ...]:
    fields = declared_fields(module.Config)
    return fields["dataset"].choices if "dataset" in fields else ()


def test_every_preset_comes_back():
    for name in experiment_names():
        for preset, config in load_experiment(name).PRESETS.items():
            expected = f"python -m jaxsens.run --exp {name}"
            if preset != "quick":
                expected += f" --preset {preset}"
            # The preset itself needs nothing else, unless a shorter command gives the same.
            assert len(round_trip(name, config.resolved(preset))) <= len(expected)


@pytest.mark.slow
def test_every_dataset_with_every_preset_comes_back():
    for name in experiment_names():
        module = load_experiment(name)
        for preset, config in module.PRESETS.items():
            for dataset in datasets(module):
                other = dataclasses.replace(config, dataset=dataset).resolved(preset)
                round_trip(name, other)


def other_values(declared, value) -> Iterator:
    """Values of a field that are not this one, the likeliest to be allowed first."""
    kind, several = declared.kind, declared.several is not None
    if declared.choices:
        yield from ((choice,) if several else choice for choice in declared.choices)
    elif several and kind is str:
        yield ("some folder's $HOME",)
    elif several:
        yield from (value[:1], value[1:], (*value, *(7 * each for each in value)), (2, 4), ())
    elif kind is bool:
        yield from (not value, True)
    elif kind in (int, float):
        start = value if value is not None else 100
        yield from map(kind, (start * 2, start + 1, start + 2, start / 2, 1))
    else:
        yield "some folder's $HOME"
    if declared.optional:
        yield None


def changes(name: str, preset: str = "quick") -> Iterator[tuple[str, typing.Any]]:
    """For every field a value that the preset does not have and that its other fields allow."""
    module = load_experiment(name)
    before = module.PRESETS[preset].filled(preset)
    for field, declared in declared_fields(module.Config).items():
        for value in other_values(declared, getattr(before, field)):
            try:
                after = dataclasses.replace(module.PRESETS[preset], **{field: value}).filled(preset)
            except ValueError:
                continue
            if getattr(after, field) != getattr(before, field):
                yield field, value
                break


def test_all_fields_at_once_come_back():
    for name in experiment_names():
        config = load_experiment(name).PRESETS["quick"]
        found = dict(changes(name))
        for field, value in found.items():
            try:
                dataclasses.replace(config, **{field: value}).filled("quick")
            except ValueError:
                continue  # not together with the others
            config = dataclasses.replace(config, **{field: value})
        filled, usual = (
            config.filled("quick"),
            load_experiment(name).PRESETS["quick"].filled("quick"),
        )
        different = sum(getattr(filled, each) != getattr(usual, each) for each in found)
        assert different > 0.7 * len(found)
        # The folder of another run is looked for when a command is run.
        if "reuse" in found:
            filled = dataclasses.replace(filled, reuse=usual.reuse)
        round_trip(name, filled)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["quick", "small", "paper"])
def test_every_field_comes_back(preset, monkeypatch):
    vision = load_experiment("vision")
    images = importlib.import_module(".._images.config", vision.__package__)
    monkeypatch.setattr(images, "_check_reuse", lambda *_: None)
    for name in experiment_names():
        module, found = load_experiment(name), dict(changes(name, preset))
        unchanged = set(declared_fields(module.Config)) - set(found)
        # What an experiment compares leaves it a single choice, and so does a single model.
        fixed = {"estimator", "edit", "optimizer", "intervene_on"}
        assert unchanged <= fixed, (name, unchanged)
        for field, value in found.items():
            config = dataclasses.replace(module.PRESETS[preset], **{field: value}).filled(preset)
            round_trip(name, config)
