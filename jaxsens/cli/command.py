"""The command that makes a run again: the nearest preset and what differs from it."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from jaxsens.cli.bounds import declared_fields
from jaxsens.cli.config import ExperimentConfig
from jaxsens.cli.experiment import Experiment
from jaxsens.cli.flags import is_switch
from jaxsens.reporting import report


def reproduce(name: str, experiment: Experiment, config: ExperimentConfig) -> str:
    """The shortest command that gives this config.

    A preset fills in what its config and the flags leave open, so not every preset can give every
    config; the one that a config came from can.

    Args:
      name: the experiment.
      experiment: its package.
      config: a resolved config.
    """
    found = [
        ({} if preset == "quick" else {"preset": preset}) | flags
        for preset in experiment.PRESETS
        if (flags := _differing(experiment, preset, config)) is not None
    ]
    every_field = _words(config, declared_fields(type(config)))
    return report.command(name, min(found, key=len, default=every_field))


def _differing(
    experiment: Experiment, preset: Any, config: ExperimentConfig
) -> dict[str, Any] | None:
    """The fewest fields that must be given with this preset; None if it cannot give the config."""

    def gives(names: list[str]) -> bool:
        fields = {name: getattr(config, name) for name in names}
        try:
            made = dataclasses.replace(experiment.PRESETS[preset], **fields)
            return made.filled(preset) == config
        except ValueError:
            return False  # some fields are only right together with one that was left out

    usual = experiment.PRESETS[preset].filled(preset)
    every = list(declared_fields(type(config)))
    names = [name for name in every if getattr(config, name) != getattr(usual, name)]
    if not gives(names):
        names = every
        if not gives(names):
            return None
    for name in tuple(names):
        fewer = [each for each in names if each != name]
        if gives(fewer):
            names = fewer
    return _words(config, names)


def _words(config: ExperimentConfig, names: Iterable[str]) -> dict[str, Any]:
    """The fields as `report.command` is to write them."""
    fields = declared_fields(type(config))

    def word(name: str) -> Any:
        value = getattr(config, name)
        if value == ():
            return "None"
        # A bool that may be left open is no switch: its flag takes a word.
        return str(value) if isinstance(value, bool) and not is_switch(fields[name]) else value

    return {name: word(name) for name in names}
