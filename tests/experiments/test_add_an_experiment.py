"""The experiment on the page "How to add an experiment" runs as it stands there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_skeleton_is_an_experiment(tmp_path):
    page = (ROOT / "docs" / "developers" / "add_an_experiment.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    # The experiments are found beside the library, so a link to it has experiments of its own.
    (tmp_path / "jaxsens").symlink_to(ROOT / "jaxsens")
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    (tmp_path / "experiments" / "majority").mkdir()
    (tmp_path / "experiments" / "majority" / "__init__.py").write_text(code)

    def run(*words):
        command = [sys.executable, "-m", "jaxsens.run", "--exp", *words]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr

    status, said, problems = run("majority", "--workdir", "run")
    assert status == 0, problems
    assert "HOLDS         Majority is less sensitive than parity" in said
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["values"]["parity"]["mean"] == 1.0
    assert results["command"] == "python -m jaxsens.run --exp majority"
    assert (tmp_path / "run" / "report.html").exists()
    assert run("list")[1].count("majority") == 1
    status, _, problems = run("majority", "--bits", "17")
    assert status == 2
    assert "bits" in problems
