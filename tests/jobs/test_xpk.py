"""The README's xpk command, run dry: the manifest that it makes agrees with jobset.yaml."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install 'jaxsens[jobs-test]'")

JOBS = Path(__file__).resolve().parents[2] / "jobs"
XPK = "xpk==1.16.0"


@pytest.fixture(scope="module")
def xpk(tmp_path_factory):
    """xpk in an environment of its own: it brings half a gigabyte, and versions of its own."""
    folder = tmp_path_factory.mktemp("xpk")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, timeout=600)
    pip = [folder / "venv/bin/python", "-m", "pip", "install", "--quiet", XPK]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        pytest.skip(f"pip cannot install {XPK}: {done.stderr.strip()[-200:]}")
    return folder / "venv/bin/xpk"


def readme_command():
    text = (JOBS / "README.md").read_text("utf-8")
    (command,) = re.findall(r"^xpk workload create.*?'$", text, re.M | re.S)
    return shlex.split(command.replace("\\\n", " "))


def slice_of(resource):
    """Topology, kind of TPU, hosts and chips of a host."""
    (replicated,) = resource["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    return (
        pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"],
        pod["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"],
        (replicated["replicas"], job["parallelism"], job["completions"]),
        int(container["resources"]["limits"]["google.com/tpu"]),
    )


def test_the_readmes_command_makes_the_same_slice_and_restarts_on_75(xpk, tmp_path):
    file = tmp_path / "manifest.yaml"
    _, *words = readme_command()
    dry = ["--dry-run", "--skip-validation", f"--output-manifest-file={file}"]
    done = subprocess.run(
        [xpk, *words, *dry],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made, ours = (
        yaml.safe_load(file.read_text()),
        yaml.safe_load((JOBS / "jobset.yaml").read_text()),
    )
    assert slice_of(made) == slice_of(ours)
    assert made["spec"]["failurePolicy"]["maxRestarts"] == 100
    (rule,) = made["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
    codes = set(rule["onExitCodes"]["values"])
    assert rule["onExitCodes"]["operator"] == "NotIn"
    assert {75, 137, 143} <= codes
    assert not {1, 2} & codes
