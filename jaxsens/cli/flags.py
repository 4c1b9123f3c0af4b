"""Flags: from the words of a command line to the options and the config of an experiment.

The flags are the fields of `Options` and of the experiment's `Config`; tyro makes the parser. What
tyro would let pass is refused here: a flag given twice, a list with nothing in it, a folder without
a name. Everything wrong raises ValueError with a message of one line.
"""

import contextlib
import dataclasses
import io
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar

import tyro

from jaxsens.cli.bounds import Declared, FolderName, declared_fields
from jaxsens.cli.config import ConfigError
from jaxsens.cli.discovery import canonical_name, experiment_names
from jaxsens.cli.experiment import Experiment
from jaxsens.cli.help_text import help_text
from jaxsens.cli.wording import nearest, shown
from jaxsens.core import storage

#: Each flag, as `--num-train`, with the words that follow it.
Given = Mapping[str, Sequence[str]]
#: As long as a path may be.
_LONGEST_WORD = 4096
#: What stands for a flag, and that flag.
_ALIASES = {"-h": "--help", "--seeds": "--num-seeds"}


@dataclasses.dataclass(frozen=True)
class Options:
    """What every experiment understands."""

    exp: str
    """Experiment to run; `list` prints them all."""
    preset: Literal["quick", "small", "paper"] = "quick"
    """quick: offline, minutes on two cores; small: real data on a CPU; paper: the exact setting."""
    workdir: PurePath | None = None
    """Run folder, may be gs://BUCKET/FOLDER; default runs/<exp>/<config hash>."""
    data_dir: PurePath | None = None
    """Folder with datasets, may be gs://BUCKET/FOLDER; default the variable JAXSENS_DATA."""
    parallel_arms: int | None = None
    """Models (of every seed) that are trained at the same time, each by a process with its share of
    the cores; default one after the other, with all cores."""
    distributed: Literal["auto", "off"] = "auto"
    """auto: as many processes as SLURM, a TPU pod, Kubernetes or the flags below say; off: one."""
    coordinator: str | None = None
    """HOST:PORT of process 0, where processes meet; default what the cluster says."""
    num_processes: int | None = None
    """How many processes run this command together; default what the cluster says."""
    process_id: int | None = None
    """The number of this process, from 0; default what the cluster says."""


OptionsT = TypeVar("OptionsT", bound=Options)


def processes(arguments: Sequence[str]) -> tuple[str | None, int | None, int | None] | None:
    """What the flags say of the processes of a job: coordinator, their number, which one this is.

    Looks at no other flag: processes must know each other before anything else can be wrong.

    Returns:
      None if this process is to run alone, else the three, each None if its flag is not given.

    Raises:
      ValueError: one of these flags is bad, or they do not fit each other.

    Example:
      >>> processes("--exp vision --coordinator 10.0.0.1:1234 --num-processes 2".split())
      ('10.0.0.1:1234', 2, None)
    """
    named = {flag_of(name): name for name in ("coordinator", "num_processes", "process_id")}
    found: dict[str, str] = {}
    for word, after in itertools.pairwise([*arguments, "--"]):
        flag, equals, value = word.partition("=")
        if (flag := flag.replace("_", "-")) in (*named, "--distributed"):
            found[flag] = value if equals else after
    given = [flag for flag in named if found.get(flag, "None") != "None"]
    if found.get("--distributed") == "off":
        if given:
            raise ValueError(f"--distributed off is one process; leave out {given[0]}")
        return None
    if "--exp" in arguments and "list" in arguments[arguments.index("--exp") + 1 :][:1]:
        return None
    for flag in ("--num-processes", "--process-id"):
        if flag in given:
            _check_number(flag, found[flag], int)
    coordinator = found["--coordinator"] if "--coordinator" in given else None
    num = int(found["--num-processes"]) if "--num-processes" in given else None
    process = int(found["--process-id"]) if "--process-id" in given else None
    _check_processes(coordinator, num, process)
    return coordinator, num, process


