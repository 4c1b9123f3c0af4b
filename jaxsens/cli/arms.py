"""Arms of a run in processes of their own: `--parallel-arms K` makes K at a time.

A child runs the same command in the same folder. It inherits the folder's lock, which so is held
until the last of them has ended, gets its share of the cores, makes one arm and ends. What a child
did not finish, this process does: an error is the same as without children.

An arm has the same bits as in one process with as many cores as the child has; in their last bits,
sums depend on the number of threads.

Assumption: the run's folder is on a disk of this machine.
"""

import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import PurePath
from typing import IO

from jaxsens.cli import signals
from jaxsens.cli.children import Children
from jaxsens.core import hosts, storage
from jaxsens.reporting import arms
from jaxsens.reporting.arms import Arm, mark_of
from jaxsens.reporting.progress import Bar, say
from jaxsens.reporting.run_folder import RunFolder

#: What a child is told: its arm, the open file that is the folder's lock, its cores.
ARM, LOCK, CORES = "JAXSENS_ARM", "JAXSENS_ARM_LOCK", "JAXSENS_ARM_CORES"
_POLL_SECONDS = 0.1
_MOST = 1_000


def check(num: int | None, workdir: PurePath) -> None:
    """Raises ValueError if so many arms cannot be made at a time."""
    if num is None:
        return
    if not 1 <= num <= _MOST:
        raise ValueError(f"--parallel-arms must be from 1 to {_MOST}; got {num}")
    if hosts.num_processes() > 1:
        raise ValueError("--parallel-arms is for one process; leave it out or --num-processes")
    if storage.is_remote(workdir):
        raise ValueError(
            f"--parallel-arms needs a run folder on a disk; got {workdir}; choose another --workdir"
        )


def begin(num: int | None, words: Sequence[str]) -> None:
    """From now on, K arms are made at a time.

    Args:
      num: K; None or 1 for one after the other, in this process.
      words: of the command that makes the same run, after the module.
    """
    arms.one_after_the_other()
    if num is not None and num > 1:
        arms.in_parallel(functools.partial(_make_ahead, num, [*words]))


def inherited_lock() -> int | None:
    """The open file that is the folder's lock, if this process makes one arm; else None.

    Then it also keeps to its cores, and to its arm. Must come before any use of a device.
    """
    name, lock, cores = (os.environ.pop(variable, "") for variable in (ARM, LOCK, CORES))
    if not name:
        return None
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))
    arms.alone(name)
    return int(lock)


def _make_ahead(num: int, words: Sequence[str], folder: RunFolder, listed: Sequence[Arm]) -> None:
    """Has children make the arms that are not made."""
    waiting = [arm for arm in listed if not folder.exists(mark_of(arm.name))]
    children, cores = Children(), _shares(num)
    running: dict[int, _Child] = {}
    num_before = len(listed) - len(waiting)
    with (
        signals.before_leaving(children.end),
        Bar("arms", "arm", len(listed), num_before) as bar,
    ):
        while waiting or running:
            for slot, share in enumerate(cores):
                if waiting and slot not in running:
                    running[slot] = _Child(children, waiting.pop(0), share, words, folder)
            done = len(listed) - len(waiting) - len(running)
            now = ", ".join(child.arm.label for child in running.values())
            bar.update(done, len(listed), now)
            time.sleep(_POLL_SECONDS)
            for slot in [slot for slot, child in running.items() if child.has_ended()]:
                running.pop(slot).close()


class _Child:
    """A process that makes one arm."""

    def __init__(
        self,
        children: Children,
        arm: Arm,
        cores: Sequence[int],
        words: Sequence[str],
        folder: RunFolder,
    ) -> None:
        self.arm = arm
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  open until `close`
        lock = folder.lock_descriptor()
        self._process: subprocess.Popen[bytes] = children.start(
            [sys.executable, "-m", "jaxsens.run", *words],
            self._output,
            variables={ARM: arm.name, LOCK: str(lock), CORES: ",".join(map(str, cores))},
            descriptors=[lock],
        )

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Says how it ended, if not well."""
        status = self._process.wait()
        with self._output:
            self._output.seek(0)
            lines = self._output.read().decode(errors="replace").splitlines()
        if status in (0, signals.EXIT_INTERRUPTED):
            return
        said = [line for line in lines if line.startswith("jaxsens: ")] or ["without a word"]
        say(
            f"{self.arm.label}: its process ended with status {status} "
            f"({said[-1].removeprefix('jaxsens: ')}); this one goes on with it"
        )


def _shares(num: int) -> list[list[int]]:
    """The cores of each of so many children: equally many, so that none has other bits.

    Where a system cannot say which cores a process has, no child is bound to any.
    """
    if not hasattr(os, "sched_getaffinity"):
        return [[] for _ in range(num)]
    cores = sorted(os.sched_getaffinity(0))
    size = max(1, len(cores) // num)
    return [[cores[(slot * size + i) % len(cores)] for i in range(size)] for slot in range(num)]
