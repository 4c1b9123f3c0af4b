"""A disk and an object store do the same for a run folder; only their lock and kills differ."""

import hashlib

import pytest

from jaxsens.core import storage
from jaxsens.core.bucket import Bucket, ChangedError
from jaxsens.reporting.results import Results
from jaxsens.reporting.run_folder import RunFolder, RunLostError, WorkdirError

LAST = "sums.json"


@pytest.fixture(params=["disk", "objects"])
def place(request, tmp_path):
    if request.param == "disk":
        return storage.at(tmp_path / "run")
    request.getfixturevalue("server")
    return storage.at("gs://bucket/runs/run")


def test_files(place):
    assert place.entries() == set()
    place.write("estimates/cnn.json", "σ")
    place.write("config.json", b"\x00")
    place.write("config.json", b"\x01\r\n--")
    assert place.entries() == {"estimates", "config.json"}
    assert place.read("estimates/cnn.json") == "σ".encode()
    assert place.read("config.json") == b"\x01\r\n--"
    assert place.size("config.json") == 5
    assert place.checksum("config.json") == hashlib.sha256(b"\x01\r\n--").hexdigest()
    with place.fetched("config.json") as path:
        assert path.read_bytes() == b"\x01\r\n--"
    assert place.exists("config.json")
    assert not place.exists("estimates")
    place.remove("config.json")
    place.remove("config.json")
    assert not place.exists("config.json")
    with pytest.raises(FileNotFoundError):
        place.read("config.json")


def test_lines_are_appended_after_the_last_complete_one(place):
    place.write("metrics.jsonl", b"1\n2\n3")
    place.append("metrics.jsonl", b"4\n")
    place.append("metrics.jsonl", b"5\n")
    assert place.read("metrics.jsonl") == b"1\n2\n4\n5\n"
    assert storage.at(place.location).read("metrics.jsonl") == b"1\n2\n4\n5\n"


def test_folders_are_whole_or_not_there(place):
    killed = place.new_folder("1", LAST)
    (killed.__enter__() / "half").write_text("half")
    assert place.folders(LAST) == []
    for content in ("old", "new"):
        with place.new_folder("2", LAST) as made:
            (made / "default").mkdir()
            (made / "default" / "array").write_text(content)
            (made / LAST).write_text("{}")
    assert place.folders(LAST) == ["2"]
    with place.on_disk("2") as path:
        assert (path / "default" / "array").read_text() == "new"
    place.remove_unfinished(LAST)
    assert place.entries() == {"2"}
    place.remove_folder("2", LAST)
    assert place.folders(LAST) == []


def test_a_folder_without_its_last_file_is_unfinished(server):
    place = storage.at("gs://bucket/checkpoints")
    place.write("1/default/array", b"half")
    place.write("other/kept", b"")
    with place.new_folder("2", LAST) as made:
        (made / "array").write_text("whole")
    assert place.folders(LAST) == ["2"]
    place.remove_unfinished(LAST)
    assert place.entries() == {"2", "other"}


def test_an_object_somebody_else_has_written_is_not_appended_to(server):
    mine, other = storage.at("gs://bucket/run"), storage.at("gs://bucket/run")
    mine.append("metrics.jsonl", b"1\n")
    other.append("metrics.jsonl", b"2\n")
    with pytest.raises(ChangedError):
        mine.append("metrics.jsonl", b"3\n")
    assert other.read("metrics.jsonl") == b"1\n2\n"


def test_a_lost_answer_is_no_other_writer(server):
    bucket = Bucket("bucket")
    server.lose_answers = 1
    generation = bucket.write("key", b"content", 0)
    assert server.objects["key"] == (b"content", generation)
    with pytest.raises(ChangedError):
        bucket.write("key", b"other", 0)


@pytest.mark.parametrize(
    "name", ["s3://bucket/run", "http://host/run", "foo://x", "gs://", "gs:///r"]
)
def test_other_stores_are_refused(name):
    with pytest.raises(ValueError, match=r"gs://BUCKET/FOLDER"):
        storage.at(name)
    with pytest.raises(WorkdirError, match=r"gs://BUCKET/FOLDER"):
        RunFolder.open(name, "fig4", {})


