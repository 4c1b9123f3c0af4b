"""The scripts of jobs/: shellcheck, the exit-code contract, the queue with a pretended gcloud."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"
SCRIPTS = ("slurm.sbatch", "slurm-array.sbatch", "queued-resource.sh")


def shellcheck(file):
    here = str(Path(sys.executable).parent)
    program = shutil.which("shellcheck", path=os.pathsep.join([here, os.environ["PATH"]]))
    if program is None:
        pytest.skip("needs shellcheck: pip install 'jaxsens[jobs-test]'")
    return subprocess.run([program, "--shell=bash", file], capture_output=True, text=True)


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing(name, tmp_path):
    done = shellcheck(JOBS / name)
    assert done.returncode == 0, done.stdout
    # A typo in a variable is found.
    text = (JOBS / name).read_text("utf-8").replace("$status", "$statsu")
    (tmp_path / name).write_text(text)
    assert "statsu" in shellcheck(tmp_path / name).stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_sets_what_the_readme_says(name):
    text = (JOBS / name).read_text("utf-8")
    for words in (
        "JAX_COMPILATION_CACHE_DIR=",
        "JAX_COORDINATOR_PORT=",
        "heartbeat",
        "MAX_RESTARTS",
    ):
        assert words in text
    # "Copy, edit three lines, submit."
    assert text.count("EDIT:") == 3


@pytest.mark.parametrize("name", SCRIPTS[:2])
@pytest.mark.parametrize(
    ("status", "restarts", "requeued"),
    [(0, 0, False), (1, 0, False), (2, 0, False), (75, 0, True), (137, 5, True), (75, 100, False)],
)
def test_a_batch_script_requeues_by_the_exit_status(name, status, restarts, requeued, tmp_path):
    pretend(tmp_path, "srun", f"echo srun $* >> called; exit {status}")
    pretend(tmp_path, "scontrol", "echo scontrol $* >> called")
    pretend(tmp_path, "sleep", "exit 0")
    done = run(tmp_path, name, SLURM_JOB_ID="4100", SLURM_RESTART_COUNT=str(restarts))
    assert done.returncode == status
    called = (tmp_path / "called").read_text()
    assert ("scontrol requeue 4100" in called) == requeued
    assert re.search(r"python -m jaxsens\.(run --exp vision|sweep paper)", called)


def pretend(folder, program, body):
    file = folder / "bin" / program
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/bash\n{body}\n")
    file.chmod(0o755)


def run(folder, name, **variables):
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(folder), **variables}
    return subprocess.run(
        ["bash", JOBS / name],
        cwd=folder,
        env=environment,
        timeout=60,
        capture_output=True,
        text=True,
    )


#: States of the slice and exit statuses of the runs come from files, one a line.
GCLOUD = r"""
echo "gcloud $*" >> called
next() { head -1 "$1"; sed -i 1d "$1"; }
case "$*" in
  *describe*) state=$(next states); [[ $state == NONE ]] && exit 1; echo "$state" ;;
  *ssh*)
    logs=$(sed 's/.*--output-directory=\([^ ]*\).*/\1/' <<< "$*" | head -1)
    status=$(next statuses)
    [[ $status == LOST ]] && exit 255
    for host in 0 1; do echo "jaxsens exit status $status" > "$logs/$host.log"; done ;;
esac
"""


@pytest.mark.parametrize(
    ("states", "statuses", "status", "created"),
    [
        # Asked for, waited for, run.
        ("NONE WAITING_FOR_RESOURCES PROVISIONING ACTIVE", "0", 0, 1),
        ("ACTIVE", "1", 1, 0),
        ("ACTIVE", "2", 2, 0),
        # Interrupted while the slice stays.
        ("ACTIVE ACTIVE", "75 0", 0, 0),
        # Taken away: the connection is lost, the old one is deleted, a new one asked for.
        ("ACTIVE SUSPENDED NONE ACTIVE", "LOST 0", 0, 1),
        # Asked for in vain, then with luck.
        ("NONE FAILED FAILED NONE ACTIVE", "0", 0, 2),
    ],
)
def test_the_queue_is_asked_again_until_the_run_is_done(
    states, statuses, status, created, tmp_path
):
    pretend(tmp_path, "gcloud", GCLOUD)
    pretend(tmp_path, "sleep", "exit 0")
    (tmp_path / "states").write_text("\n".join(states.split()) + "\n")
    (tmp_path / "statuses").write_text("\n".join(statuses.split()) + "\n")
    done = run(tmp_path, "queued-resource.sh")
    assert done.returncode == status, done.stdout + done.stderr
    called = (tmp_path / "called").read_text()
    assert called.count("queued-resources create") == created
    # What is paid for by the hour is given back.
    assert (
        called.rstrip().splitlines()[-1].startswith("gcloud compute tpus queued-resources delete")
    )
    assert not (tmp_path / "statuses").read_text().strip()


def test_the_queue_gives_up_after_so_many_tries(tmp_path):
    pretend(tmp_path, "gcloud", GCLOUD)
    pretend(tmp_path, "sleep", "exit 0")
    (tmp_path / "states").write_text("ACTIVE\n" * 9)
    (tmp_path / "statuses").write_text("75\n" * 9)
    done = run(tmp_path, "queued-resource.sh", MAX_RESTARTS="2")
    assert done.returncode == 75
    assert (tmp_path / "called").read_text().count(" ssh ") == 3


def test_the_image_copies_what_there_is_and_python_is_its_first_process():
    text = (JOBS / "Dockerfile").read_text("utf-8")
    sources = [word for line in re.findall(r"^COPY (.*)", text, re.M) for word in line.split()[:-1]]
    allowed = re.findall(r"^!(.*)", (JOBS / "Dockerfile.dockerignore").read_text("utf-8"), re.M)
    assert sorted(sources) == sorted(allowed)
    assert all((JOBS.parent / source).exists() for source in sources)
    # The form with brackets has no shell in between, which would keep SIGTERM for itself.
    assert re.search(r'^CMD \["python", "-m", "jaxsens.run"', text, re.M)


def test_the_readme_says_what_was_never_run():
    text = (JOBS / "README.md").read_text("utf-8")
    (never,) = re.findall(r"\*\*What was never run:\*\*(.*?)\n\n", text, re.S)
    for what in ("a real TPU", "GKE", "Kueue"):
        assert what in never
