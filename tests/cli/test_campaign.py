"""A campaign against the command line: every field of every experiment with hostile values.

Each command goes through `main` up to, and not including, training. It must end with status 2, one
line on stderr and nothing created, or be accepted; never with a traceback. What is accepted though
it looks hostile is listed in `ACCEPTED`, each for a reason, so that a change of the list is seen.
"""

import dataclasses
import functools
import importlib
import shutil
import types
import typing
from collections.abc import Iterator

import pytest

import jaxsens.figures  # noqa: F401  matplotlib keeps its fonts in HOME, which the tests move
from jaxsens import data
from jaxsens.cli.bounds import Range, declared_fields
from jaxsens.cli.config import ConfigError, ExperimentConfig
from jaxsens.corruptions import CorruptedSet
from jaxsens.run import experiment_names, load_experiment, main

INTS = ["0", "-1", "1", "2", "4294967296", str(10**18), str(10**30), str(10**400), "9" * 5000]
FLOATS = ["0", "-1", "nan", "inf", "-inf", "1e-320", "1e300", "1e400", str(10**30)]
WRONG = ["", " ", "x", "None", "1.5", "True", "é", "\udcff", "a\0b", "--", "-", "1,2"]

#: What passes though it was meant to be hostile: the words, and the fields that may have them.
ACCEPTED = {
    # Switches.
    "": "authors prenorm released skip_bad_rows tied",
    # No noise, no decay, the first seed.
    "0": (
        "augmented_variance dropout dynamics_decays parity_decay parity_epochs phase_settings "
        "regularised_variance relative_sigma seed sigma strength variance weight_decay"
    ),
    # The least there is; of the experiments of the first paper such runs were made.
    "1": (
        "adam_decay_epochs all_words_limit batch batch_size block context_dense "
        "context_dense_limit context_train "
        "dense_limit depth depths dynamics_directions dynamics_every dynamics_steps epochs "
        "evaluate_every every generalisation_retrain_seeds generalisation_steps "
        "generalisation_subsets heads hidden layers length_steps max_steps num_accuracy "
        "num_along num_checked num_corrupted num_draws num_enumerated num_final num_measured "
        "num_places num_random num_samples num_seeds num_steps num_test other_severities "
        "parity_degree parity_epochs parity_hidden patch phase_seeds phase_settings "
        "scaling_long_batch scaling_steps scratchpad_batch scratchpad_steps scratchpad_strings "
        "seed sets_per_degree severity squared_every tradeoff_control_seeds tradeoff_seeds "
        "tradeoff_steps univariate_d"
    ),
    # A number like any other.
    "1.5": (
        "adam_rate augmented_variance decay dynamics_decays dynamics_rate epsilon "
        "generalisation_rate learning_rate length_rate mlp_rate parity_decay phase_rates "
        "phase_sigmas regularised_variance relative_sigma scratchpad_rate sigma squared_rate "
        "strength summing_rate tradeoff_rates variance variances weight_decay"
    ),
    # Diverges, which ends with one line.
    "1000000000000000000000000000000": (
        "adam_rate dynamics_rate generalisation_rate learning_rate length_rate mlp_rate "
        "phase_rates scratchpad_rate squared_rate summing_rate tradeoff_rates"
    ),
    # Few.
    "2": (
        "adam_decay_epochs all_words_limit batch batch_size block context_dense "
        "context_dense_limit context_seeds "
        "context_train d dense_limit depth depths dynamics_directions dynamics_every "
        "dynamics_inputs dynamics_length dynamics_seeds dynamics_steps epochs evaluate_every "
        "every finite_d generalisation_functions generalisation_retrain_seeds "
        "generalisation_steps generalisation_subsets heads hidden layers length_inputs "
        "length_seeds length_steps length_trained max_steps num_accuracy num_along "
        "num_checked num_corrupted num_directions num_draws num_enumerated num_final "
        "num_inputs num_measured num_places num_random num_samples num_seeds num_sharpness "
        "num_starts num_steps num_test parity_degree parity_epochs parity_hidden parity_train "
        "patch phase_seeds phase_settings random_init_bits random_init_networks "
        "scaling_control_seeds scaling_long_batch scaling_long_lengths scaling_long_width "
        "scaling_seeds scaling_steps scan_stacks scratchpad_batch scratchpad_seeds "
        "scratchpad_steps scratchpad_strings seed sets_per_degree severity squared_every "
        "stuck_seeds tradeoff_control_seeds tradeoff_seeds tradeoff_steps train_d train_width "
        "univariate_d width"
    ),
    # Left open, or an empty list.
    "None": (
        "all_words_n batch_size context_dense depth depths edit embeddings epochs "
        "evaluate_every heads hidden intervene_on interventions learning_rate max_length "
        "models num_accuracy num_along num_corrupted num_measured num_sharpness num_train "
        "optimizer other_severities patch reduced reuse scaling_long_lengths token_noise "
        "tokenizer tolerance until_accuracy variance vocab_size width"
    ),
    # A choice.
    "True": "reduced token_noise",
}


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
    texts, corrupted = (
        importlib.import_module(f"{load_experiment(name).__name__}.loading")
        for name in ("language", "robustness")
    )
    # What is loaded is the same for all commands; corrupting images compiles.
    monkeypatch.setattr(data, "load", functools.cache(data.load))
    monkeypatch.setattr(texts, "load_text", functools.cache(texts.load_text))
    monkeypatch.setattr(
        corrupted,
        "_corrupted",
        lambda config, clean, name, *_: CorruptedSet(*clean, name, config.severity, "made up", ""),
    )


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
        capsys.readouterr()
        shutil.rmtree(tmp_path / "runs")
        return "accepted"
    out, err = capsys.readouterr()
    shown = f"{[a[:40] for a in arguments]}: {err[:500]}"
    assert status == 2, shown
    assert out == "", shown
    assert err.count("\n") == 1, shown
    assert list(tmp_path.iterdir()) == [], shown
    return err


