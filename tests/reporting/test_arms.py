"""The arms of a run: one after the other, one alone, or made ahead by other processes."""

import dataclasses
import os

import pytest

from jaxsens.reporting import arms
from jaxsens.reporting.run_folder import RunFolder, WorkdirError


@dataclasses.dataclass(frozen=True)
class Training:
    name: str
    label: str


ARMS = [Training("cnn", "CNN"), Training("mlp", "MLP"), Training("cnn-seed-1", "CNN, seed 1")]


@pytest.fixture
def folder(tmp_path):
    with RunFolder.open(tmp_path / "run", "vision", {}) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _as_before():
    yield
    arms.one_after_the_other()


def test_arms_come_in_their_order(folder):
    assert [*arms.arms(folder, ARMS)] == ARMS


def test_a_process_of_one_arm_marks_it_and_ends(folder):
    arms.alone("mlp")
    going_through = arms.arms(folder, ARMS)
    assert next(going_through) == ARMS[1]
    assert not folder.exists(arms.mark_of("mlp"))
    with pytest.raises(arms.ArmDone):
        next(going_through)
    assert folder.exists(arms.mark_of("mlp"))
    assert not issubclass(arms.ArmDone, Exception)


def test_others_make_arms_before_they_are_gone_through(folder):
    seen = []
    arms.in_parallel(lambda given, listed: seen.append((given, [arm.name for arm in listed])))
    for arm in arms.arms(folder, ARMS):
        assert seen == [(folder, ["cnn", "mlp", "cnn-seed-1"])], arm


def test_a_folder_is_held_until_all_that_share_its_lock_have_let_go(folder):
    inherited = os.dup(folder.lock_descriptor())
    shared = RunFolder.join(folder.path, "vision", {}, inherited)
    shared.append({"stage": "one", "seconds": 0})
    folder.append({"stage": "two", "seconds": 0})
    assert [record["stage"] for record in shared.appended()] == ["one", "two"]
    folder.close()
    with pytest.raises(WorkdirError, match="in use"):
        RunFolder.open(shared.path, "vision", {})
    shared.write("file.txt", "content")
    shared.close()
    RunFolder.open(shared.path, "vision", {}).close()


def test_another_run_is_not_joined(folder):
    with pytest.raises(WorkdirError, match="holds another run"):
        RunFolder.join(folder.path, "vision", {"epochs": 2}, folder.lock_descriptor())