# --- A run folder ---------------------------------------------------------------------------------

CONFIG = {"epochs": 2}
RUN = "gs://bucket/runs/fig4"
RESULTS = Results(
    *("A run", "It ran.", (), (), ()),
    values={},
    experiment="fig4",
    config=CONFIG,
    environment={},
    seconds=1.0,
)


def work():
    """What an experiment does, going on where its folder says it was."""
    with RunFolder.open(RUN, "fig4", CONFIG) as folder:
        checkpoints = storage.at(folder.checkpoints)
        checkpoints.remove_unfinished(LAST)
        recorded = {record["epoch"] for record in folder.appended()}
        for epoch in (1, 2):
            if str(epoch) not in checkpoints.folders(LAST):
                with checkpoints.new_folder(str(epoch), LAST) as made:
                    (made / "array").write_text(f"weights {epoch}")
                    (made / LAST).write_text("{}")
            if epoch not in recorded:
                folder.append({"epoch": epoch})
        if not folder.intact("estimates/cnn.json"):
            folder.write("estimates/cnn.json", "0.25")
        folder.write_results(RESULTS)


def end_state(server):
    return {key: content for key, (content, _) in server.objects.items()}


def test_killed_before_any_of_its_changes_a_run_ends_with_the_same_objects(server):
    work()
    expected, num_changes = end_state(server), server.num_changes
    assert ".lock" not in {key.rpartition("/")[2] for key in expected}
    assert num_changes > 10
    for at in range(num_changes - 1):  # the last one lets go of the lock
        server.objects.clear()
        server.num_changes, server.fail_from = 0, at
        with pytest.raises((OSError, WorkdirError)):
            work()
        server.fail_from = None
        # As a process that is dead would leave it.
        server.objects.pop("runs/fig4/.lock", None)
        work()
        assert end_state(server) == expected, at


def test_a_run_folder_of_objects_has_one_owner_and_is_read_without(server):
    with RunFolder.open(RUN, "fig4", CONFIG) as folder:
        folder.append({"epoch": 1})
        folder.write("estimates/cnn.json", "0.25")
        with pytest.raises(
            WorkdirError, match=r"gs://bucket/runs/fig4 is in use by process \d+ on"
        ):
            RunFolder.open(RUN, "fig4", CONFIG)
        other = RunFolder.read(RUN, "fig4", CONFIG)
        assert other.appended() == [{"epoch": 1}]
        assert other.intact("estimates/cnn.json")
        assert str(folder.figures) == "gs://bucket/runs/fig4/figures"
    server.objects["runs/fig4/estimates/cnn.json"] = (b"0.26", 1)
    with RunFolder.open(RUN, "fig4", CONFIG) as folder:
        assert not folder.intact("estimates/cnn.json")
        folder.write_results(RESULTS)
        assert folder.finished
    with pytest.raises(WorkdirError, match="epochs: 2 there, 3 here"):
        RunFolder.open(RUN, "fig4", {"epochs": 3})
    server.objects["other/file"] = (b"", 1)
    with pytest.raises(WorkdirError, match=r"it has no config\.json but holds other files"):
        RunFolder.open("gs://bucket/other", "fig4", CONFIG)


def test_a_run_whose_records_another_process_writes_is_lost(server):
    with RunFolder.open(RUN, "fig4", CONFIG) as folder:
        folder.append({"epoch": 1})
        storage.at(RUN).append("metrics.jsonl", b'{"epoch": 3}\n')
        with pytest.raises(RunLostError, match="written to by another process"):
            folder.append({"epoch": 2})


def test_a_store_that_refuses_is_one_line(server):
    server.fail_from = 0
    with pytest.raises(WorkdirError, match=r"gs://bucket/runs/fig4 cannot be used .*403") as caught:
        RunFolder.open(RUN, "fig4", CONFIG)
    assert "\n" not in str(caught.value)
