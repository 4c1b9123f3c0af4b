"""`--exp NAME --help`: what the experiment shows, and its flags in groups.

    what to run       the experiment, its preset, data, models and seeds
    what to measure   edits, draws, how many examples
    training          models and their training
    where             folders, processes

An experiment's config says which of its flags belong where (`ExperimentConfig.FLAG_GROUPS`). Texts
are the docstrings of the fields, read from the source, so that they are there under `python -OO`.
`python -m jaxsens.measure --help` has its flags in the same groups.
"""

import ast
import dataclasses
import fnmatch
import inspect
import itertools
import shutil
import textwrap
from collections.abc import Collection, Mapping
from typing import Any

from jaxsens.cli.bounds import Declared, declared_fields
from jaxsens.cli.experiment import Experiment

_WHAT_TO_RUN = "what to run"
#: Where a text begins; a longer flag stands on a line of its own.
_COLUMN = 28
_WIDEST = 100


def help_text(
    name: str, experiment: Experiment, options: type, preset: str, width: int | None = None
) -> str:
    """The help of an experiment.

    Args:
      name: the experiment.
      experiment: its package.
      options: the dataclass of what every experiment understands.
      preset: the one whose values are shown as defaults.
      width: of a line; by default the terminal's, at most 100.
    """
    config = experiment.PRESETS[preset].filled(preset)
    values = {"exp": name, "preset": preset} | dataclasses.asdict(config)
    parts = [
        f"usage: python -m jaxsens.run --exp {name} [--preset {'|'.join(experiment.PRESETS)}] "
        "[flags]",
        (experiment.__doc__ or "").strip(),
        *flag_groups(options, type(config), values, width=width),
        f"Values in brackets are those of the preset {preset}; --preset PRESET --help shows "
        "others.",
    ]
    return "\n\n".join(filter(None, parts))


def flag_groups(
    options: type,
    config: type,
    values: Mapping[str, Any],
    *,
    hidden: Collection[str] = (),
    width: int | None = None,
) -> list[str]:
    """All flags under their headings, a text for each group.

    Args:
      options: the dataclass of what the command line understands.
      config: that of what is run, with its `FLAG_GROUPS`.
      values: what is shown as default, by field.
      hidden: fields that are no flags here.
      width: of a line; by default the terminal's, at most 100.
    """
    width = width or min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
    groups: dict[str, list[str]] = {_WHAT_TO_RUN: []}
    headings = getattr(config, "FLAG_GROUPS", {})
    texts = {**field_texts(options), **field_texts(config)}
    for field, declared in {**declared_fields(options), **declared_fields(config)}.items():
        if field not in hidden:
            shown = _flag_text(field, declared, texts.get(field, ""), values.get(field), width)
            groups.setdefault(group_of(field, headings), []).append(shown)
    order = dict.fromkeys([_WHAT_TO_RUN, *headings])
    return [f"{group}:\n" + "\n".join(groups[group]) for group in order if group in groups]


def group_of(field: str, groups: Mapping[str, tuple[str, ...]]) -> str:
    """The first group with a pattern that the field matches.

    Example:
      >>> group_of("num_train", {"training": ("*epochs", "num_train"), "measuring": ("num_*",)})
      'training'
      >>> group_of("seed", {})
      'what to run'
    """
    for group, patterns in groups.items():
        if any(fnmatch.fnmatchcase(field, pattern) for pattern in patterns):
            return group
    return _WHAT_TO_RUN


def field_texts(config: type) -> dict[str, str]:
    """The docstring of each field: the text below it in the class, or in one that it extends."""
    found: dict[str, str] = {}
    for each in reversed(config.__mro__):
        if not dataclasses.is_dataclass(each):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        body = getattr(tree, "body", [])
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                value = getattr(text, "value", None)
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[field.target.id] = " ".join(value.value.split())
    return found


def _flag_text(field: str, declared: Declared, text: str, value: Any, width: int) -> str:
    """A flag, the words that it takes, what it means and its value."""
    flag = field.replace("_", "-")
    if declared.kind is bool and not declared.optional:
        invocation = f"  --{flag}, --no-{flag}"
    else:
        invocation = f"  --{flag} {_words(declared)}"
    shown = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
    given = f" [{shown}]" if shown not in (None, "") else ""
    lines = textwrap.wrap(text + given, max(width - _COLUMN, 20), break_on_hyphens=False)
    if len(invocation) < _COLUMN - 1 and lines:
        invocation = invocation.ljust(_COLUMN) + lines.pop(0)
    return "\n".join([invocation, *(" " * _COLUMN + line for line in lines)])


def _words(declared: Declared) -> str:
    """What follows the flag."""
    kinds = {int: "INT", float: "FLOAT", bool: "True|False"}
    word = "|".join(map(str, declared.choices)) or kinds.get(declared.kind, "TEXT")
    return word if declared.several is None else f"{word} …"
