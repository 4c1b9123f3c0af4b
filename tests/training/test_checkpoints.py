"""Checkpoints: exact round trips; what is cut off, damaged or foreign does not count."""

import os
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens.training.checkpoints import Checkpoints, DamagedCheckpointError, OtherTrainingError


@pytest.fixture
def checkpoints(tmp_path):
    with Checkpoints(tmp_path / "a" / "b") as opened:
        yield opened


def state(seed: int) -> dict:
    key = jax.random.key(seed)
    return {
        "w": jax.random.normal(key, (3, 4)),
        "step": jnp.asarray(seed),
        "nested": {"b": jnp.ones(2)},
    }


def test_there_is_nothing_to_restore_at_first(checkpoints):
    assert checkpoints.epochs() == []


def test_each_comes_back_exactly(checkpoints):
    for epoch in (1, 2, 10):
        checkpoints.save(epoch, state(epoch))
    assert checkpoints.epochs() == [2, 10]
    for epoch in (2, 10):
        restored = checkpoints.restore(epoch, like=state(0))
        jax.tree.map(np.testing.assert_array_equal, restored, state(epoch))


def test_two_are_kept(checkpoints, tmp_path):
    for epoch in range(1, 5):
        checkpoints.save(epoch, state(epoch))
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir() if p.is_dir()) == ["3", "4"]


def test_multiples_of_a_period_are_kept_too(tmp_path):
    with Checkpoints(tmp_path, every=3) as checkpoints:
        for epoch in range(1, 9):
            checkpoints.save(epoch, state(epoch))
        assert checkpoints.epochs() == [3, 6, 7, 8]


def test_saving_an_epoch_again_changes_nothing(checkpoints):
    checkpoints.save(1, state(1))
    checkpoints.save(1, state(2))
    jax.tree.map(np.testing.assert_array_equal, checkpoints.restore(1, like=state(0)), state(1))


def test_a_save_that_was_cut_off_does_not_count(tmp_path):
    with Checkpoints(tmp_path) as first:
        first.save(1, state(1))
    # What orbax leaves when killed between writing and renaming.
    (tmp_path / "2.orbax-checkpoint-tmp" / "default").mkdir(parents=True)
    with Checkpoints(tmp_path) as second:
        jax.tree.map(np.testing.assert_array_equal, second.restore(1, like=state(0)), state(1))
        second.save(2, state(2))
        jax.tree.map(np.testing.assert_array_equal, second.restore(2, like=state(0)), state(2))


# --- Damage ---------------------------------------------------------------------------------------


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with Checkpoints(folder, training={"trainer": "a", "key": "1", "prng": "p"}) as opened:
        opened.save(1, state(1))
    return folder


@pytest.mark.parametrize(
    "damage", [flipped, lambda data: data[:-1], lambda data: data + b"\0", lambda data: None]
)
def test_damage_to_any_file_is_noticed_and_named(saved, tmp_path, damage):
    files = sorted(p.relative_to(saved) for p in saved.rglob("*") if p.is_file())
    for i, file in enumerate(files):
        if not (saved / file).stat().st_size or file.name == "checksums.json":
            continue
        copy = shutil.copytree(saved, tmp_path / str(i))
        damaged = damage((copy / file).read_bytes())
        (copy / file).unlink() if damaged is None else (copy / file).write_bytes(damaged)
        with Checkpoints(copy) as opened:
            with pytest.raises(DamagedCheckpointError, match=re.escape(file.name)) as error:
                opened.restore(1, like=state(0))
            assert "\n" not in str(error.value)
            assert opened.epochs() == []


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"epoch": 2}', '{"epoch": 1, "sha256": 3}'])
def test_damaged_checksums_are_noticed(saved, tmp_path, text):
    copy = shutil.copytree(saved, tmp_path / "copy")
    (copy / "1" / "checksums.json").write_text(text)
    with Checkpoints(copy) as opened:
        with pytest.raises(DamagedCheckpointError, match="is damaged"):
            opened.restore(1, like=state(0))
        # It can be saved again, and is then whole.
        opened.save(1, state(5))
        jax.tree.map(np.testing.assert_array_equal, opened.restore(1, like=state(0)), state(5))


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"trainer": "a", "key": "1", "prng": "p"}, None),
        ({"trainer": "b", "key": "1", "prng": "p"}, "another model"),
        ({"trainer": "a", "key": "2", "prng": "p"}, "another seed"),
        ({"trainer": "a", "key": "2", "prng": "q"}, None),
        ({"trainer": "b", "key": "2", "prng": "q"}, "another model"),
        ({}, None),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(saved, training, message):
    with Checkpoints(saved, training=training) as opened:
        if message is None:
            opened.restore(1, like=state(0))
        else:
            with pytest.raises(OtherTrainingError, match=message):
                opened.restore(1, like=state(0))
            assert opened.epochs() == [1]


# --- Writing --------------------------------------------------------------------------------------


def test_a_path_may_have_any_letter_but_those_of_patterns(tmp_path):
    folder = tmp_path / "a b!\"#$%&'()+,-.;<=>@^_`{|}~ σ\t%20" / "{b}"
    with Checkpoints(folder) as opened:
        opened.save(1, state(1))
        jax.tree.map(np.testing.assert_array_equal, opened.restore(1, like=state(0)), state(1))
    for letter in "[]*?\\":
        with pytest.raises(ValueError, match="in its path; choose another"):
            Checkpoints(tmp_path / f"run{letter}1" / "below")
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_read_back_must_be_what_was_saved(checkpoints, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoints, "_read", lambda path, like: state(2))
    with pytest.raises(DamagedCheckpointError, match="other numbers were read back"):
        checkpoints.save(1, state(1))
    assert checkpoints.epochs() == []
    monkeypatch.undo()
    checkpoints.save(1, state(1))
    assert [p.name for p in (tmp_path / "a" / "b").iterdir()] == ["1"]


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced, at_rename = set(), set()
    fsync, rename = os.fsync, os.rename

    def record_sync(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def record_rename(source, target, **options):
        if os.path.basename(target) == "1":
            at_rename.update(synced)
        rename(source, target, **options)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "rename", record_rename)
    with Checkpoints(tmp_path / "a" / "b") as opened:
        opened.save(1, state(1))
    inside = [tmp_path / "a" / "b" / "1", *(tmp_path / "a" / "b" / "1").rglob("*")]
    assert {p.stat().st_ino for p in inside} <= at_rename
    assert {p.stat().st_ino for p in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")} <= synced


def test_nothing_is_written_to_a_folder_that_is_lost(tmp_path):
    def lost():
        raise RuntimeError("lost")

    with Checkpoints(tmp_path / "a", before_saving=lost) as opened:
        with pytest.raises(RuntimeError, match="lost"):
            opened.save(1, state(1))
        assert list(tmp_path.iterdir()) == []
