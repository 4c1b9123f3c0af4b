"""One process is the first one, decides for itself, and joins nobody unless a cluster says so."""

import numpy as np
import pytest

from jaxsens.core import hosts, peers
from jaxsens.core.files import WorkdirError

CLUSTER = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")


def test_one_process_is_the_first_and_calls_the_function():
    assert (hosts.num_processes(), hosts.process_id(), hosts.is_first()) == (1, 0, True)
    value = object()
    assert hosts.from_first(lambda: value) is value
    assert hosts.agreed(value) is value
    hosts.require_same({"a": 1}, lambda there, here: "never")
    arrays = [np.arange(3)]
    assert hosts.arrays_from_first(arrays) is arrays


def test_nothing_is_joined_on_a_plain_machine_or_by_a_single_process(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("no network call")

    monkeypatch.setattr(hosts.jax.distributed, "initialize", refuse)
    for name in (*CLUSTER, "OMPI_MCA_orte_hnp_uri", "TPU_WORKER_HOSTNAMES"):
        monkeypatch.delenv(name, raising=False)
    assert not hosts.initialize()
    assert not hosts.initialize("10.0.0.1:1", 1, 0)
    # A pod that is no part of an indexed job.
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert not hosts.initialize()
    for name, value in zip(CLUSTER, ("7", "node1", "1", "0", "0"), strict=True):
        monkeypatch.setenv(name, value)
    assert not hosts.initialize()


def test_the_cluster_s_processes_are_joined(monkeypatch):
    joined = []
    monkeypatch.setattr(hosts.jax.distributed, "initialize", lambda *a, **k: joined.append((a, k)))
    for name, value in zip(CLUSTER, ("7", "node[1-2]", "2", "1", "0"), strict=True):
        monkeypatch.setenv(name, value)
    hosts.initialize()
    ((given, options),) = joined
    assert given == (None, 2, None)
    assert options["heartbeat_timeout_seconds"] <= 30


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WorkdirError("in use"), WorkdirError),
        (FileNotFoundError(2, "not there"), FileNotFoundError),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), UnicodeError),
        (np.linalg.LinAlgError("singular"), ValueError),
    ],
)
def test_an_error_is_made_again_from_the_names_of_its_classes(error, kind):
    classes = [*map(hosts._class_name, type(error).__mro__)]
    made = hosts._error(classes, str(error))
    assert type(made) is kind
    assert str(made) == str(error)


def test_a_process_that_was_too_slow_is_no_fault_of_the_run(monkeypatch):
    left = []

    def leave(status, message):
        left.append((status, message))
        raise SystemExit(status)

    monkeypatch.setattr(hosts, "num_processes", lambda: 2)
    monkeypatch.setattr(peers, "leave", leave)
    with pytest.raises(SystemExit):
        peers.leave_if_lost(RuntimeError("DEADLINE_EXCEEDED: Gloo context initialization"))
    ((status, message),) = left
    assert status == 75
    assert "did not answer in time" in message
    monkeypatch.setattr(hosts, "num_processes", lambda: 1)
    peers.leave_if_lost(RuntimeError("DEADLINE_EXCEEDED"))
