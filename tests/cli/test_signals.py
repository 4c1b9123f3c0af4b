"""Signals end a process at once, whatever has become of stderr, and before JAX is imported too.

Processes here load one file of the package, or a package in JAX's place: importing JAX takes
seconds.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jaxsens.cli import signals, start

ROOT = Path(__file__).resolve().parents[2]
MESSAGE = "jaxsens: interrupted; the same command resumes"

BUSY = """
import hashlib, importlib.util, sys
spec = importlib.util.spec_from_file_location("signals", sys.argv[1])
signals = importlib.util.module_from_spec(spec)
spec.loader.exec_module(signals)
with signals.leaving_on_signals():
    print("ready", flush=True)
    # One long operation that leaves the interpreter to others, but runs no Python handler.
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**9)
"""


def busy(before: str = "", after: str = "", **options) -> subprocess.Popen:
    """A process that is watching, started by a shell with something before and after it."""
    file = ROOT / "jaxsens" / "cli" / "signals.py"
    shell = ["sh", "-c", f'{before} exec "$@" {after}', "sh"]
    process = subprocess.Popen(
        [*shell, sys.executable, "-c", BUSY, file], stdout=subprocess.PIPE, text=True, **options
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_each_ends_the_process_and_says_so(number):
    with busy(stderr=subprocess.PIPE) as process:
        process.send_signal(number)
        assert process.wait(timeout=30) == 75
        assert process.stderr.read().strip() == MESSAGE


@pytest.mark.parametrize("stderr", ["full", "broken pipe", "closed"])
def test_none_needs_a_stderr_that_works(stderr):
    options = {"after": "2>&-"} if stderr == "closed" else {}
    if stderr == "full":
        options["stderr"] = os.open("/dev/full", os.O_WRONLY)
    if stderr == "broken pipe":
        read_end, options["stderr"] = os.pipe()
        os.close(read_end)
    with busy(**options) as process:
        if "stderr" in options:
            os.close(options["stderr"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 75


def test_nohup_stays_in_force():
    with busy("trap '' HUP;", stderr=subprocess.DEVNULL) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        assert process.wait(timeout=30) == 75


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    with signals.leaving_on_signals(), signals.leaving_on_signals():
        assert [signal.getsignal(number) for number in signals.SIGNALS] != before
    assert [signal.getsignal(number) for number in signals.SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_the_command_line_watches_before_jax_is_imported(number, tmp_path):
    (tmp_path / "jax").mkdir()
    code = f"import os, time\nos.kill(os.getpid(), {int(number)})\ntime.sleep(60)\n"
    (tmp_path / "jax" / "__init__.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "jaxsens.run", "--exp", "list"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=50,
    )
    assert done.returncode == 75
    assert done.stderr.strip() == MESSAGE


@pytest.mark.parametrize(
    ("program", "words", "expected"),
    [
        ("-m", ["python", "-m", "jaxsens.run", "--exp", "list"], True),
        ("-m", ["python", "-X", "dev", "-mjaxsens.run"], True),
        ("-m", ["python", "-m", "jaxsens.sweep", "quick"], True),
        ("/usr/bin/jaxsens", ["python", "/usr/bin/jaxsens"], True),
        ("-m", ["python", "-m", "pytest"], False),
        ("mine.py", ["python", "mine.py", "-m", "jaxsens.run"], False),
        ("-c", ["python", "-c", "import jaxsens"], False),
        ("", ["python"], False),
    ],
)
def test_only_the_command_line_is_taken_for_it(program, words, expected, monkeypatch):
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(sys, "orig_argv", words)
    assert start.is_command_line() == expected
