"""Every public name has an entry in the API with an example, and every entry is a public name."""

import importlib
import inspect
import re

import pytest

import jaxsens
from tests.docs.blocks import ROOT, blocks_of

ROOMS = sorted(file.stem for file in ROOT.glob("docs/api/*.md") if file.stem != "index")
ENTRY = re.compile(r"^::: jaxsens\.([\w.]+)$", re.MULTILINE)

#: Names whose example is on another page, because it imports another framework.
ON_A_GUIDE = {
    f"adapters.{name}": "your_model"
    for name in ("torch", "embeddings", "equinox", "haiku", "keras")
}
#: Names without an example, and why.
WITHOUT = {
    "WorstCaseEstimate": "the example of worst_case shows one; a second would compile an ascent",
    "keep_compiled_programs": "changes settings of JAX for the whole process",
    "data.LabelledImages": "a name for a type",
    "reporting.Record": "a name for a type",
    "training.Objective": "a name for a type",
    "spectrum.NeuralTangentsMissingError": "raised only where neural-tangents is not installed",
    "training.TrainingDivergedError": "raised in the middle of a training",
    "training.DamagedCheckpointError": "raised for a checkpoint that was damaged",
    "training.OtherTrainingError": "raised for a checkpoint of another training",
}


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


def code_of(page):
    """All blocks of a page, as one text."""
    return "\n".join(block.code for block in blocks_of((ROOT / "docs" / page).read_text("utf-8")))


def has_an_example(room, entry):
    """Whether the docstring of an entry has a doctest, or a block of its page uses its name."""
    module, _, name = f"jaxsens.{entry}".rpartition(".")
    found = getattr(importlib.import_module(module), name)
    # That of an instance, such as a constant, would be the docstring of its class.
    described = inspect.isclass(found) or inspect.isfunction(found) or hasattr(found, "__wrapped__")
    if described and ">>> " in (found.__doc__ or ""):
        return True
    return re.search(rf"\b{name}\b", code_of(f"api/{room}.md")) is not None


@pytest.mark.parametrize("room", ROOMS)
def test_every_entry_has_an_example(room):
    elsewhere = ON_A_GUIDE.keys() | WITHOUT.keys()
    lacking = [e for e in entries(room) if e not in elsewhere and not has_an_example(room, e)]
    assert not lacking, (
        f"docs/api/{room}.md: no example of {', '.join(lacking)}; add one to the docstring, or to "
        "a block of Python of the page"
    )


@pytest.mark.parametrize("entry", ON_A_GUIDE)
def test_what_has_its_example_on_a_guide_has_it(entry):
    assert re.search(rf"\b{entry}\(", code_of(f"guides/{ON_A_GUIDE[entry]}.md"))


def test_what_is_said_to_have_no_example_is_there_and_has_none():
    room_of = {entry: room for room in ROOMS for entry in entries(room)}
    assert ON_A_GUIDE.keys() <= room_of.keys()
    assert not [entry for entry in WITHOUT if has_an_example(room_of[entry], entry)]