def campaign(step: int, tmp_path, capsys) -> set[tuple[str, str]]:
    """Every `step`-th command of all experiments; (words, field) of those that were accepted."""
    every = [(field, line) for name in experiment_names() for field, line in commands(name)]
    assert len(every) > 4_000
    return {
        (" ".join(line[3:]), field)
        for field, line in every[::step]
        if outcome(line, tmp_path, capsys) == "accepted"
    }


def expected() -> set[tuple[str, str]]:
    return {(words, field) for words, fields in ACCEPTED.items() for field in fields.split()}


def test_no_field_takes_a_hostile_value(tmp_path, capsys):
    assert campaign(47, tmp_path, capsys) <= expected()


@pytest.mark.slow
def test_no_field_takes_any_hostile_value(tmp_path, capsys):
    assert campaign(1, tmp_path, capsys) == expected()


def test_every_field_declares_its_bounds():
    for name in experiment_names():
        for field, declared in declared_fields(load_experiment(name).Config).items():
            assert declared.bounded, f"{name}.{field}"
            assert declared.several is None or not declared.optional, f"{name}.{field}"


def test_a_field_without_bounds_is_a_mistake_of_the_experiment():
    @dataclasses.dataclass(frozen=True)
    class Config(ExperimentConfig):
        depth: int = 3

    with pytest.raises(TypeError, match="depth declares no bounds"):
        Config()


def test_just_beyond_its_range_a_field_is_refused_by_name():
    for name in experiment_names():
        config = load_experiment(name).PRESETS["quick"]
        for field, declared in declared_fields(type(config)).items():
            for bound in (each for each in declared.bounds if isinstance(each, Range)):
                step = 1 if declared.kind is int else 1.0
                for value in (declared.kind(bound.low) - step, declared.kind(bound.high) + step):
                    beyond = value if value != bound.high else 1.1 * value
                    given = beyond if declared.several is None else (beyond,)
                    with pytest.raises(ConfigError) as error:
                        dataclasses.replace(config, **{field: given})
                    assert f"{field} must " in str(error.value)
                    assert "\n" not in str(error.value)
