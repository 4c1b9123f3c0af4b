"""The page of benchmarks says what its data says."""

import pytest

from benchmarks import page


def test_the_page_has_the_tables_of_the_results():
    text = page.PAGE.read_text("utf-8")
    assert page.written(text) == text, "benchmarks/README.md is stale: run `make results`"


def test_only_what_stands_between_the_marks_is_replaced():
    marked = "".join(
        f"<!-- table: {name} -->\n\nwhat stood there\n\n<!-- end of table -->\n"
        for name in page.TABLES
    )
    made = page.written(f"before\n{marked}after\n")
    assert made.startswith("before\n<!-- table: sensitivity -->\n\n| model ")
    assert made.endswith("\n\n<!-- end of table -->\nafter\n")
    assert "what stood there" not in made
    assert "| forward pass, 1.1 to 45.8 MFLOP |" in made


@pytest.mark.parametrize("marks", ["", "<!-- table: other -->\n\nold\n\n<!-- end of table -->"])
def test_a_page_with_other_tables_is_refused(marks):
    with pytest.raises(ValueError, match="should have the tables sensitivity, again"):
        page.written(marks)


@pytest.mark.parametrize(
    ("ratio", "target", "verdict", "shown"),
    [
        (2.0, 1.5, "reached", "2.00× (target 1.5)"),
        (4.997, 5, "short by 0%", "5.00× (**target 5**)"),
        (0.9, 1 / 1.1, "the same program", "0.90×, same program"),
    ],
)
def test_a_missed_target_is_bold(ratio, target, verdict, shown):
    row = {"vs_torch": ratio, "torch_target": target, "torch_verdict": verdict}
    assert page._against(row, "torch") == shown
