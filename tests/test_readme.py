"""The README's quick start runs as printed."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)


def test_there_are_examples():
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("code", BLOCKS)
def test_an_example_runs_and_prints_what_it_says(code, capsys):
    exec(compile(code, str(README), "exec"), {})
    printed = capsys.readouterr().out
    promised = re.search(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert promised is not None
    # A label may flip by rounding on another machine: words and sizes are exact, measured
    # digits near.
    got, expected = printed.strip(), promised[1]
    number = re.compile(r"\d\.\d+")
    assert number.sub("#", got) == number.sub("#", expected)
    measured = [[float(v) for v in number.findall(text)] for text in (got, expected)]
    assert measured[0] == pytest.approx(measured[1], abs=0.002)
