"""An object store for each test that asks for one; skipped where nothing reads it."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from object_server import ObjectServer


def _is_installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture
def server(monkeypatch):
    if not _is_installed("google.cloud.storage"):
        pytest.skip("needs google-cloud-storage: pip install 'jaxsens[gcs]'")
    with ObjectServer() as started:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", started.address)
        yield started
