"""A wheel built from the tree runs from any folder, the experiments with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, cwd, **environment):
    flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "XLA_FLAGS": flags, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder into which the wheel, and nothing else, is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    run(*build, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target"]
    run(*pip, folder / "site", wheel, cwd=folder)
    return folder / "site"


def test_the_wheel_has_one_top_level_package(installed):
    names = {p.name for p in installed.iterdir() if not p.name.endswith(".dist-info")}
    assert names - {"bin"} == {"jaxsens"}


@pytest.mark.slow
def test_the_wheel_runs_from_a_folder_with_experiments_of_its_own(installed, tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").write_text("raise RuntimeError('not mine')")
    # Found, not imported: that takes seconds, and the command below does it.
    where = "from importlib.util import find_spec; print(find_spec('jaxsens').origin)"
    out = run(sys.executable, "-c", where, cwd=tmp_path, PYTHONPATH=str(installed))
    assert Path(out.strip()).is_relative_to(installed)
    command = "-m jaxsens.run --exp vision --models mlp-leaky --epochs 1 --num-train 100"
    command += " --num-measured 10 --tolerance 0.2 --workdir run"
    out = run(sys.executable, *command.split(), cwd=tmp_path, PYTHONPATH=str(installed))
    assert "MLP-LeakyReLU" in out
    assert (tmp_path / "run" / "report.html").is_file()
