"""`--parallel-arms`: children make arms in the run's folder, with the bits of one process."""

import json
import os
import signal
import time

import pytest

from jaxsens.cli import arms
from jaxsens.cli.signals import EXIT_INTERRUPTED
from jaxsens.measurement.estimate import SensitivityEstimate
from jaxsens.run import main
from tests.cli.test_resume import same_bits
from tests.helpers.processes import flags_of_devices

COMMAND = [
    *("-m", "jaxsens.run", "--exp", "vision", "--models", "mlp-leaky", "mlp-sigmoid"),
    *("--epochs", "2", "--evaluate-every", "1", "--num-train", "150", "--seeds", "2"),
    *("--num-measured", "20", "--tolerance", "0.2", "--num-samples", "2"),
]
NAMES = [f"{model}{end}" for model in ("mlp-leaky", "mlp-sigmoid") for end in ("", "-seed-1")]


def start(forks, workdir, *flags):
    # Threads decide the last bits of sums; with one in each process there is nothing to decide.
    flags_of_xla = f"{flags_of_devices(1)} --xla_cpu_multi_thread_eigen=false"
    return forks.start(
        *COMMAND, "--workdir", workdir, *flags, environment={"XLA_FLAGS": flags_of_xla}
    )


def end_state(workdir):
    """Records by training, estimates and results, without the times they took."""
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    records = sorted((r["model"], r["epoch"], json.dumps(r | {"seconds": 0})) for r in lines)
    results = json.loads((workdir / "results.json").read_text())
    texts = [(workdir / "estimates" / f"{name}.json").read_text() for name in NAMES]
    totals = [SensitivityEstimate.from_json(text).totals for text in texts]
    return {"records": records, "totals": totals} | {
        name: json.dumps(results[name]) for name in ("claims", "tables", "values", "command")
    }


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--parallel-arms 0", "--parallel-arms must be from 1 to 1000; got 0"),
        ("--parallel-arms two", "--parallel-arms must be a whole number; got 'two'"),
    ],
)
def test_bad_numbers_end_with_one_line(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(f"--exp vision {flags}".split()) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are not known here")
@pytest.mark.parametrize(
    ("cores", "num", "expected"),
    [
        ({3, 5}, 2, [[3], [5]]),
        ({0, 1, 2, 3, 4}, 2, [[0, 1], [2, 3]]),
        ({0, 1}, 3, [[0], [1], [0]]),
        ({0, 1}, 1, [[0, 1]]),
    ],
)
def test_cores_are_dealt_out_equally(cores, num, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    assert arms._shares(num) == expected


@pytest.mark.slow
def test_parallel_arms_have_the_bits_of_one_process(forks, tmp_path):
    serial, parallel, resumed = (tmp_path / name for name in ("serial", "parallel", "resumed"))
    with start(forks, serial) as one:
        assert one.wait(120) == 0, one.said()
    with start(forks, parallel, "--parallel-arms", "2") as two:
        assert two.wait(240) == 0, two.said()
    assert sorted(file.stem for file in (parallel / "arms").glob("*.txt")) == sorted(NAMES)
    assert same_bits(end_state(parallel), end_state(serial))
    # Interrupted when the first arm has left something, and resumed.
    with start(forks, resumed, "--parallel-arms", "2") as killed:
        deadline = time.monotonic() + 120
        while not (resumed / "metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        killed.send_signal(signal.SIGTERM)
        assert killed.wait(60) == EXIT_INTERRUPTED, killed.said()
    with start(forks, resumed, "--parallel-arms", "2") as again:
        assert again.wait(240) == 0, again.said()
    assert same_bits(end_state(resumed), end_state(serial))
