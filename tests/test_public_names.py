"""What `import jaxsens` offers."""

import subprocess
import sys

import pytest

import jaxsens


@pytest.mark.parametrize("name", jaxsens.__all__)
def test_every_public_name_is_there(name):
    assert getattr(jaxsens, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'jaxsens' has no attribute 'sensitivty'"):
        _ = jaxsens.sensitivty


@pytest.mark.parametrize("old", jaxsens._MOVED)
def test_modules_that_moved_are_there_under_their_old_names(old):
    with pytest.warns(DeprecationWarning, match=f"jaxsens.{old} is now {jaxsens._MOVED[old]}"):
        assert getattr(jaxsens, old).__name__ == jaxsens._MOVED[old]


@pytest.mark.parametrize("old", ["finite", "over_seeds"])
def test_functions_of_spectrum_are_there_under_their_old_names(old):
    new = jaxsens.spectrum._RENAMED[old]
    with pytest.warns(DeprecationWarning, match=f"{old} is now jaxsens.spectrum.{new}"):
        assert getattr(jaxsens.spectrum, old) is getattr(jaxsens.spectrum, new)
    with pytest.raises(AttributeError, match="no attribute 'infinite'"):
        _ = jaxsens.spectrum.infinite


def test_a_plain_import_offers_the_rooms_of_the_readme_and_loads_none():
    program = (
        "import sys, jaxsens; rooms = set(jaxsens._ROOMS); assert rooms <= set(dir(jaxsens)); "
        "assert not any(f'jaxsens.{room}' in sys.modules for room in rooms); "
        "assert callable(jaxsens.ragged_sensitivity) and callable(jaxsens.data.load); "
        "assert len(jaxsens.corruptions.NAMES) == 18"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
