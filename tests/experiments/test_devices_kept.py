"""The number of devices that a run trains on is kept, and another is refused in one line."""

import jax
import pytest

from experiments._common.training import require_same_devices
from jaxsens.core import runtime
from jaxsens.reporting.run_folder import RunFolder, WorkdirError


def use_devices(monkeypatch, num):
    mesh = runtime.local_mesh(jax.devices()[:num])
    monkeypatch.setattr(runtime, "global_mesh", lambda: mesh)


def opened(path):
    return RunFolder.open(path, "x", {})


def test_another_number_of_devices_is_refused(tmp_path, monkeypatch, all_devices):
    with opened(tmp_path / "run") as folder:
        require_same_devices(folder)
        require_same_devices(folder)
        use_devices(monkeypatch, 4)
        with pytest.raises(WorkdirError, match="begun on 8 devices, and here are 4") as error:
            require_same_devices(folder)
        assert "\n" not in str(error.value)
        use_devices(monkeypatch, 1)
        with pytest.raises(WorkdirError, match="here is 1"):
            require_same_devices(folder)


def test_a_run_that_says_nothing_was_trained_on_one(tmp_path, monkeypatch, all_devices):
    with opened(tmp_path / "run") as folder:
        folder.append({"model": "cnn", "epoch": 0, "seconds": 1.0})
        with pytest.raises(WorkdirError, match="begun on 1 device, and here are 8"):
            require_same_devices(folder)
        use_devices(monkeypatch, 1)
        require_same_devices(folder)
    with opened(tmp_path / "new") as folder:
        require_same_devices(folder)
        assert not (tmp_path / "new" / "devices.txt").exists()
