"""The site: its picture is that of the imports, and it is built without a warning."""

import doctest
import importlib.util
import os
import re
import shutil
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


@pytest.mark.parametrize("name", sorted(file.stem for file in ROOT.glob("tools/*.py")))
def test_the_examples_of_a_tool(name):
    try:
        module = tool(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"`make docs` installs {error.name}")
    assert doctest.testmod(module).failed == 0


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


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    # The whole name: devices.md is the end of many_devices.md.
    named = set(re.findall(r"^ +- (?:[^\n]*: )?(\S+\.md)$", text, re.MULTILINE))
    there = {f.relative_to(ROOT / "docs").as_posix() for f in ROOT.glob("docs/**/*.md")}
    also = set(tool("site_links").ALSO.values())
    assert named == there | also


def test_links_that_leave_the_site_become_names():
    inside_only = tool("site_links").inside_only
    here = ROOT / "docs" / "guides"
    page = "[a](../../Makefile) [b](index.md) [c](../../nowhere.md) [d](https://x.org)"
    shown = "a (`Makefile`) [b](index.md) [c](../../nowhere.md) [d](https://x.org)"
    assert inside_only(page, here, ROOT / "docs") == shown
    link = "[speed](../../benchmarks/README.md#devices)"
    assert inside_only(link, here, ROOT / "docs") == "[speed](../results/benchmarks.md#devices)"


def build(root, folder):
    """Builds the site as `make docs` does; with --quiet, --strict would never fail."""
    pytest.importorskip("mkdocs", reason="`make docs` installs mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_the_site_is_built_and_asks_nothing_of_the_network(tmp_path):
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "search" / "search_index.js").exists()
    for file in tmp_path.rglob("*.html"):
        text = file.read_text("utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="?([^" >]+)', text)
        loaded += re.findall(r'<link[^>]* rel="?stylesheet"?[^>]* href="?([^" >]+)', text)
        assert not [each for each in loaded if re.match(r"(https?:)?//", each)], file


@pytest.mark.slow
def test_a_broken_link_fails_the_build(tmp_path):
    for name in ("docs", "jaxsens", "tools", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.write("\n[nowhere](nowhere.md)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "a link 'nowhere.md', but the target is not found" in done.stderr


def test_make_docs_counts_warnings():
    (line,) = re.findall(
        r"^.*mkdocs build.*$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    assert "--strict" in line
    assert "-q" not in line
