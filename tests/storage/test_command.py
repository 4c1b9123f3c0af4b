"""The command line with folders in object stores: refused in one line, or killed and resumed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxsens.core import storage
from jaxsens.core.bucket import Bucket
from jaxsens.run import main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("flag", ["--workdir", "--data-dir", "--reuse"])
@pytest.mark.parametrize("value", ["s3://b/run", "http://h/run", "foo://x", "gs://", "gs:/b/run"])
def test_another_store_is_refused_and_nothing_created(flag, value, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--exp", "vision", flag, value]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "must be a folder or gs://BUCKET/FOLDER" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--workdir", "--data-dir", "--reuse"])
def test_without_the_extra_one_line_says_how_to_get_it(flag, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage, "_is_installed", lambda: False)
    assert main(["--exp", "vision", flag, "gs://bucket/run"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pip install 'jaxsens[gcs]'" in said
    assert list(tmp_path.iterdir()) == []


def test_vocabularies_are_read_from_this_machine(capsys):
    assert main(["--exp", "language", "--tokenizer", "gs://bucket/gpt2"]) == 2
    assert "a folder of this machine" in capsys.readouterr().err


# --- Killed and resumed, on the emulator ----------------------------------------------------------

EMULATOR = """
import sys, time, logging
from http import server
import gcp_storage_emulator.server as emulator
logging.disable(logging.CRITICAL)
emulator.server.HTTPServer = server.ThreadingHTTPServer  # one request at a time takes minutes
started = emulator.create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
started.start()
while started._api._httpd is None: time.sleep(0.01)
print(started._api._httpd.server_port, flush=True)
time.sleep(1800)
"""
COMMAND = "--exp vision --models mlp-leaky --epochs 2 --evaluate-every 1 --num-train 200"
CHECKPOINT = "checkpoints/mlp-leaky/1/"


@pytest.fixture(scope="module")
def emulator():
    """The environment of a process that uses the emulator."""
    for name in ("google", "gcp_storage_emulator"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}: pip install 'jaxsens[dev]'")
    process = subprocess.Popen([sys.executable, "-c", EMULATOR], stdout=subprocess.PIPE, text=True)
    with process:
        host = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        yield {**os.environ, "STORAGE_EMULATOR_HOST": host, "NO_GCE_CHECK": "true"}
        process.kill()


def start(environment, folder, *words):
    flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
    return subprocess.Popen(
        [sys.executable, "-m", "jaxsens.run", *COMMAND.split(), "--workdir", folder, *words],
        env={**environment, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    output, said = process.communicate(timeout=900)
    return process.returncode, output, said


def stop_when(process, number, bucket, prefix, is_time):
    """Sends a signal as soon as the objects of the run say so."""
    while process.poll() is None and not is_time(bucket.sizes(prefix)):
        time.sleep(0.02)
    process.send_signal(number)
    return ended(process)[0]


def without_seconds(value):
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k not in ("seconds", "command")}
    return [without_seconds(each) for each in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_killed_and_resumed_a_run_equals_one_on_a_disk(emulator, tmp_path, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator["STORAGE_EMULATOR_HOST"])
    local, run, bucket = tmp_path / "run", "gs://bucket/run", Bucket("bucket")
    assert ended(start(emulator, str(local)))[0] == 0

    def is_saving(found):
        return any(name.startswith(CHECKPOINT) for name in found)

    def has_saved(found):
        return f"{CHECKPOINT}checksums.json" in found

    assert stop_when(start(emulator, run), signal.SIGKILL, bucket, "run/", is_saving) == -9
    assert stop_when(start(emulator, run), signal.SIGTERM, bucket, "run/", has_saved) == 75
    first = start(emulator, run)
    while json.loads(bucket.read("run/.lock"))["process"]["number"] != first.pid:
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGSTOP)  # so that it is not done before the other has come
    status, _, said = ended(start(emulator, run))
    first.send_signal(signal.SIGCONT)
    assert (status, said.count("\n")) == (2, 1)
    assert f"{run} is in use by process {first.pid} on" in said
    assert ended(first)[0] == 0
    status, output, _ = ended(start(emulator, run))
    assert status == 0
    assert "finished before, nothing to do" in output

    there = storage.at(run)
    for name in ("metrics.jsonl", "estimates/mlp-leaky.json", "results.json"):
        lines = [each.decode() for each in (there.read(name), (local / name).read_bytes())]
        if name == "metrics.jsonl":
            lines = [f"[{','.join(each.splitlines())}]" for each in lines]
        found, expected = map(without_seconds, map(json.loads, lines))
        assert found == expected, name
    figures = sorted(path.name for path in (local / "figures").iterdir())
    assert figures
    for name in figures:
        assert there.read(f"figures/{name}") == (local / "figures" / name).read_bytes()

    reusing = ("--num-samples", "2", "--reuse", run)
    assert ended(start(emulator, str(tmp_path / "reused"), *reusing))[0] == 0
    assert ended(start(emulator, "gs://bucket/reused", *reusing))[0] == 0
    name = "estimates/mlp-leaky.json"
    found = json.loads(storage.at("gs://bucket/reused").read(name))
    expected = json.loads((tmp_path / "reused" / name).read_bytes())
    assert without_seconds(found) == without_seconds(expected)
