"""No test here finds data or a network that the machine happens to have."""

import pytest


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path_factory):
    monkeypatch.delenv("JAXSENS_DATA", raising=False)
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    # Port 9 (discard) is closed: every request fails at once, as on a machine without network.
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
