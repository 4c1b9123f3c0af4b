"""Running cells as processes: exit codes, what is skipped, signals, and the page over them.

The processes are `fake_run.py`, which needs no JAX and ends as its seed says.
"""

import json
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jaxsens.cli import signals
from jaxsens.reporting.plain_json import plain
from jaxsens.sweep import main
from jaxsens.sweeps import running
from jaxsens.sweeps.cells import read_cells
from jaxsens.sweeps.states import state_of

FAKE = str(Path(__file__).with_name("fake_run.py"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(running, "COMMAND", (sys.executable, "-S", FAKE))
    monkeypatch.setattr(running, "_POLL_SECONDS", 0.01)


@pytest.fixture
def sweep_of(monkeypatch):
    """Writes a sweep of these seeds and gives its cells."""

    def make(*seeds):
        Path("s.toml").write_text(f'experiment = "spectrum"\nseed = {list(seeds)}')
        cells = read_cells("s.toml", Path("runs"))
        configs = {str(cell.folder): plain(cell.config, "") for cell in cells}
        monkeypatch.setenv("FAKE_CONFIGS", json.dumps(configs))
        return cells

    return make


def starts():
    return [line.split()[0] for line in Path("starts.txt").read_text().splitlines()]


def test_all_cells_run_once_and_finished_ones_are_skipped(sweep_of, capsys):
    cells = sweep_of(0, 1, 2)
    assert main(["s.toml"]) == 0
    err = capsys.readouterr().err
    assert "3 cells, 0 of them finished before" in err
    assert "[2/3] spectrum quick seed=1: 1 of 1 claims hold, took 2.0 s; here" in err
    assert "a line of output" in (cells[0].folder.with_suffix(".log")).read_text()
    assert main(["s.toml", "--jobs", "2"]) == 0
    assert "3 of them finished before" in capsys.readouterr().err
    assert starts() == ["0", "1", "2"]


def test_one_that_fails_is_reported_and_stops_no_other(sweep_of, capsys):
    sweep_of(0, 11, 12, 1)
    assert main(["s.toml", "--jobs", "3"]) == 1
    err = capsys.readouterr().err
    assert re.search(r"seed=11: FAILED after .*: training diverged at step 2; log: runs/", err)
    assert re.search(r"seed=12: FAILED after .*: the data was not found; log: runs/", err)
    assert main(["s.toml", "--status"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "0  spectrum quick seed=0  finished: 1 of 1 claims hold, took 2.0 s",
        "1  spectrum quick seed=11  failed: training diverged at step 2 (exit status 1)",
        "2  spectrum quick seed=12  failed: the data was not found (exit status 2)",
        "3  spectrum quick seed=1  finished: 1 of 1 claims hold, took 2.0 s",
    ]


def test_one_that_is_killed_or_interrupted_is_tried_again(sweep_of, capsys):
    cells = sweep_of(13, 14, 0, 11)
    assert main(["s.toml"]) == 75
    err = capsys.readouterr().err
    assert re.search(r"seed=13: interrupted after .* \(exit status 137\)", err)
    assert re.search(r"seed=14: interrupted after .* \(exit status 75\)", err)
    assert re.match(r"begun: last written .* s ago", str(state_of(cells[0])))
    assert main(["s.toml"]) == 75
    assert starts() == ["13", "14", "0", "11", "13", "14", "11"]
    assert state_of(cells[1]).word == "finished"


@pytest.mark.parametrize(("seed", "status"), [(0, 0), (11, 1), (12, 2), (13, 137), (14, 75)])
def test_a_scheduler_gets_the_exit_status_of_its_cell(seed, status, sweep_of, capfd, monkeypatch):
    cells = sweep_of(5, seed)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    assert main(["s.toml"]) == status
    assert starts() == [str(seed)]
    assert (state_of(cells[1]).word == "failed") == (status in (1, 2))
    assert state_of(cells[0]).word == "not begun"
    if seed != 12:
        # The number of the cell is not that of a process.
        assert "a line of output\nFalse\n" in capfd.readouterr().out


def test_status_touches_nothing(sweep_of, tmp_path, capsys):
    sweep_of(0, 11)
    main(["s.toml"])
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    capsys.readouterr()
    assert main(["s.toml", "--status"]) == 0
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


SWEEP = """
import sys
from jaxsens.sweeps import running
from jaxsens import sweep
running.COMMAND = (sys.executable, "-S", {fake!r})
from jaxsens.cli import signals
sys.exit(sweep.main({arguments!r}))
"""


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("arguments", [["s.toml", "--jobs", "2"], ["s.toml", "--index", "0"]])
def test_sigterm_is_passed_on_and_ends_with_75(arguments, sweep_of, forks, tmp_path):
    sweep_of(15, 0)
    program = tmp_path / "program.py"
    program.write_text(SWEEP.format(fake=FAKE, arguments=arguments))
    with forks.start(program) as process:
        wait_for(lambda: Path("starts.txt").exists() and "15" in Path("starts.txt").read_text())
        wait_for(lambda: list(Path("runs").glob("*/*/config.json")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 75
    assert "jaxsens: interrupted; the same command resumes" in process.said()
    line = next(x for x in Path("starts.txt").read_text().splitlines() if x.startswith("15"))
    assert not Path("/proc", line.split()[1]).exists()


ORPHAN = """
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("signals", sys.argv[1])
signals = importlib.util.module_from_spec(spec)
spec.loader.exec_module(signals)
signals.watch()
signals.end_with_parent()
print("ready", flush=True)
time.sleep(120)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_run_ends_with_a_sweep_that_is_killed():
    file = signals.__file__
    parent = "import os, subprocess, sys; os.environ['JAXSENS_PARENT'] = str(os.getpid()); "
    parent += f"subprocess.run([sys.executable, '-c', {ORPHAN!r}, {file!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.kill()
        # The pipe is closed when the grandchild has ended too.
        _, err = process.communicate(timeout=60)
    assert "jaxsens: interrupted" in err


class Links(HTMLParser):
    """The links of a page, and that every tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.links, self.open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag != "meta":
            self.open.append(tag)
        if tag == "a":
            self.links.append(dict(attributes)["href"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_has_claims_by_seed_means_with_intervals_and_links(sweep_of, capsys):
    sweep_of(0, 1, 2, 11, 12)
    main(["s.toml"])
    page = Path("runs/sweep-s.html")
    text = page.read_text()
    page.unlink()
    capsys.readouterr()
    assert main(["s.toml", "--collect"]) == 0
    assert capsys.readouterr().out == "5 cells: 3 finished, 2 failed; page: runs/sweep-s.html\n"
    assert page.read_text() == text
    # Student's interval of 0.1, 0.2, 0.3: 0.2 ± 4.303·0.1/√3.
    assert '0.2</td><td class="number">-0.04841 to 0.4484' in text
    # The estimates 0.5, 1.5, 2.5, and one that is the same with every seed.
    assert '1.5</td><td class="number">-0.9841 to 3.984' in text
    assert '<th scope="row">cnn, noisy</th>' in text
    assert text.count("✓ yes") == 2
    assert text.count("✗ no") == 1
    assert "2 of 3" in text
    assert "training diverged at step 2" in text
    assert "<b>ViT" not in text
    assert "&lt;b&gt;ViT&lt;/b&gt; is less sensitive" in text
    assert "http" not in text
    found = Links(text)
    assert not found.open
    assert len(found.links) == 6
    assert all((page.parent / link).read_text() == "a report" for link in found.links)


def test_one_seed_has_no_interval(sweep_of):
    sweep_of(0)
    assert main(["s.toml"]) == 0
    text = Path("runs/sweep-s.html").read_text()
    assert "over seeds</th>" not in text
    assert "0.1</td>" in text


def test_results_that_cannot_be_read_are_said_to_be(sweep_of):
    (cell,) = sweep_of(0)
    main(["s.toml"])
    (cell.folder / "results.json").write_text("{")
    assert "delete it and run again" in str(state_of(cell))
