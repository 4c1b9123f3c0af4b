"""Every block of Python on every page runs and prints what the page says."""

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks_of, check, output_of

#: Pages whose blocks are run by tests of their own.
OWN_TESTS = {
    "docs/developers/add_a_dataset.md": "tests/data/test_add_a_dataset.py",
    "docs/developers/add_a_rule.md": "tests/incremental/test_add_a_rule.py",
    "docs/developers/add_an_edit.md": "tests/perturbations/test_add_an_edit.py",
    "docs/developers/add_an_experiment.md": "tests/experiments/test_add_an_experiment.py",
}
#: Pages that take longer than a second or two.
SLOW = {
    "docs/guides/worst_case.md",
    "docs/guides/exact_reuse.md",
    "docs/guides/texts.md",
    "docs/guides/your_model.md",  # imports five frameworks
}


def pages_with_blocks():
    """The pages whose blocks are run here."""
    for file in sorted(ROOT.glob("docs/**/*.md")):
        name = file.relative_to(ROOT).as_posix()
        if name not in OWN_TESTS and blocks_of(file.read_text("utf-8")):
            yield pytest.param(file, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.mark.parametrize("page", [*pages_with_blocks()])
def test_a_page_prints_what_it_says(page):
    names: dict = {}
    left_out = []
    for block in blocks_of(page.read_text("utf-8")):
        if block.missing:
            left_out.append(block.missing)
            continue
        check(output_of(block, names, page), block)
    if left_out:
        pytest.skip(f"all but the blocks that need {', '.join(left_out)} were run")


def test_there_are_pages_and_every_fence_of_python_is_a_block():
    assert len([*pages_with_blocks()]) >= 12
    for file in ROOT.glob("docs/**/*.md"):
        text = file.read_text("utf-8")
        assert text.count("```python") == len(blocks_of(text)), file


@pytest.mark.parametrize("page", OWN_TESTS)
def test_pages_with_tests_of_their_own_have_them(page):
    assert Path(page).name in (ROOT / OWN_TESTS[page]).read_text("utf-8")


def test_promises_are_found_and_compared():
    page = "```python\nprint(1.5)  # 1.5\nprint(2)  # 2\n```\n\n    ```python\n    x = 1\n    ```\n"
    first, second = blocks_of(page)
    assert first.promised == "1.5\n2"
    assert second == Block("x = 1\n", None)
    check("1.501\n2", first)
    for wrong in ("1.51\n2", "1.5\n3", "1.5", "1.5\n2\nmore"):
        with pytest.raises(AssertionError):
            check(wrong, first)
    with pytest.raises(AssertionError):
        check("a line that the page does not show", second)


def test_a_block_of_text_is_what_the_code_prints():
    (block,) = blocks_of("```python\nprint('a\\nb')\n```\n\n```text\na\nb\n```\n")
    check(output_of(block, {}, Path("page.md")), block)
