"""The README's examples run as printed, and it stays short enough for two minutes."""

import pytest

from tests.docs.blocks import ROOT, blocks_of, check, output_of

README = ROOT / "README.md"
BLOCKS = blocks_of(README.read_text("utf-8"))


def test_there_are_examples_that_promise_something():
    assert BLOCKS
    assert all(block.promised for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_an_example_runs_and_prints_what_it_says(block):
    if block.missing:
        pytest.skip(f"{block.missing} is not here")
    check(output_of(block, {}, README), block)


def test_it_is_read_in_two_minutes():
    assert len(README.read_text("utf-8").split()) < 900
