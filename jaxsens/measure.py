"""Measures a model of yours: `python -m jaxsens.measure --model M --params FILE --data FILE …`.

    python -m jaxsens.measure --model net.py:apply_fn --params weights.npz --data images.npy
        --grid patches:4 --edit gaussian:variance=5 --samples 5
    python -m jaxsens.measure --hf DIR --data texts.txt --edit gaussian:sigma=1 --tolerance 0.01
    python -m jaxsens.measure --model net.py:apply_fn --params a.npz --compare b.npz
        --data images.npy --grid patches:4

The run folder, its report page and the exit status are those of `python -m jaxsens.run`: the same
command resumes a run that was killed, and returns at once if it is finished. Other weights or other
data under the same names make another run.

Exit status: 0 done, 1 failed, 2 bad arguments, model or data, 75 interrupted.
"""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from jaxsens.cli import failures, flags
from jaxsens.cli.help_text import flag_groups
from jaxsens.core.fingerprint import fingerprint
from jaxsens.measuring.config import Config
from jaxsens.measuring.experiment import MeasureExperiment, load
from jaxsens.reporting.run_folder import default_folder
from jaxsens.run import carry_out, run_command

NAME = "measure"
#: Flags of `jaxsens.run` that make no sense here.
_HIDDEN = ("exp", "preset", "parallel_arms")


@dataclass(frozen=True)
class Options(flags.Options):
    """Where the run is, and on which processes."""

    exp: Annotated[str, tyro.conf.Suppress] = NAME
    preset: Annotated[Literal["quick", "small", "paper"], tyro.conf.Suppress] = "quick"
    parallel_arms: Annotated[int | None, tyro.conf.Suppress] = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    return run_command(arguments, _main)


def _main(arguments: list[str]) -> int:
    with failures.of_usage():
        given = flags.split(arguments, first="--model module:function")
        for flag in map(flags.flag_of, _HIDDEN):
            if flag in given:
                raise ValueError(f"{flag} is of python -m jaxsens.run; leave it out here")
        flags.check_flags(Options, Config, given)
        if "--help" in given:
            print(help_text())
            raise SystemExit(0)
        options, config = flags.parse_fields(
            Options(), Config(), given, program="python -m jaxsens.measure", description=__doc__
        )
        config = config.resolved()
        loaded = load(config, options.data_dir)
        if options.workdir is None:
            identity = {**dataclasses.asdict(config), "sources": fingerprint(loaded)}
            options = dataclasses.replace(options, workdir=default_folder(NAME, identity))
    experiment = MeasureExperiment(loaded)
    return carry_out(experiment, options, config, command(config), compare_data=True)


def help_text(width: int | None = None) -> str:
    """What `--help` prints: what it is for, and its flags in groups."""
    values = dataclasses.asdict(Config())
    groups = flag_groups(Options, Config, values, hidden=_HIDDEN, width=width)
    usage = "usage: python -m jaxsens.measure --model MODEL --data DATA [flags]"
    return "\n\n".join([usage, (__doc__ or "").strip(), *groups])


def command(config: Config) -> str:
    """The command that makes a run with this config.

    >>> command(Config(model="net.py:f", data="x.npy", seed=3, check_model=False))
    'python -m jaxsens.measure --model net.py:f --data x.npy --seed 3 --no-check-model'
    """
    words = ["python", "-m", "jaxsens.measure"]
    for field in dataclasses.fields(Config):
        value, flag = getattr(config, field.name), flags.flag_of(field.name)
        if value == field.default:
            continue
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag.removeprefix('--')}")
        else:
            words += [flag, *map(str, value if isinstance(value, tuple) else (value,))]
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
