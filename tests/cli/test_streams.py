"""Printing never fails: closed, full or broken streams, and letters that they cannot write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PRINTS = """
import contextlib, importlib.util, os, sys
spec = importlib.util.spec_from_file_location("streams", sys.argv[1])
streams = importlib.util.module_from_spec(spec)
spec.loader.exec_module(streams)
streams.secure()
# Nothing that is opened from now on may get the number of a standard stream.
opened = os.open(sys.argv[1], os.O_RDONLY)
for stream in (sys.stdout, sys.stderr):
    for _ in range(2000):
        print("σ – ×" * 20, file=stream)
    stream.flush()
with contextlib.suppress(OSError):
    os.write(2, b"from a library")
sys.exit(40 + (opened > 2))
"""


def run(redirection: str = "", **options) -> subprocess.CompletedProcess:
    file = ROOT / "jaxsens" / "cli" / "streams.py"
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh"]
    return subprocess.run([*shell, sys.executable, "-c", PRINTS, file], timeout=60, **options)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed(closed):
    done = run(closed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert done.returncode == 41


def test_full_and_broken():
    with open("/dev/full", "w") as full:
        assert run(stdout=full, stderr=full).returncode == 41
    read_end, write_end = os.pipe()
    os.close(read_end)
    assert run(stdout=write_end, stderr=write_end).returncode == 41
    os.close(write_end)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_letters_that_cannot_be_written_are_replaced(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = run(env=environment, capture_output=True)
    assert done.returncode == 41
    line = ("σ – ×" * 20).encode(encoding, "replace")
    assert done.stdout.splitlines() == [line] * 2000


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["2>&-", ">&- 2>&- <&-", ">/dev/full 2>/dev/full", "| head -0", "ascii", "optimised"]
)
def test_a_whole_run_succeeds(how, tmp_path):
    flags = "--exp vision --models mlp-leaky --epochs 1 --evaluate-every 1 --num-train 100 "
    flags += "--num-measured 5 --tolerance 0.4 --workdir run"
    settings = {
        "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        "optimised": {"PYTHONOPTIMIZE": "2"},
    }.get(how, {})
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    environment.pop("HOME", None)
    shell = "" if settings else how
    command = f"{sys.executable} -m jaxsens.run {flags} {shell}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], env=environment, cwd=tmp_path, timeout=300)
    assert done.returncode == 0
    assert (tmp_path / "run" / "report.html").exists()
