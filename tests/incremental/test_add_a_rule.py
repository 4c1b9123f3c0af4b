"""The page that says how to add a rule: its code runs, its tests pass, a second rule is refused."""

import inspect
import re
from pathlib import Path
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsens import Tokens
from jaxsens.incremental import rules
from jaxsens.incremental.rules.rule_call import PREPARATIONS, RULES, RuleCall

PAGE = Path(__file__).parents[2] / "docs" / "developers" / "add_a_rule.md"


@pytest.fixture(autouse=True)
def _forgotten():
    """What a test registers is gone after it."""
    with mock.patch.dict(RULES), mock.patch.dict(PREPARATIONS):
        yield


def test_the_code_of_the_page_runs_and_its_tests_pass(compare):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 2
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert RULES["rev"] is names["reverse"]
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test(*[compare] * len(inspect.signature(test).parameters))


def test_a_wrong_rule_is_found_by_the_tests_of_the_page():
    text = PAGE.read_text("utf-8").replace(
        "np.flip(layout.reachable,", "np.roll(layout.reachable, 1,"
    )
    names: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
        exec(compile(block, str(PAGE), "exec"), names)
    with pytest.raises(AssertionError):
        names["test_every_value_on_the_way_is_right"]()


def test_every_file_of_rules_is_imported():
    registered = {each.__module__.rpartition(".")[2] for each in RULES.values()}
    files = {file.stem for file in Path(rules.__file__).parent.glob("*.py")}
    assert files - {"__init__", "rule_call"} <= registered


def test_an_operation_has_one_rule():
    with pytest.raises(ValueError, match=r"tanh has a rule already: .*elementwise"):
        rules.rule("tanh")(RuleCall.densely)


def test_what_is_prepared_reaches_the_rule(compare):
    seen = []

    @rules.rule("rev", prepare=lambda operation, inputs: inputs[0].sum())
    def rule(call: RuleCall):
        seen.append(call.prepared)
        return call.densely()

    compare(lambda _, x: jnp.flip(x, axis=1).sum(axis=2), np.ones((4, 2), np.float32), Tokens())
    assert seen
    assert all(each.shape == () for each in seen)
