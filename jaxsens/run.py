"""The command line: `python -m jaxsens.run --exp NAME [--preset quick|small|paper] [any field]`.

An experiment is a folder of `experiments/` with the names of `jaxsens.cli.experiment.Experiment`:
`Config`, `PRESETS`, `COST`, `load` and `run`. Data is loaded, and what depends on its size checked,
before a folder is created, so that what can fail early fails early. What `run` finds is completed
here by what made it: experiment, config, environment, seconds and the command.

Exit status: 0 done, 1 failed, 2 bad arguments or data, 75 interrupted (the same command resumes).
Several processes of one job (`--coordinator`, or a cluster that JAX knows) end with the same one.
An error that nobody foresaw ends with one line, too: its traceback is in the folder's error.log.
"""

import contextlib
import dataclasses
import functools
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

from jaxsens.cli import arms, failures, flags, processes, signals
from jaxsens.cli.command import reproduce
from jaxsens.cli.discovery import experiment_names, listing, load_experiment
from jaxsens.cli.experiment import Experiment, cost_of, papers_of
from jaxsens.cli.flags import Options, resolved
from jaxsens.core import fingerprint, hosts, runtime, storage
from jaxsens.data import DatasetNotFoundError
from jaxsens.reporting import report, run_identity
from jaxsens.reporting.arms import ArmDone
from jaxsens.reporting.machine import environment
from jaxsens.reporting.plain_json import plain
from jaxsens.reporting.progress import say
from jaxsens.reporting.records import total_seconds
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder, RunLostError, WorkdirError, default_folder
from jaxsens.reporting.shared_folder import kind_of_folder
from jaxsens.reporting.terminal import broken
from jaxsens.training.trainer import TrainingDivergedError

__all__ = [
    "Options",
    "carry_out",
    "experiment_names",
    "load_experiment",
    "main",
    "resolved",
    "run_command",
]

EXIT_FAILED, EXIT_USAGE = 1, 2


