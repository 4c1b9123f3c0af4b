"""Killed at any moment and started again, a run ends with the same bits as one left alone.

Slow: `tests/crash` has the same of a smaller run, which dies at chosen changes of its folder.
"""

import json
import random
import subprocess
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jaxsens.measurement.estimate import SensitivityEstimate
from tests.helpers.processes import Fork, Forks, flags_of_devices

# Adam, dropout and two models: everything that has a state of its own.
COMMAND = [
    *("-m", "jaxsens.run", "--exp", "vision"),
    *("--models", "mlp-leaky", "vit-small", "--optimizer", "adam", "--learning-rate", "0.002"),
    *("--epochs", "4", "--evaluate-every", "2", "--num-train", "150"),
    *("--num-measured", "20", "--tolerance", "0.2", "--num-samples", "2"),
]


def start(forks: Forks, workdir: Path, *, is_killed: bool) -> Fork:
    # One device and thread a process, and compiled programs that all share, keep the test short on
    # two cores. A process that is killed keeps none: half of one would stay for ever.
    flags = f"{flags_of_devices(1)} --xla_cpu_multi_thread_eigen=false"
    return forks.start(
        *COMMAND,
        *("--workdir", workdir),
        environment={"XLA_FLAGS": flags},
        config={"jax_persistent_cache_min_compile_time_secs": 1e9 if is_killed else 0.0},
    )


def end_state(workdir: Path) -> dict:
    """Final parameters, estimates, records and claims, without the times they took."""
    state = {}
    for model in ("mlp-leaky", "vit-small"):
        newest = workdir / "checkpoints" / model / "4" / "default"
        with ocp.StandardCheckpointer() as checkpointer:
            state[model] = jax.tree.map(np.asarray, checkpointer.restore(newest.resolve()))
        text = (workdir / "estimates" / f"{model}.json").read_text()
        estimate = SensitivityEstimate.from_json(text)
        state[f"{model} estimate"] = {"totals": estimate.totals, "counts": estimate.counts}
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    state["records"] = [json.dumps(r | {"seconds": 0}, sort_keys=True) for r in records]
    results = json.loads((workdir / "results.json").read_text())
    state["results"] = [json.dumps(results[k]) for k in ("claims", "tables", "values")]
    return state


def same_bits(a: dict, b: dict) -> bool:
    leaves_a, tree_a = jax.tree.flatten(a)
    leaves_b, tree_b = jax.tree.flatten(b)
    return tree_a == tree_b and all(
        np.asarray(p).tobytes() == np.asarray(q).tobytes()
        for p, q in zip(leaves_a, leaves_b, strict=True)
    )


def run_with_kills(
    forks: Forks, folder: Path, seed: int, kills: int, duration: float
) -> list[float]:
    """SIGKILL after random times, then one run to the end; returns the times."""
    rng = random.Random(seed)
    moments = [rng.uniform(0.2, 1.0) * duration for _ in range(kills)]
    for moment in moments:
        with start(forks, folder, is_killed=True) as process:
            try:
                process.wait(timeout=moment)
                break
            except subprocess.TimeoutExpired:
                process.kill()
    with start(forks, folder, is_killed=False) as process:
        assert process.wait(timeout=300) == 0, process.said()
    return moments


@pytest.fixture(scope="module")
def alone(forks, tmp_path_factory):
    """The run that nobody disturbs: its folder and its time."""
    folder = tmp_path_factory.mktemp("alone")
    started = time.monotonic()
    with start(forks, folder / "run", is_killed=False) as process:
        assert process.wait(timeout=300) == 0, process.said()
    return folder / "run", time.monotonic() - started


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_runs_end_with_the_same_bits(forks, alone, tmp_path, seed):
    reference, duration = alone
    moments = run_with_kills(forks, tmp_path / "run", seed, 2 if seed == 0 else 12, duration)
    assert same_bits(end_state(reference), end_state(tmp_path / "run")), moments


@pytest.mark.slow
def test_the_comparison_sees_a_single_bit(alone):
    state = end_state(alone[0])
    changed = jax.tree.map(lambda leaf: leaf, state)
    kernel = np.array(jax.tree.leaves(state["mlp-leaky"])[-1], copy=True)
    kernel.view(np.uint8).flat[0] ^= 1
    leaves, tree = jax.tree.flatten(changed["mlp-leaky"])
    changed["mlp-leaky"] = jax.tree.unflatten(tree, [*leaves[:-1], kernel])
    assert not same_bits(state, changed)
