"""The command line: `python -m jaxsens.run --exp NAME [--preset quick|small|paper] [any field]`.

An experiment is a module of `experiments/` with a `Config` dataclass, from which the flags are made
(its `resolved(preset)`, if any, fills in what was left open), `PRESETS` and `COST` by preset,
`load(config, data_dir)` and `run(config, data, folder)`. Data is loaded before a folder is created,
so that what can fail early fails early.

Exit status: 0 done, 1 failed, 2 bad arguments or data, 75 interrupted (the same command resumes).
An error that nobody foresaw ends with one line, too: its traceback is in the folder's error.log.
"""

import contextlib
import dataclasses
import difflib
import importlib
import importlib.util
import io
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import tyro

from jaxsens import fingerprint, report, runtime
from jaxsens.cli import failures, signals
from jaxsens.data import DatasetNotFoundError
from jaxsens.progress import say
from jaxsens.results import Results
from jaxsens.runfolder import RunFolder, RunLostError, WorkdirError, default_folder
from jaxsens.training import TrainingDivergedError

PACKAGE = "jaxsens.experiments"
EXIT_FAILED, EXIT_USAGE = 1, 2


class UsageError(Exception):
    """Bad arguments, data or folders; the message is for the user."""


#: Errors whose message says it all.
EXPLAINED = (UsageError, WorkdirError, TrainingDivergedError, RunLostError)


@dataclasses.dataclass(frozen=True)
class Options:
    """What every experiment understands."""

    exp: str
    """Experiment to run; `list` prints them all."""
    preset: Literal["quick", "small", "paper"] = "quick"
    """quick: offline, minutes on two cores; small: real data on a CPU; paper: the exact setting."""
    workdir: Path | None = None
    """Run folder; default runs/<exp>/<config hash>."""
    data_dir: Path | None = None
    """Folder with datasets; default the environment variable JAXSENS_DATA."""


def experiment_names() -> list[str]:
    """All experiments, by their files."""
    return sorted(
        file.stem
        for file in _experiments_folder().glob("*.py")
        if re.search(r"^PRESETS\b", file.read_text("utf-8"), re.MULTILINE)
    )


