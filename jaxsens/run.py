"""The command line: `python -m jaxsens.run --exp NAME [--preset quick|small|paper] [any field]`.

An experiment is a folder of `experiments/` with the names of `jaxsens.cli.experiment.Experiment`:
`Config`, `PRESETS`, `COST`, `load` and `run`. Data is loaded, and what depends on its size checked,
before a folder is created, so that what can fail early fails early. What `run` finds is completed
here by what made it: experiment, config, environment, seconds and the command.

Exit status: 0 done, 1 failed, 2 bad arguments or data, 75 interrupted (the same command resumes).
An error that nobody foresaw ends with one line, too: its traceback is in the folder's error.log.
"""

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxsens.cli import failures, flags, signals
from jaxsens.cli.command import reproduce
from jaxsens.cli.discovery import experiment_names, listing, load_experiment
from jaxsens.cli.experiment import Experiment
from jaxsens.cli.flags import Options, resolved
from jaxsens.core import fingerprint, runtime
from jaxsens.data import DatasetNotFoundError
from jaxsens.reporting import report
from jaxsens.reporting.machine import environment
from jaxsens.reporting.progress import say
from jaxsens.reporting.records import total_seconds
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder, RunLostError, WorkdirError, default_folder
from jaxsens.training.trainer import TrainingDivergedError

__all__ = ["Options", "experiment_names", "load_experiment", "main", "resolved"]

EXIT_FAILED, EXIT_USAGE = 1, 2


class UsageError(Exception):
    """Bad arguments, data or folders; the message is for the user."""


#: Errors whose message says it all.
EXPLAINED = (UsageError, WorkdirError, TrainingDivergedError, RunLostError)


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
        given = flags.split(arguments)
        name = flags.experiment_name(given)
        if name is None:
            print(f"{__doc__}\nExperiments:\n{listing()}")
            return 0
        if name == "list":
            print(listing())
            return 0
        experiment = load_experiment(name)
        options, config = flags.parse(experiment, given)
    return _run(experiment, options, config)


def _run(experiment: Experiment, options: Options, config: Any) -> int:
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


def _make(experiment: Experiment, options: Options, config: Any, path: Path) -> Results:
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
            # Before the run: a commit made while it goes on is not what made its numbers.
            made_by = environment()
            results = Results.of(
                experiment.run(config, data, folder),
                experiment=options.exp,
                config=dataclasses.asdict(config),
                environment=made_by,
                seconds=total_seconds(folder),
                command=reproduce(options.exp, experiment, config),
            )
            folder.require_held()
            report.write(results, path)
            folder.write_results(results)
    return results


def _show(experiment: Experiment, options: Options, config: Any, path: Path) -> Results:
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
            # Runs of earlier versions do not know their command.
            command = results.command or reproduce(options.exp, experiment, config)
            report.write(dataclasses.replace(results, command=command), path)
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


if __name__ == "__main__":
    sys.exit(main())
