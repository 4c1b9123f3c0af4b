"""`--help`: every flag once, in its group, with its text and the preset's value."""

import io
import re
import sys

import pytest

from jaxsens import measure
from jaxsens.cli.config import ExperimentConfig
from jaxsens.cli.discovery import experiment_names, load_experiment
from jaxsens.cli.experiment import cost_of
from jaxsens.cli.flags import Options
from jaxsens.cli.help_text import field_texts, group_of, help_text


def parts_of(text):
    """The flags of each group."""
    found = {}
    for part in text.split("\n\n"):
        head, _, rest = part.partition(":\n")
        if "\n" not in head and rest.startswith("  --"):
            found[head] = re.findall(r"^  --([\w-]+)", rest, re.MULTILINE)
    return found


@pytest.mark.parametrize("name", experiment_names())
def test_every_flag_is_there_once_with_a_text(name):
    experiment = load_experiment(name)
    fields = [*Options.__dataclass_fields__, *experiment.Config.__dataclass_fields__]
    groups = parts_of(help_text(name, experiment, Options, "quick", width=90))
    shown = [flag for flags in groups.values() for flag in flags]
    assert sorted(shown) == sorted(field.replace("_", "-") for field in fields)
    assert {"workdir", "data-dir", "num-processes"} <= set(groups["where"])
    assert {"exp", "preset", "seed"} <= set(groups["what to run"])
    texts = {**field_texts(Options), **field_texts(experiment.Config)}
    assert not [field for field in fields if not texts.get(field)]


def test_flags_stand_in_their_groups():
    groups = parts_of(help_text("vision", load_experiment("vision"), Options, "quick", width=90))
    assert [*groups] == ["what to run", "what to measure", "training", "where"]
    assert groups["what to run"] == [
        *("exp", "preset", "dataset", "seed", "models", "num-seeds"),
        "until-accuracy",
    ]
    assert {"patch", "variance", "num-samples", "num-measured"} <= set(groups["what to measure"])
    assert {"epochs", "learning-rate", "batch-size", "num-train"} <= set(groups["training"])
    assert "reuse" in groups["where"]


def test_an_experiment_may_have_groups_of_its_own():
    name = "sensitive_functions"
    groups = parts_of(help_text(name, load_experiment(name), Options, "quick", width=90))
    assert "scaling-lengths" in groups["part scaling"]
    assert group_of("anything", ExperimentConfig.FLAG_GROUPS) == "what to run"


def test_values_are_those_of_the_preset_and_lines_fit():
    vision = load_experiment("vision")
    quick, paper = (help_text("vision", vision, Options, p, width=80) for p in ("quick", "paper"))
    assert "[digits]" in quick
    assert "[fashion_mnist]" in paper
    after = quick.partition("what to run:")[2]
    assert max(map(len, after.splitlines())) <= 100
    assert "options options" not in quick


def test_measure_has_its_flags_in_the_same_groups():
    text = measure.help_text(width=90)
    groups = parts_of(text)
    assert [*groups] == ["what to run", "what to measure", "where"]
    shown = sorted(flag for flags in groups.values() for flag in flags)
    fields = {*Options.__dataclass_fields__, *measure.Config.__dataclass_fields__}
    hidden = {"exp", "preset", "parallel_arms"}
    assert shown == sorted(field.replace("_", "-") for field in fields - hidden)
    assert {"model", "data", "seed"} <= set(groups["what to run"])
    assert "[gaussian:sigma=1]" in text
    assert "options options" not in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_run_of_more_than_a_minute_says_so(monkeypatch):
    vision = load_experiment("vision")
    quick = vision.PRESETS["quick"].filled("quick")
    assert cost_of(vision, "quick", quick) == (
        f"this takes longer than a minute: {vision.COST['quick']}"
    )
    changed = vision.Config(dataset="digits", epochs=1).filled("quick")
    assert cost_of(vision, "quick", changed) is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert "with your flags more or less" in cost_of(vision, "quick", changed)
    monkeypatch.setattr(vision, "COST", {"quick": "some seconds"})
    assert cost_of(vision, "quick", quick) is None