def load_experiment(name: str) -> ModuleType:
    """The experiment's module; raises ValueError with the nearest name for an unknown one."""
    names = experiment_names()
    if name not in names:
        raise ValueError(f"there is no experiment {name!r}{_nearest(name, names)}")
    return importlib.import_module(f"{_experiments_package()}.{name}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    if arguments is None:
        # A process of our own: what it compiles is kept for the next one.
        runtime.keep_compiled_programs()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with signals.leaving_on_signals(), failures.logged(expected=EXPLAINED):
            return _main(arguments)
    except (UsageError, WorkdirError) as error:
        say(str(error))
        return EXIT_USAGE
    except (TrainingDivergedError, RunLostError, failures.UnforeseenError) as error:
        say(str(error))
        return EXIT_FAILED


def _main(arguments: list[str]) -> int:
    with _usage():
        name = _value_of("--exp", arguments)
        if name is None and {"-h", "--help"} & set(arguments):
            print(f"{__doc__}\nExperiments:\n{_listing()}")
            return 0
        if name is None:
            raise ValueError(f"--exp is missing; choose one of {_names()}, list")
        if name == "list":
            print(_listing())
            return 0
        experiment = load_experiment(name)
        options, config = _parse(experiment, arguments)
    return _run(experiment, options, config)


def _run(experiment: ModuleType, options: Options, config: Any) -> int:
    started = time.monotonic()
    fields = dataclasses.asdict(config)
    path = options.workdir or default_folder(options.exp, fields)
    with _usage():
        finished = (path / "results.json").exists()
    results = (_show if finished else _make)(experiment, options, config, path)
    for table in results.tables:
        print(table.as_text(), end="\n\n")
    for claim in results.claims:
        print(f"{'HOLDS         ' if claim.holds else 'DOES NOT HOLD '}{claim.statement}")
    took = report.duration(time.monotonic() - started)
    print(f"\n{'finished before, nothing to do' if finished else f'done in {took}'}; ", end="")
    print(f"report: {path / 'report.html'}")
    return 0


def _make(experiment: ModuleType, options: Options, config: Any, path: Path) -> Results:
    """Runs the experiment to its end, or goes on where it was."""
    with contextlib.ExitStack() as stack:
        with _usage():
            data = experiment.load(config, options.data_dir)
            folder = RunFolder.open(
                path,
                options.exp,
                dataclasses.asdict(config),
                data=fingerprint.fingerprint(data),
                made_with=fingerprint.surroundings(),
            )
            stack.enter_context(folder)
        if folder.changes:
            say(
                f"{path} was begun with other surroundings, so that the rest may differ from what "
                f"they would have given: {', '.join(folder.changes)}"
            )
        with failures.logged(folder, EXPLAINED):
            results = experiment.run(config, data, folder)
            folder.require_held()
            report.write(results, path)
            folder.write_results(results)
    return results


def _show(experiment: ModuleType, options: Options, config: Any, path: Path) -> Results:
    """The results of a finished run, and its report again if that is missing."""
    with _usage():
        data = None
        # Without a folder that was asked for there is nothing to compare with, only to download.
        if options.data_dir or os.environ.get("JAXSENS_DATA"):
            try:
                data = fingerprint.fingerprint(experiment.load(config, options.data_dir))
            except DatasetNotFoundError:
                say(f"the data is not there to be compared with that of {path}")
        folder = RunFolder.read(path, options.exp, dataclasses.asdict(config), data=data)
        results = folder.results()
    if not (path / "report.html").exists():
        try:
            report.write(results, path)
        except OSError as error:
            say(f"report.html is missing and cannot be made again: {error}")
    return results


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """What fails in here is the user's to mend: arguments, data, folders."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error


def _parse(experiment: ModuleType, arguments: list[str]) -> tuple[Options, Any]:
    """Options and config from the flags; ValueError, in one line, for bad ones."""
    preset = _value_of("--preset", arguments) or "quick"
    default = experiment.PRESETS.get(preset, experiment.PRESETS["quick"])
    known = [f for cls in (Options, experiment.Config) for f in dataclasses.fields(cls)]
    flags = ["--" + field.name.replace("_", "-") for field in known]
    # tyro's way to switch one off.
    flags += ["--no-" + field.name.replace("_", "-") for field in known if field.type is bool]
    for argument in arguments:
        flag = argument.split("=")[0].replace("_", "-")
        if flag.startswith("--") and flag not in [*flags, "--help"]:
            raise ValueError(f"unknown flag {argument.split('=')[0]}{_nearest(flag, flags)}")

    command = dataclasses.make_dataclass(
        "command", [("options", Options), ("config", experiment.Config)], frozen=True
    )
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            parsed = tyro.cli(
                command,
                args=arguments,
                default=command(Options(exp="", preset="quick"), default),
                prog=f"python -m jaxsens.run --exp {_value_of('--exp', arguments)}",
                description=experiment.__doc__,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
            )
    except SystemExit as stop:
        if stop.code == 0:
            raise
        raise ValueError(_from_box(printed.getvalue())) from None
    return parsed.options, resolved(parsed.config, parsed.options.preset)


def resolved(config: Any, preset: str) -> Any:
    """The config with what it left open filled in, by itself, if it leaves anything open."""
    return config.resolved(preset) if hasattr(config, "resolved") else config


def _value_of(flag: str, arguments: list[str]) -> str | None:
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if argument == flag:
            return following
        if argument.startswith(flag + "="):
            return argument.removeprefix(flag + "=")
    return None


def _from_box(text: str) -> str:
    """The message of tyro's framed error, in one line, with the nearest choice."""
    lines = [line.strip("│ ") for line in text.splitlines()[1:]]
    message = ""
    for line in lines:
        if set(line) <= set("─╭╮╰╯"):
            break
        message += " " + line
    choice = re.search(r"invalid choice '(.*?)'.*Expected one of \((.*)\)", message)
    if choice:
        names = re.findall(r"'(.*?)'", choice[2])
        message = message.rstrip(". ") + _nearest(choice[1], names)
    return message.strip().removeprefix("Error parsing config: ") or text


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    return f"; did you mean {close[0]}?" if close else f"; choose one of {', '.join(sorted(names))}"


def _names() -> str:
    return ", ".join(experiment_names())


def _listing() -> str:
    lines = []
    for name in experiment_names():
        module = load_experiment(name)
        lines.append(f"{name:12} {(module.__doc__ or '').strip().splitlines()[0]}")
        lines += [f"{'':12}   {preset}: {cost}" for preset, cost in module.COST.items()]
    return "\n".join(lines)


def _experiments_folder() -> Path:
    inside = Path(__file__).parent / "experiments"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "experiments"


def _experiments_package() -> str:
    """Imports the experiments by their place: beside the library in a checkout, inside in a wheel.

    Not by the name `experiments`, which may be the user's own package in the current folder.
    """
    if PACKAGE not in sys.modules:
        folder = _experiments_folder()
        spec = importlib.util.spec_from_file_location(
            PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} cannot be imported")
        sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[PACKAGE])
    return PACKAGE


if __name__ == "__main__":
    sys.exit(main())
