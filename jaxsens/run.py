"""The command line: `python -m jaxsens.run --exp NAME [--preset quick|small|paper] [any field]`.

An experiment is a module of `experiments/` with a `Config`, an `ExperimentConfig` whose fields are
the flags and declare their bounds, `PRESETS` and `COST` by preset, `load(config, data_dir)` and
`run(config, data, folder)`. Data is loaded, and what depends on its size checked, before a folder
is created, so that what can fail early fails early.

Exit status: 0 done, 1 failed, 2 bad arguments or data, 75 interrupted (the same command resumes).
"""

import contextlib
import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from jaxsens import report, runtime
from jaxsens.cli import flags
from jaxsens.cli.command import reproduce
from jaxsens.cli.discovery import experiment_names, listing, load_experiment
from jaxsens.cli.flags import Options, resolved
from jaxsens.runfolder import RunFolder, default_folder
from jaxsens.training import TrainingDivergedError

__all__ = ["Options", "experiment_names", "load_experiment", "main", "resolved"]

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 75


class UsageError(Exception):
    """Bad arguments, data or folders; the message is for the user."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    if arguments is None:
        # A process of our own: what it compiles is kept for the next one.
        runtime.keep_compiled_programs()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _exit_on_signals():
            return _main(arguments)
    except UsageError as error:
        return _fail(str(error), EXIT_USAGE)
    except TrainingDivergedError as error:
        return _fail(str(error), EXIT_FAILED)


def _fail(message: str, status: int) -> int:
    print(f"jaxsens: {' '.join(message.split())}", file=sys.stderr)
    return status


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


def _run(experiment: ModuleType, options: Options, config: Any) -> int:
    started = time.monotonic()
    fields = dataclasses.asdict(config)
    path = options.workdir or default_folder(options.exp, fields)
    with contextlib.ExitStack() as stack:
        with _usage():
            finished = (path / "results.json").exists()
            data = None if finished else experiment.load(config, options.data_dir)
            folder = stack.enter_context(RunFolder.open(path, options.exp, fields))
            results = folder.results() if finished else None
        if results is None:
            results = experiment.run(config, data, folder)
            report.write(results, path, reproduce(options.exp, experiment, config))
            folder.write_results(results)
    for table in results.tables:
        print(table.as_text(), end="\n\n")
    for claim in results.claims:
        print(f"{'HOLDS         ' if claim.holds else 'DOES NOT HOLD '}{claim.statement}")
    took = report.duration(time.monotonic() - started)
    print(f"\n{'finished before, nothing to do' if finished else f'done in {took}'}; ", end="")
    print(f"report: {path / 'report.html'}")
    return 0


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """What fails in here is the user's to mend: arguments, data, folders."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the process at once, even while an epoch runs for minutes.

    A Python signal handler would wait for the epoch. A run folder is safe at any moment, so a
    thread that the operating system wakes up can simply end the process.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def watch() -> None:
        while number := os.read(read_end, 1)[0]:
            if number in signals:
                print(file=sys.stderr)
                os._exit(_fail("interrupted; the same command resumes", EXIT_INTERRUPTED))

    before = [signal.signal(number, lambda *_: None) for number in signals]
    fd_before = signal.set_wakeup_fd(write_end)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
        os.write(write_end, b"\0")
        watcher.join()
        os.close(read_end)
        os.close(write_end)


if __name__ == "__main__":
    sys.exit(main())
