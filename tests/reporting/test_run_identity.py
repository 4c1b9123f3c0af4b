"""A folder belongs to one run, its data too; any other is refused and left as it was."""

import json
import shutil

import pytest

from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder, RunLostError, WorkdirError

CONFIG = {"epochs": 5, "widths": [8, 16]}


def tree(path):
    """Everything below a folder: names, kinds, contents and times."""
    return {
        p.relative_to(path).as_posix(): (
            p.lstat().st_mtime_ns,
            p.is_symlink(),
            p.read_bytes() if p.is_file() else None,
        )
        for p in [path, *path.rglob("*")]
    }


def hold_nothing(path):
    """A config.json of another run."""
    (path / "config.json").write_text('{"experiment": "fig5", "config": {}}')


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: (path / "thesis.tex").write_text("mine"), "thesis.tex"),
        (lambda path: (path / ".notes.tmp").write_text("mine"), r"\.notes\.tmp"),
        (lambda path: (path / ".notes.1.tmp").write_text("mine"), r"\.notes\.1\.tmp"),
        (lambda path: (path / ".config.json.tmp").write_text("mine"), "not a run folder"),
        (lambda path: (path / ".lock").symlink_to(path.parent / "mine"), r"\.lock is a link"),
        (lambda path: (path / ".lock").symlink_to("nowhere"), r"\.lock is a link"),
        (lambda path: (path / ".lock").mkdir(), "cannot be used as a run folder"),
        (lambda path: (path / "config.json").mkdir(), "cannot be used as a run folder"),
        (lambda path: (path / "config.json").write_text("[" * 100_000), "not written by jaxsens"),
        (lambda path: (path / "config.json").write_bytes(b"\xff\xfe"), "not written by jaxsens"),
        (hold_nothing, "holds another run"),
    ],
)
def test_a_refused_folder_is_left_untouched(tmp_path, prepare, message):
    (tmp_path / "mine").write_text("precious")
    for leftovers in (False, True):
        path = tmp_path / f"run{leftovers}"
        path.mkdir()
        prepare(path)
        if leftovers:
            (path / ".config.json.7.tmp").write_text("half")
            (path / ".figure.png.7.tmp").write_text("half")
            if not (path / ".lock").exists() and not (path / ".lock").is_symlink():
                (path / ".lock").write_text("process 7 on host\n")
        before = tree(tmp_path)
        for attempt in (RunFolder.open, RunFolder.read):
            if attempt is RunFolder.open or (path / "config.json").is_file():
                with pytest.raises(WorkdirError, match=None if leftovers else message) as error:
                    attempt(path, "fig4", CONFIG)
                assert "\n" not in str(error.value)
        assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["run[1]", "a*", "what?", "b]/run", "back\\slash"])
def test_a_path_in_which_checkpoints_cannot_be_read_is_refused(tmp_path, name, monkeypatch):
    with pytest.raises(WorkdirError, match=r"checkpoints cannot be read.*--workdir"):
        RunFolder.open(tmp_path / name, "fig4", CONFIG)
    assert list(tmp_path.iterdir()) == []
    # The resolved path counts: a folder below it, and a link to it.
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / name)
    with pytest.raises(WorkdirError, match="checkpoints cannot be read"):
        RunFolder.open(tmp_path / "link" / "run", "fig4", CONFIG)
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(WorkdirError, match="checkpoints cannot be read"):
        RunFolder.open("run", "fig4", CONFIG)
    assert list((tmp_path / name).iterdir()) == []


DATA, MADE_WITH = {"x": "a1", "y": "b2"}, {"jax": "0.9", "cores": 2}


def test_data_and_surroundings_are_stored_and_compared(tmp_path):
    RunFolder.open(tmp_path / "run", "fig4", CONFIG, data=DATA, made_with=MADE_WITH).close()
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (stored["data"], stored["made_with"]) == (DATA, MADE_WITH)
    before = tree(tmp_path)
    for other, names in [({"x": "a1", "y": "c3"}, "y"), ({}, "x, y"), ({**DATA, "z": "0"}, "z")]:
        for attempt in (RunFolder.open, RunFolder.read):
            with pytest.raises(WorkdirError, match=rf"other data \({names} differ\)") as error:
                attempt(tmp_path / "run", "fig4", CONFIG, data=other)
            assert "--data-dir" in str(error.value)
            assert "\n" not in str(error.value)
    assert tree(tmp_path) == before
    now = {"jax": "0.10", "cores": 2, "prng": "rbg"}
    with RunFolder.open(tmp_path / "run", "fig4", CONFIG, data=DATA, made_with=now) as folder:
        assert set(folder.changes) == {
            "jax: 0.9 there, 0.10 here",
            "prng: absent there, rbg here",
        }
    with RunFolder.open(tmp_path / "run", "fig4", CONFIG, data=DATA, made_with=MADE_WITH) as folder:
        assert folder.changes == ()


def test_a_folder_of_an_earlier_version_resumes(tmp_path):
    """Its config.json says nothing about data; it stays as it is."""
    identity = {"experiment": "fig4", "config": CONFIG}
    text = json.dumps(identity, indent=2) + "\n"
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1}\n')
    with RunFolder.open(tmp_path, "fig4", CONFIG, data=DATA, made_with=MADE_WITH) as folder:
        assert folder.changes == ()
        assert folder.appended() == [{"epoch": 1}]
        folder.append({"epoch": 2})
    assert (tmp_path / "config.json").read_text() == text


def test_a_folder_is_read_without_a_lock(tmp_path):
    RunFolder.open(tmp_path, "fig4", CONFIG).close()
    (tmp_path / ".lock").unlink()
    before = tree(tmp_path)
    folder = RunFolder.read(tmp_path, "fig4", CONFIG)
    assert folder.appended() == []
    with pytest.raises(WorkdirError, match="closed"):
        folder.append({})
    assert tree(tmp_path) == before


def replaced(path):
    path.rename(path.with_name("old"))
    RunFolder.open(path, "fig4", {}).close()


@pytest.mark.parametrize(
    "lose",
    [shutil.rmtree, lambda path: path.rename(path.with_name("old")), replaced],
    ids=["deleted", "renamed", "replaced"],
)
def test_a_folder_lost_under_a_run_is_noticed_and_not_made_again(tmp_path, lose):
    writes = [
        lambda folder: folder.append({"epoch": 2}),
        lambda folder: folder.write("estimates/a.json", "{}"),
        lambda folder: folder.write_results(Results(*"  ", (), (), (), {}, "fig4", {}, {}, 0.0)),
        lambda folder: folder.log_error("text"),
        lambda folder: folder.figures,
        lambda folder: folder.checkpoints,
        lambda folder: folder.require_held(),
    ]
    with RunFolder.open(tmp_path / "run", "fig4", CONFIG) as folder:
        folder.append({"epoch": 1})
        lose(folder.path)
        before = tree(tmp_path)
        for write in writes:
            with pytest.raises(RunLostError, match="deleted, renamed or replaced") as error:
                write(folder)
            assert "\n" not in str(error.value)
        assert tree(tmp_path) == before
