"""Every change that a run makes to its folder may be its last; resumed, it ends with the same bits.

A library loaded before libc counts the changes, those of orbax's C++ too, and lets one of them end
the process, tear what it writes, or fail as a full or broken disk does.
"""

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.helpers import processes

HERE = Path(__file__).parent
#: As in faults.c; a process that dies does so with the status 9.
DIE, TEAR, FAIL = 0, 1, 2
DIED = 9
CC = shutil.which("cc") or shutil.which("gcc")

pytestmark = pytest.mark.skipif(
    not (CC and sys.platform == "linux"), reason="needs Linux and a C compiler"
)


class Server(processes.Server):
    """Runs of the tiny experiment, each in a process of its own that is cheap to start."""

    def __init__(self, folder: Path) -> None:
        self.folder, library = folder, folder / "faults.so"
        command = [CC, "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl", "-lpthread"]
        subprocess.run(command, check=True, timeout=60)
        variables = {"XLA_FLAGS": processes.flags_of_devices(1), "LD_PRELOAD": str(library)}
        super().__init__(HERE / "server.py", variables | {"TMPDIR": str(folder)})
        self.reference = folder / "reference"
        status, self.num_changes = self.run(self.reference)
        assert status == 0

    def run(self, run: Path, at: int = -1, how: int = DIE, error: int = 0) -> tuple[int, int]:
        """Exit status and number of changes of a run whose change number `at` fails."""
        job = {
            "arguments": ["--exp", "vision", "--workdir", str(run)],
            "folder": str(run),
            "stderr": str(self.folder / "stderr"),
            "at": at,
            "how": how,
            "errno": error,
        }
        status, count = map(int, self.ask(job).split())
        return status, count

    def said(self) -> str:
        """What the last run said on stderr."""
        return (self.folder / "stderr").read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    opened = Server(tmp_path_factory.mktemp("crash"))
    yield opened
    opened.close()


def end_state(run: Path) -> dict:
    """Records, results and weights, without the times they took; and nothing is left over."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    results = json.loads((run / "results.json").read_text())
    with ocp.StandardCheckpointer() as checkpointer:
        weights = checkpointer.restore(run / "checkpoints" / "linear" / "3" / "default")
    files = {str(p.relative_to(run)) for p in run.rglob("*") if "/d/" not in str(p)}
    return {
        "records": [record | {"seconds": 0} for record in records],
        "results": results | {"seconds": 0},
        "weights": [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(weights)],
        "files": sorted(files),
    }


def faulted(server: Server, at: int, how: int, error: int = 0) -> str | None:
    """What is wrong after a fault and a run to the end; None if nothing is."""
    run = server.folder / f"run-{at}-{how}-{error}"
    status, num_changes = server.run(run, at, how, error)
    said = server.said()
    # Threads of orbax make a few changes more in one run than in another; -1 of one that died.
    never_came = 0 <= num_changes <= at
    if how == FAIL:
        lines = said.splitlines()
        told = len(lines) == 1 and lines[0].startswith("jaxsens: ")
        if not (status == 0 and not lines) and not (status in (1, 2) and told):
            return f"change {at}, error {error}: status {status}, said {said}"
    elif status != (0 if never_came else DIED):
        return f"change {at}: status {status}, said {said}"
    if (status := server.run(run)[0]) != 0:
        return f"change {at}, how {how}, error {error}: resumed with {status}: {server.said()}"
    if end_state(run) != end_state(server.reference):
        return f"change {at}, how {how}, error {error}: other bits"
    shutil.rmtree(run)
    return None


def test_some_changes(server):
    assert server.num_changes > 200
    middle = [server.num_changes * i // 3 for i in (1, 2)]
    wrong = [faulted(server, at, TEAR) for at in middle]
    wrong += [faulted(server, server.num_changes // 2, FAIL, errno.ENOSPC)]
    assert not any(wrong), wrong


@pytest.mark.slow
def test_dies_at_every_change(server):
    """Before it, or in the middle of it if bytes are written."""
    wrong = [faulted(server, at, TEAR) for at in range(server.num_changes)]
    assert not any(wrong), list(filter(None, wrong))


@pytest.mark.slow
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_the_disk_is_full_or_broken_at_every_change(server, error):
    wrong = [faulted(server, at, FAIL, error) for at in range(server.num_changes)]
    assert not any(wrong), list(filter(None, wrong))


@pytest.mark.slow
def test_the_comparison_sees_a_single_bit(server):
    run = server.folder / "changed"
    shutil.copytree(server.reference, run)
    (file,) = run.glob("metrics.jsonl")
    file.write_text(file.read_text().replace("1", "2", 1))
    assert end_state(run) != end_state(server.reference)