def _check_processes(coordinator: str | None, num: int | None, process: int | None) -> None:
    if coordinator is not None and not re.fullmatch(r".+:\d{1,5}", coordinator):
        raise ValueError(
            f"--coordinator must be HOST:PORT, such as 10.0.0.1:1234; got {shown(coordinator)}"
        )
    if num is not None and num < 1:
        raise ValueError(f"--num-processes must be at least 1; got {num}")
    if process is not None and not 0 <= process < (process + 1 if num is None else num):
        until = "" if num is None else f" and below --num-processes {num}"
        raise ValueError(f"--process-id must be at least 0{until}; got {process}")


def split(arguments: Sequence[str], first: str = "--exp NAME") -> Given:
    """The words after each flag; hyphens and underscores in a flag are the same.

    Args:
      arguments: the words of the command line.
      first: what it may begin with, for the error.

    Raises:
      ValueError: a flag is given twice, a word is too long or comes before all flags.

    Example:
      >>> split(["--exp", "vision", "--num_train=100", "--models", "cnn", "mlp-leaky"])
      {'--exp': ['vision'], '--num-train': ['100'], '--models': ['cnn', 'mlp-leaky']}
    """
    given: dict[str, list[str]] = {}
    words: list[str] | None = None
    for argument in arguments:
        if len(argument) > _LONGEST_WORD:
            raise ValueError(
                f"expected words of at most {_LONGEST_WORD} characters; got {shown(argument)}"
            )
        if argument.startswith("--") or argument == "-h":
            flag, equals, value = argument.partition("=")
            flag = flag.replace("_", "-")
            flag = _ALIASES.get(flag, flag)
            if flag in given:
                raise ValueError(f"{flag} is given twice; give it once")
            words = given[flag] = [value] if equals else []
        elif words is None:
            raise ValueError(f"expected a flag such as {first} first; got {shown(argument)}")
        else:
            words.append(argument)
    return given


def experiment_name(given: Given) -> str | None:
    """The experiment that is asked for, "list" for all of them, None for general help.

    Raises:
      ValueError: none is named and no help asked for, or the name is unknown.
    """
    if "--exp" not in given and "--help" in given:
        return None
    choices = f"choose one of {', '.join(experiment_names())}, list"
    if not given.get("--exp"):
        raise ValueError(f"--exp is missing; {choices}")
    name = given["--exp"][0]
    if name != "list":
        return canonical_name(name)
    others = [flag for flag in given if flag not in ("--exp", "--help")]
    if others or len(given["--exp"]) > 1:
        raise ValueError(
            f"--exp list takes nothing else; got {[*others, *given['--exp'][1:]][0]}; leave it out"
        )
    return name


def parse(experiment: Experiment, given: Given) -> tuple[Options, Any]:
    """Options and config from the flags; ValueError, in one line, for bad ones."""
    check_flags(Options, experiment.Config, given)
    preset = given.get("--preset", ["quick"])[0]
    default = experiment.PRESETS[preset]
    name = canonical_name(given["--exp"][0])
    if "--help" in given:
        print(help_text(name, experiment, Options, preset))
        raise SystemExit(0)
    options, config = parse_fields(
        Options(exp="", preset="quick"),
        default,
        {**given, "--exp": [name, *given["--exp"][1:]]},
        program=f"python -m jaxsens.run --exp {name}",
        description=experiment.__doc__,
    )
    return options, resolved(config, options.preset)


def parse_fields(
    options: OptionsT, default: Any, given: Given, *, program: str, description: str | None
) -> tuple[OptionsT, Any]:
    """Options and config from flags that `check_flags` let pass.

    Args:
      options: what they are if no flag says otherwise.
      default: the same of the config.
      given: the flags.
      program: the command without its flags, for help.
      description: what it does, for help.

    Raises:
      ValueError: a value is bad; the message is one line.
    """
    folders = {
        flag: _folder(flag, given[flag]) for flag in ("--workdir", "--data-dir") & given.keys()
    }
    if "--data-dir" not in given and os.environ.get("JAXSENS_DATA"):
        _folder("JAXSENS_DATA", [os.environ["JAXSENS_DATA"]])
    command = dataclasses.make_dataclass(
        "command", [("options", type(options)), ("config", type(default))], frozen=True
    )
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            parsed = tyro.cli(
                command,
                args=_joined(type(default), given),
                default=command(options, default),
                prog=program,
                description=description,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
            )
    except SystemExit as stop:
        if stop.code == 0:
            raise
        raise ValueError(_reason(stop) or printed.getvalue()) from None
    options = dataclasses.replace(
        parsed.options, workdir=folders.get("--workdir"), data_dir=folders.get("--data-dir")
    )
    return options, parsed.config


