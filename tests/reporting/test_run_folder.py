"""The run folder: exact round trips, one owner, and nothing lost when a process is killed."""

import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.core import disk
from jaxsens.reporting import run_folder
from jaxsens.reporting.results import Figure, Results
from jaxsens.reporting.run_folder import RunFolder, WorkdirError

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {"epochs": 5, "sigma": 0.5, "widths": (8, 16), "model": {"depth": 2, "bias": True}}
RESULTS = Results(
    experiment="fig4",
    title="A title",
    summary="One sentence.",
    claims=(),
    tables=(),
    figures=(Figure("figures/fig4.png", "caption"),),
    values={"sensitivity": 0.1},
    config=CONFIG,
    environment={},
    seconds=12.25,
)


@pytest.fixture
def folder(tmp_path):
    with RunFolder.open(tmp_path / "run", "fig4", CONFIG) as opened:
        yield opened


def start(code: str, *arguments: object) -> subprocess.Popen:
    """A real second process that imports jaxsens from this tree."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# --- Identity -------------------------------------------------------------------------------------


def test_hash_depends_on_content_only():
    one = run_folder.config_hash("fig4", CONFIG)
    reordered = dict(reversed(CONFIG.items())) | {"widths": [8, np.int64(16)]}
    assert re.fullmatch("[0-9a-f]{10}", one)
    assert run_folder.config_hash("fig4", reordered) == one
    assert run_folder.config_hash("fig5", CONFIG) != one
    assert run_folder.config_hash("fig4", CONFIG | {"epochs": 6}) != one
    assert run_folder.default_folder("fig4", CONFIG) == Path("runs/fig4") / one


def test_open_writes_config_and_reopens(tmp_path):
    path = tmp_path / "deep" / "run"
    RunFolder.open(path, "fig4", CONFIG).close()
    stored = json.loads((path / "config.json").read_text())
    assert stored == {"experiment": "fig4", "config": CONFIG | {"widths": [8, 16]}}
    with RunFolder.open(str(path), "fig4", CONFIG) as again:
        assert again.config == stored["config"]
        assert again.checkpoints == path / "checkpoints"
        assert again.figures == path / "figures"
        assert not again.finished


@pytest.mark.parametrize(
    ("experiment", "changes", "expected"),
    [
        ("fig4", {"epochs": 6}, "epochs: 5 there, 6 here"),
        ("fig4", {"epochs": 5.0}, "epochs: 5 there, 5.0 here"),
        ("fig4", {"widths": (8,)}, "widths: [8, 16] there, [8] here"),
        ("fig4", {"model": {"depth": 3, "bias": True}}, "model.depth: 2 there, 3 here"),
        ("fig4", {"seed": "a\nb"}, r'seed: absent there, "a\nb" here'),
        ("fig5", {}, '--exp: "fig4" there, "fig5" here'),
        ("fig4", {"epochs": 1, "sigma": 1.0, "widths": 1, "model": {}}, "3 more"),
    ],
)
def test_other_config_is_refused_in_one_line(tmp_path, experiment, changes, expected):
    RunFolder.open(tmp_path, "fig4", CONFIG).close()
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(WorkdirError) as error:
        RunFolder.open(tmp_path, experiment, CONFIG | changes)
    message = str(error.value)
    assert expected in message
    assert str(tmp_path) in message
    assert "--workdir" in message
    assert "\n" not in message
    assert (tmp_path / "config.json").read_bytes() == before
    RunFolder.open(tmp_path, "fig4", CONFIG).close()  # the refusal left no lock behind


def test_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(WorkdirError, match=r"is not a run folder.*thesis\.tex"):
        RunFolder.open(tmp_path, "fig4", CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"experiment": "fig4", "config": 3'])
def test_foreign_config_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(WorkdirError, match="not written by jaxsens"):
        RunFolder.open(tmp_path, "fig4", CONFIG)


def test_folder_of_a_run_killed_before_its_config_is_taken_over(tmp_path):
    (tmp_path / ".lock").write_text("process 1 on host\n")
    (tmp_path / ".config.json.1.tmp").write_text('{"experi')
    with RunFolder.open(tmp_path, "fig4", CONFIG):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "config.json"]


@pytest.mark.parametrize("below", ["", "run"])
def test_path_that_cannot_be_a_folder(tmp_path, below):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkdirError, match=r"cannot be used as a run folder.*--workdir") as error:
        RunFolder.open(tmp_path / "file" / below, "fig4", CONFIG)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(WorkdirError, match="Permission denied"):
        RunFolder.open(tmp_path / "run", "fig4", CONFIG)


# --- One owner ------------------------------------------------------------------------------------

HOLD = """
import sys
from jaxsens.reporting.run_folder import RunFolder
folder = RunFolder.open(sys.argv[1], "fig4", {})
print("open", flush=True)
sys.stdin.read()
"""


def test_second_process_is_refused_until_the_first_is_killed(tmp_path):
    with start(HOLD, tmp_path) as owner:
        try:
            assert owner.stdout.readline() == "open\n"
            with pytest.raises(WorkdirError, match=rf"in use by process {owner.pid}\b") as error:
                RunFolder.open(tmp_path, "fig4", {})
            assert "\n" not in str(error.value)
        finally:
            owner.kill()
    with RunFolder.open(tmp_path, "fig4", {}) as mine, pytest.raises(WorkdirError, match="in use"):
        RunFolder.open(mine.path, "fig4", {})


def test_closed_folder_reads_but_does_not_write(folder):
    folder.append({"epoch": 1})
    folder.close()
    folder.close()
    assert folder.appended() == [{"epoch": 1}]
    with pytest.raises(WorkdirError, match="closed"):
        folder.append({"epoch": 2})
    with pytest.raises(WorkdirError, match="closed"):
        folder.write_results(RESULTS)


def test_file_system_without_locks_warns(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(disk.fcntl, "flock", no_locks)
    with pytest.warns(UserWarning, match="cannot be locked"):
        RunFolder.open(tmp_path, "fig4", CONFIG).close()


# --- Metrics --------------------------------------------------------------------------------------


def test_metrics_round_trip_exactly(folder):
    random = np.random.default_rng(0).bytes(8 * 1000)
    floats = [x for x in np.frombuffer(random, np.float64).tolist() if math.isfinite(x)]
    records = [
        {"x": floats},
        {"x": 0.1, "y": -0.0},
        {"x": 5e-324},
        {"text": "σ\n\u2028", "n": None},
    ]
    for record in records:
        folder.append(record)
    assert list(map(repr, folder.appended())) == list(map(repr, records))


def test_numpy_and_jax_numbers_become_python_numbers(folder):
    folder.append(
        {"a": np.float32(0.1), "b": jnp.bfloat16(0.5), "c": np.arange(2), "d": np.bool_(1)}
    )
    (record,) = folder.appended()
    assert record == {"a": float(np.float32(0.1)), "b": 0.5, "c": [0, 1], "d": True}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float32("nan"), jnp.inf])
def test_non_finite_numbers_are_refused_by_name(folder, bad):
    with pytest.raises(ValueError, match=r"finite number for metrics\.loss\.1, got -?(nan|inf)"):
        folder.append({"epoch": 1, "loss": [0.0, bad]})
    assert folder.appended() == []


def test_what_json_cannot_hold_is_refused(folder):
    with pytest.raises(TypeError, match="got set"):
        folder.append({"x": {1, 2}})


def test_torn_last_line_at_every_byte(folder):
    folder.append({"epoch": 1, "label": "σ"})
    complete = (folder.path / "metrics.jsonl").read_bytes()
    for end in range(len(complete)):
        (folder.path / "metrics.jsonl").write_bytes(complete + complete[:end])
        assert len(folder.appended()) == 1
    folder.append({"epoch": 2})
    assert folder.appended() == [{"epoch": 1, "label": "σ"}, {"epoch": 2}]


def test_damage_elsewhere_is_an_error(folder):
    (folder.path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epo\n{"epoch": 3}\n')
    with pytest.raises(WorkdirError, match="line 2 is damaged"):
        folder.appended()


@pytest.mark.parametrize("line", ["5", "[]", '"a"', "null", "{", "\0", "", "[" * 100_000])
def test_a_line_that_is_no_record_is_named(folder, line):
    (folder.path / "metrics.jsonl").write_text(f'{{"epoch": 1}}\n{line}\n')
    with pytest.raises(WorkdirError, match="line 2 is damaged") as error:
        folder.appended()
    assert "\n" not in str(error.value)


class Counting(io.BytesIO):
    """Counts the bytes that are read."""

    num_read = 0

    def read(self, size=-1):
        data = super().read(size)
        self.num_read += len(data)
        return data


@pytest.mark.parametrize("torn", [0, 1, 4095, 4096, 4097, 10_000])
def test_appending_reads_no_more_than_the_torn_line(torn):
    block = disk._BLOCK
    for complete in (0, 1, block - 1, block, 50 * block):
        file = Counting(b"x" * (complete - 1) + b"\n" * bool(complete) + b"y" * torn)
        assert disk._end_of_last_line(file) == complete
        assert file.num_read <= torn + block


APPEND = """
import sys
from jaxsens.reporting.run_folder import RunFolder
folder = RunFolder.open(sys.argv[1], "fig4", {})
for epoch in range(10**9):
    folder.append({"epoch": epoch})
    print(epoch, flush=True)
