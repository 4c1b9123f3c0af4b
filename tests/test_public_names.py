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


def test_rooms_are_imported_when_they_are_used():
    program = (
        "import sys, jaxsens; assert 'jaxsens.corruptions' not in sys.modules; "
        "assert len(jaxsens.corruptions.NAMES) == 18"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
