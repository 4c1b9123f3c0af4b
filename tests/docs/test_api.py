"""Every public name has an entry in the API, and every entry is a public name."""

import importlib
import re

import pytest

import jaxsens
from tests.docs.blocks import ROOT

ROOMS = sorted(file.stem for file in ROOT.glob("docs/api/*.md") if file.stem != "index")
ENTRY = re.compile(r"^::: jaxsens\.([\w.]+)$", re.MULTILINE)


def entries(room):
    return ENTRY.findall((ROOT / "docs" / "api" / f"{room}.md").read_text("utf-8"))


def test_every_room_with_public_names_has_a_page():
    rooms = {
        file.parent.name
        for file in ROOT.glob("jaxsens/*/__init__.py")
        if "__all__" in file.read_text("utf-8")
    }
    # What is in these is for the library itself.
    assert rooms - {"core", "cli", "sweeps"} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_of_a_room_has_an_entry(room):
    names = importlib.import_module(f"jaxsens.{room}").__all__
    found = [entry.rpartition(".")[2] for entry in entries(room)]
    assert len(found) == len(set(found))
    assert set(names) <= set(found), f"docs/api/{room}.md lacks {set(names) - set(found)}"


def test_every_name_of_the_package_has_an_entry():
    found = {entry for room in ROOMS for entry in entries(room)}
    missing = set(jaxsens.__all__) - found - set(ROOMS)
    assert not missing, f"docs/api has no entry for jaxsens.{', jaxsens.'.join(sorted(missing))}"


@pytest.mark.parametrize("room", ROOMS)
def test_every_entry_is_a_public_name(room):
    for entry in entries(room):
        module, _, name = f"jaxsens.{entry}".rpartition(".")
        assert name in importlib.import_module(module).__all__, entry