"""


def test_killed_while_appending_loses_no_reported_record(tmp_path):
    with start(APPEND, tmp_path) as writer:
        for _ in range(20):
            last = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        last = max([last, *map(int, writer.stdout.read().split())])
    with RunFolder.open(tmp_path, "fig4", {}) as folder:
        epochs = [record["epoch"] for record in folder.appended()]
    assert epochs == list(range(len(epochs)))
    assert len(epochs) > last


# --- Atomic writes --------------------------------------------------------------------------------

REPLACE = """
import sys
from jaxsens.reporting.run_folder import write_atomic
for i in range(10**9):
    write_atomic(sys.argv[1], "ab"[i % 2] * 3_000_000)
    print(i, flush=True)
"""


def test_killed_while_writing_leaves_a_whole_file(tmp_path):
    path = tmp_path / "run" / "file"
    for num_writes in (1, 2, 3):
        with start(REPLACE, path) as writer:
            for _ in range(num_writes):
                writer.stdout.readline()
            writer.kill()
        assert path.read_text() in ("a" * 3_000_000, "b" * 3_000_000)


def test_failed_write_keeps_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "file"
    run_folder.write_atomic(path, b"\x00old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        run_folder.write_atomic(path, "new")
    assert path.read_bytes() == b"\x00old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_intact_until_it_is_changed(folder):
    for name, data in (("a.json", "σ"), ("below/b.npy", b"\0" * 100)):
        assert not folder.intact(name)
        folder.write(name, data)
        assert folder.intact(name)
        file = folder.path / name
        content = file.read_bytes()
        for damaged in (content[:-1], content + b"\0", b"\1" + content[1:], b""):
            file.write_bytes(damaged)
            assert not folder.intact(name)
        file.write_bytes(content)
        command = ["sha256sum", "--check", "--quiet", f"{file.name}.sha256"]
        if shutil.which("sha256sum"):
            subprocess.run(command, cwd=file.parent, check=True)
        file.with_name(f"{file.name}.sha256").unlink()
        assert folder.intact(name)  # as earlier versions left it


# --- Results --------------------------------------------------------------------------------------


def test_results_mark_the_run_as_finished(folder):
    folder.figures.mkdir()
    (folder.figures / "fig4.png").touch()
    assert not folder.finished
    folder.write_results(RESULTS)
    assert folder.finished
    assert folder.results() == RESULTS


def test_results_need_their_figures(folder):
    with pytest.raises(FileNotFoundError, match=r"figures/fig4\.png.*save the figures first"):
        folder.write_results(RESULTS)
    assert not folder.finished


def test_results_that_are_missing_or_damaged(folder):
    with pytest.raises(WorkdirError, match=r"no results\.json yet"):
        folder.results()
    (folder.path / "results.json").write_text("{}")
    with pytest.raises(WorkdirError, match=r"not the results of this version.*delete it"):
        folder.results()