def resolved(config: Any, preset: str) -> Any:
    """The config with what it left open filled in, checked."""
    return config.resolved(preset)


def flag_of(field: str) -> str:
    """The flag of a field.

    Example:
      >>> flag_of("num_train")
      '--num-train'
    """
    return "--" + field.replace("_", "-")


def check_flags(options: type, config: type, given: Given) -> None:
    """Raises ValueError for a flag that there is not, or one with words that it cannot take.

    Args:
      options: a dataclass, whose fields are flags.
      config: another.
      given: the flags.
    """
    fields = {**declared_fields(options), **declared_fields(config)}
    known = {flag_of(name): declared for name, declared in fields.items()}
    switches = [flag for flag, declared in known.items() if is_switch(declared)]
    # tyro's way to switch one off.
    off = {"--no-" + flag.removeprefix("--"): flag for flag in switches}
    for flag, words in given.items():
        if flag not in known and flag not in off and flag != "--help":
            raise ValueError(f"unknown flag {shown(flag)[1:-1]}{nearest(flag, {*known, *off})}")
        if off.get(flag) in given:
            raise ValueError(f"{off[flag]} and {flag} are both given; give one of them")
        if flag in known and flag not in switches:
            _check_words(flag, words, known[flag])
        elif words:
            raise ValueError(f"{flag} takes no value; got {shown(words[0])}; leave it out")


def is_switch(declared: Declared) -> bool:
    """Whether the flag of a field takes no word: --released, --no-released."""
    return declared.kind is bool and not declared.optional


def _check_words(flag: str, words: Sequence[str], declared: Declared) -> None:
    if not words:
        may_be_none = declared.several is not None and not declared.several.at_least
        none = "None is none of them; " if may_be_none else ""
        raise ValueError(f"{flag} needs a value after it; {none}leave it out for the default")
    if len(words) > 1 and declared.several is None:
        raise ValueError(f"{flag} takes one value; got {len(words)}: {shown(' '.join(words))}")
    if list(words) == ["None"] and (declared.optional or declared.several is not None):
        return
    choices = [str(choice) for choice in declared.choices or (True, False)]
    for word in words:
        if (declared.choices or declared.kind is bool) and word not in choices:
            raise ValueError(f"{flag} has no choice {shown(word)}{nearest(word, choices)}")
        if declared.kind in (int, float):
            _check_number(flag, word, declared.kind)


def _check_number(flag: str, word: str, kind: type) -> None:
    try:
        kind(word)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"{flag} must be {what}; got {shown(word)}") from None


def _joined(config: type, given: Given) -> list[str]:
    """The command line anew; None for a list is no word at all, as tyro has it."""
    fields = declared_fields(config).items()
    lists = {flag_of(name) for name, declared in fields if declared.several is not None}
    words = []
    for flag, values in given.items():
        words += [flag, *(() if flag in lists and list(values) == ["None"] else values)]
    return words


def _folder(flag: str, words: Sequence[str]) -> PurePath | None:
    """The folder that is named, `~` and `~user` expanded; None if the word is None."""
    if list(words) == ["None"]:
        return None
    problem = FolderName(remote=True).problem(words[0])
    if problem is not None:
        raise ValueError(f"{flag} must be {problem[0]}; got {shown(words[0])}; {problem[1]}")
    if storage.is_remote(words[0]):
        return storage.located(words[0])
    try:
        return Path(words[0]).expanduser()
    except RuntimeError:
        raise ValueError(
            f"{flag} names the home of a user that there is not: {shown(words[0])}; give a path "
            "without ~"
        ) from None


def _reason(stop: SystemExit) -> str | None:
    """What the config itself said, if it is why tyro stopped."""
    error: BaseException | None = stop
    while error is not None and not isinstance(error, ConfigError):
        error = error.__context__
    return None if error is None else str(error)
