"""Every experiment has what the command line needs of it, and says how to run it."""

import dataclasses
import inspect
import typing
from pathlib import PurePath

import pytest

from jaxsens.cli.config import ExperimentConfig, Preset
from jaxsens.cli.experiment import Experiment
from jaxsens.reporting.results import Findings
from jaxsens.reporting.run_folder import RunFolder
from jaxsens.run import experiment_names, load_experiment

PRESETS = typing.get_args(Preset)


@pytest.fixture(params=experiment_names())
def experiment(request):
    return load_experiment(request.param)


def test_it_has_every_name_of_the_protocol(experiment):
    assert isinstance(experiment, Experiment)
    assert set(experiment.__all__) == {"COST", "PAPERS", "PRESETS", "Config", "load", "run"}


def test_its_config_is_frozen_and_has_a_value_and_a_cost_for_every_preset(experiment):
    assert issubclass(experiment.Config, ExperimentConfig)
    assert experiment.Config.__dataclass_params__.frozen
    assert tuple(experiment.PRESETS) == tuple(experiment.COST) == PRESETS
    assert {type(config) for config in experiment.PRESETS.values()} == {experiment.Config}
    assert all(cost and "\n" not in cost for cost in experiment.COST.values())


def hints_of(function):
    """Parameters and what is returned, in order, as the function says."""
    hints = typing.get_type_hints(function)
    names = [*inspect.signature(function).parameters, "return"]
    return [hints[name] for name in names]


def test_it_loads_what_it_runs_and_leaves_the_rest_to_the_runner(experiment):
    config, data_dir, loaded = hints_of(experiment.load)
    assert issubclass(experiment.Config, config)
    assert data_dir == PurePath | None
    assert hints_of(experiment.run) == [experiment.Config, loaded, RunFolder, Findings]


def test_its_docstring_has_a_first_line_and_a_command(experiment):
    name = experiment.__name__.rpartition(".")[2]
    first, _, rest = experiment.__doc__.partition("\n")
    assert first
    assert f"    python -m jaxsens.run --exp {name.replace('_', '-')}\n" in rest


def test_what_is_missing_is_seen():
    given = {"Config": ExperimentConfig, "PRESETS": {}, "COST": {}, "load": max, "run": max}
    assert isinstance(type("Whole", (), given)(), Experiment)
    for name in given:
        fewer = {n: value for n, value in given.items() if n != name}
        assert not isinstance(type("Part", (), fewer)(), Experiment)


def test_findings_have_nothing_that_the_runner_knows():
    names = {field.name for field in dataclasses.fields(Findings)}
    assert names.isdisjoint({"experiment", "config", "environment", "seconds", "command"})
