"""The site: its picture is that of the imports, and it is built without a warning."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT


def tool(name):
    """A module of tools/, which is no package of the library."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_the_rooms_is_that_of_the_imports():
    graph = tool("import_graph")
    made = graph.svg(graph.rooms(ROOT / "jaxsens"))
    stale = "docs/pictures/rooms.svg is stale: run `python -m tools.import_graph`"
    assert graph.PICTURE.read_text("utf-8") == made, stale


def test_rooms_are_placed_below_what_they_import():
    graph = tool("import_graph")
    rows = graph.levels({"a": frozenset("b"), "b": frozenset(), "c": frozenset("ab")})
    assert rows == [["b"], ["a"], ["c"]]
    assert graph.reduced({"a": frozenset("b"), "b": frozenset(), "c": frozenset("ab")})["c"] == {
        "a"
    }
    with pytest.raises(ValueError, match="in a circle: a, b"):
        graph.levels({"a": frozenset("b"), "b": frozenset("a")})


def test_every_page_of_results_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    for file in ROOT.glob("docs/**/*.md"):
        assert f"{file.relative_to(ROOT / 'docs').as_posix()}\n" in text, file


def test_links_that_leave_the_site_become_names():
    inside_only = tool("site_links").inside_only
    here = ROOT / "docs" / "guides"
    page = "[a](../../Makefile) [b](index.md) [c](../../nowhere.md) [d](https://x.org)"
    shown = "a (`Makefile`) [b](index.md) [c](../../nowhere.md) [d](https://x.org)"
    assert inside_only(page, here, ROOT / "docs") == shown


@pytest.mark.slow
def test_the_site_is_built_and_asks_nothing_of_the_network(tmp_path):
    pytest.importorskip("mkdocs", reason="`make docs` installs mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", tmp_path]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "search" / "search_index.js").exists()
    for file in tmp_path.rglob("*.html"):
        text = file.read_text("utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="?([^" >]+)', text)
        loaded += re.findall(r'<link[^>]* rel="?stylesheet"?[^>]* href="?([^" >]+)', text)
        assert not [each for each in loaded if re.match(r"(https?:)?//", each)], file
