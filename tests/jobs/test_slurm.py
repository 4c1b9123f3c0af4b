"""jobs/slurm.sbatch and jobs/slurm-array.sbatch under a real SLURM of one node."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jaxsens import SensitivityEstimate
from tests.jobs.slurm_cluster import Cluster, UnavailableError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TINY = "--exp vision --evaluate-every 1 --num-train 200 --num-measured 20 --tolerance 0.1"
SWEEP = """
experiment = "vision"
evaluate_every = 1
num_train = 200
num_measured = 20
tolerance = 0.1
epochs = 2
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    try:
        made = Cluster(tmp_path_factory.mktemp("slurm"))
    except UnavailableError as error:
        pytest.skip(str(error))
    with made:
        yield made


@pytest.fixture
def environment(tmp_path):
    """What a user's job would have: no devices that tests make, a home, this checkout."""
    return {
        "HOME": str(tmp_path / "home"),
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
    }


def script(name):
    return str(ROOT / "jobs" / name)


def sweep(tmp_path, text):
    (tmp_path / "s.toml").write_text(SWEEP + text)
    return "s.toml --runs runs"


def logs(folder):
    return "\n".join(f"{file.name}:\n{file.read_text()}" for file in sorted(folder.glob("*.log")))


def end_state(folder):
    """Weights, estimates, records and claims of a run, without the times that they took."""
    state = {}
    for newest in sorted(folder.glob("checkpoints/*/6/default")):
        with ocp.StandardCheckpointer() as checkpointer:
            weights = checkpointer.restore(newest.resolve())
        state[newest.parts[-3]] = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(weights)]
    assert len(state) == 2
    for file in sorted(folder.glob("estimates/*.json")):
        estimate = SensitivityEstimate.from_json(file.read_text())
        state[file.name] = [estimate.totals.tobytes(), estimate.counts.tobytes()]
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    state["records"] = [json.dumps(record | {"seconds": 0}) for record in records]
    found = json.loads((folder / "results.json").read_text())
    state["results"] = [found[name] for name in ("claims", "tables", "values", "config")]
    return state


def test_an_array_of_two_models_and_three_seeds_completes(cluster, tmp_path, environment):
    words = sweep(tmp_path, 'models = ["mlp-leaky", "mlp-sigmoid"]\nseed = [0, 1, 2]')
    number = cluster.submit(
        "--array=0-5%2",
        script("slurm-array.sbatch"),
        folder=tmp_path,
        SWEEP=words,
        **environment,
    )
    jobs = cluster.wait_for_end(number)
    assert [job["JobState"] for job in jobs] == ["COMPLETED"] * 6, logs(tmp_path)
    assert len(list(tmp_path.glob("runs/vision/*/results.json"))) == 6
    # One log for each task and process, and one for each script.
    assert len(list(tmp_path.glob(f"jaxsens-{number}_[0-5]-0.log"))) == 6
    assert "done in" in (tmp_path / f"jaxsens-{number}_3-0.log").read_text()


def test_a_cell_that_diverges_fails_for_good_and_the_others_finish(cluster, tmp_path, environment):
    words = sweep(tmp_path, 'models = "mlp-leaky"\nlearning_rate = [1e30, 0.01, 0.02]')
    number = cluster.submit(
        "--array=0-2%2", script("slurm-array.sbatch"), folder=tmp_path, SWEEP=words, **environment
    )
    jobs = {job["ArrayTaskId"]: job for job in cluster.wait_for_end(number)}
    assert jobs["0"]["JobState"] == "FAILED", logs(tmp_path)
    assert jobs["0"]["ExitCode"] == "1:0"
    assert {job["Restarts"] for job in jobs.values()} == {"0"}
    assert {jobs["1"]["JobState"], jobs["2"]["JobState"]} == {"COMPLETED"}, logs(tmp_path)
    (failure,) = tmp_path.glob("runs/vision/*.failed")
    assert "at step" in failure.read_text()


def test_a_preempted_run_ends_with_the_same_bits(cluster, tmp_path, environment):
    command = f"{TINY} --models mlp-leaky mlp-sigmoid --epochs 6"
    number = cluster.submit(
        "--partition=low",
        "--cpus-per-task=8",
        script("slurm.sbatch"),
        folder=tmp_path,
        RUN=f"{command} --workdir preempted",
        **environment,
    )
    metrics = tmp_path / "preempted" / "metrics.jsonl"
    deadline = time.monotonic() + 600
    while not metrics.exists():
        assert time.monotonic() < deadline, logs(tmp_path)
        time.sleep(0.1)
    (tmp_path / "short.sh").write_text("#!/bin/sh\nsleep 1\n")
    other = cluster.submit("--partition=high", "--cpus-per-task=8", "short.sh", folder=tmp_path)
    (short,) = cluster.wait_for_end(other)
    assert short["JobState"] == "COMPLETED"
    (job,) = cluster.wait_for_end(number)
    assert job["JobState"] == "COMPLETED", logs(tmp_path)
    assert int(job["Restarts"]) >= 1, logs(tmp_path)
    log = (tmp_path / f"jaxsens-{number}.log").read_text()
    assert "exit status 75: requeued" in log

    plain = [sys.executable, "-m", "jaxsens.run", *command.split(), "--workdir", "plain"]
    subprocess.run(plain, cwd=tmp_path, env={**os.environ, **environment}, check=True, timeout=900)
    assert end_state(tmp_path / "preempted") == end_state(tmp_path / "plain")


def test_two_processes_of_srun_train_together(cluster, tmp_path, environment):
    # Under srun, `--distributed auto` finds both processes by itself.
    number = cluster.submit(
        "--ntasks-per-node=2",
        "--cpus-per-task=1",
        script("slurm.sbatch"),
        folder=tmp_path,
        RUN=f"{TINY} --models mlp-leaky --epochs 2 --workdir run --distributed auto",
        **environment,
    )
    (job,) = cluster.wait_for_end(number)
    assert job["JobState"] == "COMPLETED", logs(tmp_path)
    assert (tmp_path / "run" / "results.json").exists()
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    assert found["environment"]["num_hosts"] == 2
    assert len(list(tmp_path.glob(f"jaxsens-{number}-[01].log"))) == 2
