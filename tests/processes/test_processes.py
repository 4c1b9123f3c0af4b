"""Several processes run one command: one folder, one message, one status, the bits of one."""

import contextlib
import json
import os
import random
import signal
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jaxsens.core import hosts
from tests.helpers import processes

HERE = Path(__file__).parent
QUICK = ["--exp", "vision", "--num-measured", "10"]
#: Enough for the slowest machine; nothing waits for it where all is well.
LIMIT = 300


class Server(processes.Server):
    """Jobs of several processes, cheap to start."""

    def __init__(self, folder: Path) -> None:
        variables = {"XLA_FLAGS": processes.flags_of_devices(2), "TMPDIR": str(folder)}
        super().__init__(HERE / "server.py", variables)
        self.folder, self._num = folder, 0

    def start(
        self, arguments, num=2, own=None, heartbeat=10, slurm=False, keeps_programs=False
    ) -> "Job":
        self._num += 1
        folder = self.folder / f"job-{self._num}"
        folder.mkdir()
        job = {"arguments": arguments, "num": num, "own": own or {}}
        job |= {"folder": str(folder), "heartbeat": heartbeat, "slurm": slurm}
        job |= {"port": processes.free_port(), "keeps_programs": keeps_programs}
        return Job(folder, json.loads(self.ask(job)), self.answers)


