"""jobs/*.yaml: valid to the letter, consistent, and their containers' own commands run here."""

import copy
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("jobset.yaml", "sweep-job.yaml")
#: Below these every name is allowed, as they are the user's or the cloud's.
FREE = ("labels", "annotations", "nodeSelector", "limits")
KUBERNETES = "1.33"

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install 'jaxsens[jobs-test]'")


def manifest(name):
    return yaml.safe_load((ROOT / "jobs" / name).read_text("utf-8"))


def jobs(resource):
    """The resource as batch/v1 jobs: itself, or what a JobSet makes."""
    if resource.get("kind") == "Job":
        return [resource]
    wrapped = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "wrapped"}}
    return [wrapped | replicated["template"] for replicated in resource["spec"]["replicatedJobs"]]


def problems(resource):
    """Why a cluster would refuse the resource, or ignore some of it; nothing if it would not."""
    validate = pytest.importorskip(
        "kubernetes_validate", reason="needs kubernetes-validate: pip install 'jaxsens[jobs-test]'"
    )
    models = pytest.importorskip(
        "kubeflow_trainer_api.models",
        reason="needs kubeflow-trainer-api: pip install 'jaxsens[jobs-test]'",
    )
    try:
        for job in jobs(resource):
            validate.validate(job, KUBERNETES, strict=True)
        if resource.get("kind") == "JobSet":
            assert resource["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
            again = models.JobsetV1alpha2JobSet.from_dict(copy.deepcopy(resource)).to_dict()
            assert again == resource, "a field is unknown"
        else:
            assert (resource["apiVersion"], resource["kind"]) == ("batch/v1", "Job")
    except (validate.ValidationError, AssertionError, KeyError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def keys(value, path=()):
    """The paths of all keys that have a fixed spelling."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if isinstance(value, dict):
            yield (*path, key)
        if isinstance(inner, dict | list) and key not in FREE:
            yield from keys(inner, (*path, key))


def misspelt(resource, path):
    """A copy with one key spelt wrong."""
    made = copy.deepcopy(resource)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1] + "x"] = inner.pop(path[-1])
    return made


def pod(resource):
    (job,) = jobs(resource)
    return job["spec"]["template"]["spec"]


def container(resource):
    (only,) = pod(resource)["containers"]
    return only


@pytest.mark.parametrize("name", FILES)
def test_it_is_valid(name):
    assert problems(manifest(name)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_misspelt_key_is_found(name):
    resource = manifest(name)
    paths = list(keys(resource))
    assert len(paths) > 40
    assert [path for path in paths if not problems(misspelt(resource, path))] == []


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("jobset.yaml", ("spec", "failurePolicy")),
        ("jobset.yaml", ("spec", "replicatedJobs", 0, "template", "spec", "podFailurePolicy")),
        ("sweep-job.yaml", ("spec", "backoffLimitPerIndex")),
    ],
)
def test_a_misspelt_key_is_found(name, path):
    assert problems(misspelt(manifest(name), path)) != ""


def test_the_hosts_have_the_chips_of_the_topology():
    resource = manifest("jobset.yaml")
    (job,) = jobs(resource)
    topology = pod(resource)["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
    chips = container(resource)["resources"]["limits"]["google.com/tpu"]
    assert job["spec"]["parallelism"] == job["spec"]["completions"]
    assert job["spec"]["parallelism"] * chips == math.prod(map(int, topology.split("x")))


@pytest.mark.parametrize(
    ("name", "action"), [("jobset.yaml", "FailJob"), ("sweep-job.yaml", "FailIndex")]
)
def test_the_exit_codes_are_those_of_the_contract(name, action):
    resource = manifest(name)
    (job,) = jobs(resource)
    rule = job["spec"]["podFailurePolicy"]["rules"][0]
    assert rule["action"] == action
    codes = {"containerName": container(resource)["name"], "operator": "In", "values": [1, 2]}
    assert rule["onExitCodes"] == codes
    # Such a policy is for pods that are not started again by their node.
    assert pod(resource)["restartPolicy"] == "Never"
    assert "kueue.x-k8s.io/queue-name" in resource["metadata"]["labels"]
    if name == "jobset.yaml":
        assert job["spec"]["backoffLimit"] == 0
        (failure,) = resource["spec"]["failurePolicy"]["rules"]
        assert failure["action"] == "FailJobSet"
        assert failure["onJobFailureReasons"] == ["PodFailurePolicy"]


@pytest.mark.parametrize("name", FILES)
def test_programs_and_the_port_are_set_and_the_volume_is_there(name):
    resource = manifest(name)
    only = container(resource)
    variables = {each["name"]: each["value"] for each in only["env"]}
    mounts = {each["name"]: each["mountPath"] for each in only["volumeMounts"]}
    assert variables["JAX_COMPILATION_CACHE_DIR"].startswith(mounts["shared"])
    assert {volume["name"] for volume in pod(resource)["volumes"]} == {"shared"}
    assert variables["JAX_COORDINATOR_PORT"] == "8482"
    if name == "jobset.yaml":
        assert 8482 in [port["containerPort"] for port in only["ports"]]


TINY = "--exp vision --models mlp-leaky --epochs 1 --evaluate-every 1 --num-train 200"
TINY += " --num-measured 20 --tolerance 0.1"
CELLS = """
experiment = "vision"
models = "mlp-leaky"
epochs = 1
evaluate_every = 1
num_train = 200
num_measured = 20
tolerance = 0.1
seed = [5, 6]
"""


def run_container(resource, arguments, shared, **variables):
    """Runs the container's command with its variables, the volume being a folder here."""
    only = container(resource)
    mount = only["volumeMounts"][0]["mountPath"]
    words = [re.sub(f"^{mount}", str(shared), word) for word in [*only["command"], *arguments]]
    assert words[0] == "python"
    own = {each["name"]: each["value"].replace(mount, str(shared)) for each in only["env"]}
    environment = {**os.environ, **own, "XLA_FLAGS": "", "PYTHONPATH": str(ROOT), **variables}
    environment["JAX_COMPILATION_CACHE_DIR"] = os.environ["JAX_COMPILATION_CACHE_DIR"]
    return subprocess.run(
        [sys.executable, *words[1:]], env=environment, cwd=shared, timeout=600, check=False
    )


@pytest.mark.slow
def test_the_sweeps_own_command_runs_the_cell_of_its_index(tmp_path):
    resource = manifest("sweep-job.yaml")
    (tmp_path / "data").mkdir()
    (tmp_path / "two.toml").write_text(CELLS)
    arguments = container(resource)["args"]
    assert arguments[0] == "paper"
    done = run_container(resource, ["two.toml", *arguments[1:]], tmp_path, JOB_COMPLETION_INDEX="1")
    assert done.returncode == 0
    (results,) = tmp_path.glob("runs/vision/*/results.json")
    assert '"seed": 6' in results.read_text()
    beyond = run_container(
        resource, ["two.toml", *arguments[1:]], tmp_path, JOB_COMPLETION_INDEX="2"
    )
    assert beyond.returncode == 2


@pytest.mark.slow
def test_the_sets_own_command_runs(tmp_path):
    resource = manifest("jobset.yaml")
    (tmp_path / "data").mkdir()
    arguments = container(resource)["args"]
    kept = arguments[arguments.index("--workdir") :]
    assert arguments[: -len(kept)] == ["--exp", "vision", "--preset", "paper"]
    done = run_container(resource, [*TINY.split(), *kept], tmp_path, JOB_COMPLETION_INDEX="0")
    assert done.returncode == 0
    assert (tmp_path / "runs" / "vision-paper" / "results.json").exists()
