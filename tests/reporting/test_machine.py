"""The environment of a run: versions, devices, and the commit of a checkout only."""

import json
import re
import subprocess

import jax
import numpy as np

from jaxsens.reporting import machine


def test_environment_names_versions_and_devices():
    found = machine.environment()
    assert found["jax"] == jax.__version__
    assert found["numpy"] == np.__version__
    assert found["num_devices"] == jax.device_count()
    assert {
        "python",
        "jaxlib",
        "flax",
        "optax",
        "jaxsens",
        "device",
        "platform",
        "num_cpus",
    } <= set(found)
    assert json.loads(json.dumps(found)) == found


def test_commit_of_a_checkout_only(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True
        )

    tmp_path = tmp_path.resolve()
    assert machine._commit(tmp_path) is None
    git("init")
    assert machine._commit(tmp_path) is None
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "first")
    commit = machine._commit(tmp_path)
    assert re.fullmatch("[0-9a-f]{7,}", commit)
    (tmp_path / "file").write_text("2")
    assert machine._commit(tmp_path) == commit + "+"
    inside = tmp_path / "site-packages"
    inside.mkdir()
    assert machine._commit(inside) is None