class Job:
    """The processes of one command."""

    def __init__(self, folder, pids, answers) -> None:
        self.folder, self.pids, self._answers = folder, pids, answers

    def statuses(self, last=None) -> list[int]:
        """The status of each process, when all have ended; `last` is killed after all others."""
        found = {}
        while len(found) < len(self.pids):
            if last is not None and len(found) == len(self.pids) - 1:
                os.kill(self.pids[last], signal.SIGKILL)
            process, status = map(int, self._answers.readline().split())
            found[process] = status
        return [found[process] for process in range(len(self.pids))]

    def said(self, name="err") -> list[str]:
        """The lines that all processes together have printed."""
        files = sorted(self.folder.glob(f"*.{name}"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        return [line for line in lines if line and not line.startswith("[Gloo]")]

    def wait_for(self, file: Path) -> None:
        """Until a file is there, or the job has ended without it."""
        deadline = time.monotonic() + LIMIT
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.01)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    opened = Server(tmp_path_factory.mktemp("processes"))
    yield opened
    opened.close(LIMIT)


@pytest.fixture(scope="module")
def alone(server):
    """The folder of a run by one process."""
    run = server.folder / "alone"
    job = server.start([*QUICK, "--workdir", str(run)], num=1, keeps_programs=True)
    assert job.statuses() == [0], job.said()
    return end_state(run)


def end_state(run: Path) -> dict:
    """What a run has found, without what says where and how fast; nothing is left over."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    results = json.loads((run / "results.json").read_text())
    for name in ("seconds", "environment"):
        results.pop(name)
    with ocp.StandardCheckpointer() as checkpointer:
        weights = checkpointer.restore(run / "checkpoints" / "linear" / "3" / "default")
    estimates = {}
    for name in ("all", "random", "noise", "ties"):
        estimates[name] = json.loads((run / "estimates" / f"{name}.json").read_text())
        estimates[name].pop("provenance")
    assert not (run / "partial").exists()
    files = {p.relative_to(run).as_posix() for p in run.rglob("*") if "checkpoints/" not in str(p)}
    return {
        "records": [record | {"seconds": 0} for record in records],
        "results": results,
        "estimates": estimates,
        "weights": [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(weights)],
        "files": sorted(files),
    }


def leftovers(server) -> list[str]:
    """Folders of processes that follow, which should be gone."""
    return [path.name for path in server.folder.glob("jaxsens-follows-*")]


@pytest.fixture(scope="module")
def together(server):
    """What two processes find that nobody interrupts."""
    run = server.folder / "two"
    job = server.start([*QUICK, "--workdir", str(run)], keeps_programs=True)
    assert job.statuses() == [0, 0], job.said()
    assert job.said() == []
    assert not leftovers(server)
    return end_state(run)


def test_two_processes_make_one_folder_that_says_what_one_process_says(server, alone, together):
    # Sums over a batch that four devices share are not those of two, in their last bits.
    for mine, theirs in zip(together["weights"], alone["weights"], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    assert together | {"weights": alone["weights"]} == alone
    # Finished: nothing is done again.
    again = server.start([*QUICK, "--workdir", str(server.folder / "two")])
    assert again.statuses() == [0, 0]
    assert sum("finished before" in line for line in again.said("out")) == 1


@pytest.mark.parametrize(
    ("arguments", "own", "status", "message"),
    [
        (["--epochs", "0"], {}, 2, "epochs must be positive; got 0"),
        ([], {"1": ["--epochs", "9"]}, 2, "process 1: epochs is 9 here and"),
        ([], {"1": ["--data-dir", "elsewhere"]}, 2, "other data than in process 0 (x differ)"),
        (["--num-samples", "7"], {}, 1, "ZeroDivisionError: an error that nobody foresaw"),
        (["--num-samples", "8"], {}, 1, "ZeroDivisionError: an error in the last process alone"),
    ],
)
def test_all_end_with_one_message_and_one_status(server, arguments, own, status, message):
    run = server.folder / f"bad-{status}-{len(list(server.folder.iterdir()))}"
    job = server.start([*QUICK, *arguments, "--workdir", str(run)], own=own)
    assert job.statuses() == [status, status], job.said()
    (line,) = job.said()
    assert message in line
    assert not leftovers(server)


def test_processes_of_srun_find_each_other_without_flags(server, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    job = server.start([*QUICK, "--workdir", str(tmp_path)], slurm=True)
    assert job.statuses() == [2, 2]
    (line,) = job.said()
    assert "is not a run folder" in line
    # Each by itself: both say so.
    alone = server.start([*QUICK, "--workdir", str(tmp_path), "--distributed", "off"], slurm=True)
    assert alone.statuses() == [2, 2]
    assert len(alone.said()) == 2


def test_a_folder_that_cannot_be_used_ends_all_processes(server, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    job = server.start([*QUICK, "--workdir", str(tmp_path)])
    assert job.statuses() == [2, 2]
    (line,) = job.said()
    assert "is not a run folder" in line


@pytest.mark.slow
@pytest.mark.parametrize("process", [0, 1])
def test_a_signal_to_one_ends_all_and_the_rest_has_the_same_bits(server, together, process):
    run = server.folder / f"interrupted-{process}"
    arguments = [*QUICK, "--workdir", str(run)]
    job = server.start(arguments)
    job.wait_for(run / "metrics.jsonl")
    os.kill(job.pids[process], signal.SIGTERM)
    assert job.statuses() == [75, 75], job.said()
    (line,) = job.said()
    assert "interrupted; the same command resumes" in line
    assert not leftovers(server)
    # One process has fewer devices, which would change bits.
    other = server.start(arguments, num=1)
    assert other.statuses() == [2]
    assert "begun on 4 devices, and here are 2" in other.said()[0]
    assert server.start(arguments).statuses() == [0, 0]
    assert end_state(run) == together


@pytest.mark.parametrize(
    ("process", "number", "heartbeat"),
    [
        (0, signal.SIGKILL, 10),
        # By the heartbeat that users have.
        pytest.param(1, signal.SIGKILL, hosts.HEARTBEAT_SECONDS, marks=pytest.mark.slow),
        pytest.param(0, signal.SIGSTOP, hosts.HEARTBEAT_SECONDS, marks=pytest.mark.slow),
        pytest.param(1, signal.SIGSTOP, hosts.HEARTBEAT_SECONDS, marks=pytest.mark.slow),
    ],
)
def test_a_lost_process_ends_the_others(server, process, number, heartbeat):
    run = server.folder / f"lost-{process}-{number}"
    job = server.start([*QUICK, "--workdir", str(run)], heartbeat=heartbeat)
    job.wait_for(run / "metrics.jsonl")
    os.kill(job.pids[process], number)
    statuses = job.statuses(last=process if number == signal.SIGSTOP else None)
    assert statuses[1 - process] == 75, job.said()
    (line,) = job.said()
    assert "the same command resumes" in line


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_ended_at_a_random_moment_and_begun_again_gives_the_same_bits(server, together, seed):
    """By SIGTERM or SIGKILL to one of the two, as often as it takes to come to the end."""
    moments, run = random.Random(seed), server.folder / f"random-{seed}"
    arguments, statuses = [*QUICK, "--workdir", str(run)], [75]
    for _ in range(2):
        job, process = server.start(arguments), moments.randrange(2)
        number = moments.choice([signal.SIGTERM, signal.SIGKILL])
        job.wait_for(run / "config.json")
        time.sleep(moments.uniform(0, 4))
        with contextlib.suppress(ProcessLookupError):
            os.kill(job.pids[process], number)
        statuses = job.statuses()
        allowed = {0, 75, -9} if number == signal.SIGKILL else {0, 75}
        assert set(statuses) <= allowed, (statuses, job.said())
        assert statuses[1 - process] in (0, 75), (statuses, job.said())
    assert server.start(arguments).statuses() == [0, 0]
    assert end_state(run) == together