#: Errors whose message says it all, by the status that they end with.
BAD_USAGE = (failures.UsageError, WorkdirError, hosts.HostsError)
FAILED = (TrainingDivergedError, RunLostError)
EXPLAINED = (*BAD_USAGE, *FAILED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    return run_command(arguments, _main)


def run_command(arguments: Sequence[str] | None, body: Callable[[list[str]], int]) -> int:
    """Runs a command that makes a run, alone or as one of several processes.

    Args:
      arguments: its words; None for those of this process.
      body: does what they say and returns the exit status.

    Returns:
      The exit status; errors end with one line.
    """
    if arguments is None:
        # A process of our own: what it compiles is kept for the next one.
        runtime.keep_compiled_programs()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    with signals.leaving_on_signals():
        try:
            several = processes.start(arguments)
        except ValueError as error:
            say(str(error))
            return EXIT_USAGE
        except hosts.PeersMissingError as error:
            say(str(error))
            return signals.EXIT_INTERRUPTED
        status, message = _outcome(arguments, body)
        if several:
            return processes.end(status, message)
        if message is not None:
            say(message)
        return status


def _outcome(arguments: list[str], body: Callable[[list[str]], int]) -> tuple[int, str | None]:
    """The exit status, and why it is not 0."""
    try:
        with failures.logged(expected=EXPLAINED):
            return body(arguments), None
    except BAD_USAGE as error:
        return EXIT_USAGE, str(error)
    except (*FAILED, failures.UnforeseenError) as error:
        return EXIT_FAILED, str(error)


def _main(arguments: list[str]) -> int:
    with failures.of_usage():
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
    return carry_out(experiment, options, config, reproduce(options.exp, experiment, config))


def carry_out(
    experiment: Experiment,
    options: Options,
    config: Any,
    command: str,
    *,
    compare_data: bool = False,
) -> int:
    """Makes a run, goes on with it, or shows it if it is finished.

    Args:
      experiment: loads data, and measures.
      options: where the run is, and its name.
      config: of the run.
      command: that makes the same run again.
      compare_data: whether the data of a finished run is compared too, wherever it comes from.

    Returns:
      The exit status, 0: all else raises an error.
    """
    started = time.monotonic()
    fields = dataclasses.asdict(config)
    path: PurePath = options.workdir or default_folder(options.exp, fields)
    with failures.of_usage():
        arms.check(options.parallel_arms, path)
    hosts.require_same(
        {"--exp": options.exp, "--workdir": str(path), **plain(fields, "config")}, _other_arguments
    )
    with failures.of_usage():
        finished = hosts.from_first(lambda: storage.at(path).exists("results.json"))
    if finished:
        # Without a folder that was asked for there is nothing to compare with, only to download.
        compare_data |= bool(options.data_dir or os.environ.get("JAXSENS_DATA"))
        given = (experiment, options, config, path, command)
        results = _show(functools.partial(_show_here, *given, compare_data=compare_data))
    else:
        try:
            results = _make(experiment, options, config, path, command)
        except ArmDone:
            return 0
    if hosts.is_first():
        _print(results, path, finished, started)
    return 0


def _print(results: Results, path: PurePath, finished: bool, started: float) -> None:
    for table in results.tables:
        rows = dataclasses.replace(table, note="").as_text()
        print(rows, *filter(None, [broken(table.note, sys.stdout)]), sep="\n", end="\n\n")
    for claim in results.claims:
        verdict = "HOLDS         " if claim.holds else "DOES NOT HOLD "
        print(broken(f"{verdict}{claim.statement}", sys.stdout, " " * len(verdict)))
    took = report.duration(time.monotonic() - started)
    print(f"\n{'finished before, nothing to do' if finished else f'done in {took}'}; ", end="")
    print(f"report: {path / 'report.html'}")


def _other_arguments(there: dict[str, Any], here: dict[str, Any]) -> str:
    name = next(name for name in {**there, **here} if there.get(name) != here.get(name))
    return (
        f"{name} is {here.get(name)!s:.60} here and {there.get(name)!s:.60} in process 0; start "
        "all processes with the same arguments"
    )


def _other_data(there: dict[str, str], here: dict[str, str]) -> str:
    return (
        f"other data than in process 0 ({', '.join(run_identity.other_data(there, here))} differ); "
        "give all processes the same data"
    )


def _make(
    experiment: Experiment, options: Options, config: Any, path: PurePath, command: str
) -> Results:
    """Runs the experiment to its end, or goes on where it was.

    Raises:
      ArmDone: this process was started to train one model, and has.
    """
    inherited_lock = arms.inherited_lock()
    if inherited_lock is None:
        where = {"workdir": str(path)} | (
            {"data-dir": str(options.data_dir)} if options.data_dir else {}
        )
        again = [word for flag, value in where.items() for word in (f"--{flag}", value)]
        arms.begin(options.parallel_arms, [*shlex.split(command)[3:], *again])
    with contextlib.ExitStack() as stack:
        with failures.of_usage():
            data = experiment.load(config, options.data_dir)
            digests = fingerprint.fingerprint(data)
            hosts.require_same(digests, _other_data)
            run = path, options.exp, dataclasses.asdict(config)
            if inherited_lock is not None:
                folder = RunFolder.join(*run, inherited_lock, data=digests)
            else:
                made_with = fingerprint.surroundings()
                folder = kind_of_folder().open(*run, data=digests, made_with=made_with)
            stack.enter_context(folder)
        if folder.changes:
            say(
                f"{path} was begun with other surroundings, so that the rest may differ from what "
                f"they would have given: {', '.join(folder.changes)}"
            )
        if not folder.appended() and (cost := cost_of(experiment, options.preset, config)):
            say(cost)
        with failures.logged(folder, EXPLAINED):
            # Before the run: a commit made while it goes on is not what made its numbers.
            made_by = environment()
            results = Results.of(
                experiment.run(config, data, folder),
                experiment=options.exp,
                config=dataclasses.asdict(config),
                environment=made_by,
                seconds=total_seconds(folder),
                command=command,
            )
            folder.require_held()
            hosts.from_first(lambda: str(report.write(results, path, papers_of(experiment))))
            folder.write_results(results)
    return results


def _show(show_here: Callable[[], Results]) -> Results:
    """What `_show_here` gives in process 0."""
    if hosts.num_processes() == 1:
        return show_here()
    return Results.from_json(hosts.from_first(lambda: show_here().to_json()))


def _show_here(
    experiment: Experiment,
    options: Options,
    config: Any,
    path: PurePath,
    command: str,
    *,
    compare_data: bool,
) -> Results:
    """The results of a finished run, and its report again if that is missing."""
    with failures.of_usage():
        data = None
        if compare_data:
            try:
                data = fingerprint.fingerprint(experiment.load(config, options.data_dir))
            except DatasetNotFoundError:
                say(f"the data is not there to be compared with that of {path}")
        folder = RunFolder.read(path, options.exp, dataclasses.asdict(config), data=data)
        results = folder.results()
    if not folder.exists("report.html"):
        try:
            # Runs of earlier versions do not know their command.
            known = results.command or command
            complete = dataclasses.replace(results, command=known)
            report.write(complete, path, papers_of(experiment))
        except (OSError, ValueError) as error:
            say(f"report.html is missing and cannot be made again: {error}")
    return results


if __name__ == "__main__":
    sys.exit(main())
