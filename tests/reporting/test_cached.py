"""What is computed once is read from the folder after it, unless it is damaged."""

import json

import jax
import numpy as np
import pytest

import jaxsens
from jaxsens import Bits, Flip, Perturbation, SensitivityEstimate
from jaxsens.reporting.cached import (
    cached_estimate,
    cached_estimate_stage,
    cached_file,
    cached_stage,
)
from jaxsens.reporting.records import records, records_of, total_seconds
from jaxsens.reporting.run_folder import RunFolder, WorkdirError


@pytest.fixture
def folder(tmp_path):
    with RunFolder.open(tmp_path / "run", "x", {}) as opened:
        yield opened


class Counted:
    """A function that counts its calls."""

    def __init__(self, give):
        self.give, self.calls = give, 0

    def __call__(self):
        self.calls += 1
        return self.give()


@pytest.fixture(scope="module")
def estimate():
    x = np.ones((2, 3), np.float32)
    flip = Perturbation(Bits(), Flip())
    return jaxsens.sensitivity(lambda w, x: x @ w, np.eye(3), x, flip, 1, key=jax.random.key(0))


def test_a_file_is_made_once_and_again_if_it_is_damaged(folder, capsys):
    make = Counted(lambda: "[1, 2]")
    for _ in range(2):
        assert cached_file(folder, "some/list.json", make, json.loads) == [1, 2]
    assert make.calls == 1
    (folder.path / "some" / "list.json").write_text("[1, 3]")
    assert cached_file(folder, "some/list.json", make, json.loads) == [1, 2]
    assert make.calls == 2
    assert "list.json is damaged; it is computed again" in capsys.readouterr().err


def test_only_a_stage_of_its_own_records_its_time(folder, estimate):
    measure = Counted(lambda: estimate)
    for _ in range(2):
        found = cached_estimate(folder, "estimates/part", SensitivityEstimate, measure)
        assert found.mean == estimate.mean
    assert (measure.calls, records(folder)) == (1, [])
    for _ in range(2):
        cached_estimate_stage(folder, "estimates/own", SensitivityEstimate, measure)
    assert measure.calls == 2
    assert [record["stage"] for record in records(folder)] == ["estimates/own"]
    for name in ("part", "own"):
        assert folder.intact(f"estimates/{name}.json")


def test_a_stage_is_computed_once_and_comes_back_as_json_has_it(folder):
    compute = Counted(lambda: {"pair": (1, np.float32(0.5))})
    for _ in range(2):
        assert cached_stage(folder, "pairs", compute) == {"pair": [1, 0.5]}
    assert compute.calls == 1


def test_records_of_a_model_are_in_the_order_of_epochs_and_seconds_add_up(folder):
    for model, epoch in (("a", 2), ("b", 1), ("a", 1)):
        folder.append({"model": model, "epoch": epoch, "seconds": 0.1})
    folder.append({"stage": "end", "seconds": 0.2})
    assert [record["epoch"] for record in records_of(folder, "a")] == [1, 2]
    assert total_seconds(folder) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "record", [{"epoch": 1, "seconds": 1.0}, {"model": "a", "epoch": 1}, {"stage": 3, "seconds": 1}]
)
def test_other_lines_are_refused_by_number(folder, record):
    folder.append({"stage": "fine", "seconds": 1.0})
    folder.append(record)
    with pytest.raises(WorkdirError, match=r"line 2: expected a record with model and epoch"):
        records(folder)
