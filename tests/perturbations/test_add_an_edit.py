"""The page that says how to add an edit: its code runs and its tests pass."""

import re
from pathlib import Path

import pytest

from jaxsens.perturbations import CheckedEdit, Edit, FiniteEdit

PAGE = Path(__file__).parents[2] / "docs" / "developers" / "add_an_edit.md"


def test_the_code_of_the_page_runs_and_its_tests_pass():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 3
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    shade = names["Shade"]()
    assert all(isinstance(shade, kind) for kind in (Edit, FiniteEdit, CheckedEdit))
    with pytest.raises(ValueError, match="levels >= 2; got 1"):
        names["Shade"](levels=1)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()
