"""The experiment on the page "How to add an experiment" runs as it stands there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Commands in one process, which takes seconds to import what they need.
ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys
from jaxsens.run import main

done = []
for command in sys.argv[1:]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(command.split())
    done.append((status, out.getvalue(), err.getvalue()))
json.dump(done, sys.stdout)
"""


def test_the_skeleton_is_an_experiment(tmp_path):
    page = (ROOT / "docs" / "developers" / "add_an_experiment.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    # The experiments are found beside the library, so a link to it has experiments of its own.
    (tmp_path / "jaxsens").symlink_to(ROOT / "jaxsens")
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    (tmp_path / "experiments" / "majority").mkdir()
    (tmp_path / "experiments" / "majority" / "__init__.py").write_text(code)

    commands = ("majority --workdir run", "list", "majority --bits 17")
    done = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, *(f"--exp {words}" for words in commands)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (status, said, problems), listed, refused = json.loads(done.stdout)
    assert status == 0, problems
    assert "HOLDS         Majority is less sensitive than parity" in said
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["values"]["parity"]["mean"] == 1.0
    assert results["command"] == "python -m jaxsens.run --exp majority"
    assert (tmp_path / "run" / "report.html").exists()
    assert listed[1].count("majority") == 1
    status, _, problems = refused
    assert status == 2
    assert "bits" in problems
