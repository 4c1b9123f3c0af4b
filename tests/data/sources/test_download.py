"""The download: the real TFDS downloader against a server on this machine; failures are quick."""

import functools
import hashlib
import http.server
import io
import tarfile
import threading

import pytest

import jaxsens.data as data
from jaxsens.data.errors import UnusableSourceError
from jaxsens.data.sources import download

pytest.importorskip("tensorflow_datasets")
from tensorflow_datasets.core.download.checksums import UrlInfo


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder and the address it is served at."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def info(name, content):
    return UrlInfo(size=len(content), checksum=hashlib.sha256(content).hexdigest(), filename=name)


def tar_gz(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_files_arrive_under_their_names_and_archives_unpacked(served, tmp_path, capfd):
    folder, address = served
    contents = {
        "a-ubyte.gz": b"left as it is",
        "b.tar.gz": tar_gz({"cifar-10-batches-bin/test_batch.bin": b"rows"}),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    target = tmp_path / "target"
    download.fetch({f"{address}/{n}": info(n, c) for n, c in contents.items()}, target)
    found = {str(p.relative_to(target)): p.read_bytes() for p in target.rglob("*") if p.is_file()}
    assert found == {
        "a-ubyte.gz": b"left as it is",
        "cifar-10-batches-bin/test_batch.bin": b"rows",
    }
    assert capfd.readouterr() == ("", "")


def test_a_wrong_checksum_leaves_nothing_behind(served, tmp_path):
    folder, address = served
    (folder / "x").write_bytes(b"not the official content")
    with pytest.raises(Exception, match="wrong checksum"):
        download.fetch({f"{address}/x": info("x", b"official")}, tmp_path / "target")
    assert list((tmp_path / "target").iterdir()) == []


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "svhn"])
def test_tfds_knows_the_official_files(name, tmp_path, monkeypatch):
    fetched = {}
    monkeypatch.setattr(download, "fetch", lambda infos, folder: fetched.update(infos))
    assert download.download(tmp_path, data.spec(name)) == tmp_path / name
    assert {url_info.filename for url_info in fetched.values()} == {
        "cifar10": {"cifar-10-binary.tar.gz"},
        "svhn": {"train_32x32.mat", "test_32x32.mat"},
    }.get(
        name,
        {
            f"{split}-{kind}-ubyte.gz"
            for split in ("train", "t10k")
            for kind in ("images-idx3", "labels-idx1")
        },
    )


def test_without_network_no_retry_loop_is_entered(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tensorflow_datasets.download.DownloadManager", lambda **_: pytest.fail("would retry")
    )
    with pytest.raises(UnusableSourceError, match=r"storage\.googleapis\.com cannot be reached"):
        download.download(tmp_path, data.spec("mnist"))


def test_a_connection_that_breaks_later_is_one_line_too(tmp_path, monkeypatch):
    def broken(*args):
        raise ConnectionError("Max retries exceeded\nand a wall of text")

    monkeypatch.setattr(download, "fetch", broken)
    with pytest.raises(data.DatasetNotFoundError) as caught:
        data.load("mnist", "train", data_dir=tmp_path)
    assert "the download failed (ConnectionError: Max retries exceeded)." in str(caught.value)
    assert "wall" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_download_is_read_and_found_again(tmp_path, monkeypatch):
    def fetch(infos, folder):
        (folder / "cifar-10-batches-bin").mkdir(parents=True)
        (folder / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(bytes(10_000 * 3073))

    monkeypatch.setattr(download, "fetch", fetch)
    assert len(data.load("cifar10", "test", data_dir=tmp_path)[1]) == 10_000
    monkeypatch.setattr(download, "fetch", lambda *_: pytest.fail("downloaded twice"))
    assert len(data.load("cifar10", "test", data_dir=tmp_path)[1]) == 10_000
