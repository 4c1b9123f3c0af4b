"""Results: exact round trips through JSON, tables that read well."""

import math

import jax
import numpy as np
import pytest

from jaxsens.reporting.results import Claim, Figure, Results, Table


def some_results(**changes) -> Results:
    fields = {
        "experiment": "fig4",
        "title": "A <title> – σ",
        "summary": "One sentence.",
        "claims": (Claim("a < b", "1 < 2", "1.1 < 2.1", True), Claim("b < c", "2 < 3", "–", False)),
        "tables": (Table("t", ("model", "ours"), (("ViT", 0.1), ("CNN", None)), "note"),),
        "figures": (Figure("figures/fig4.png", "caption"),),
        "values": {"sensitivity": [0.1, 1 / 3, 5e-324, 1.7976931348623157e308], "n": 2**60},
        "config": {"epochs": 5, "widths": (8, 16), "model": {"depth": 2, "bias": True}},
        "environment": {"python": "3.11"},
        "seconds": 12.25,
    }
    return Results(**(fields | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"values": {"array": np.float32([0.1, 0.2]), "pair": (1, 2.5), "jax": jax.numpy.ones(())}},
        {"claims": (), "tables": (), "figures": ()},
    ],
)
def test_results_round_trip_exactly(changes):
    given = some_results(**changes)
    assert Results.from_json(given.to_json()) == given


def test_arrays_become_plain_numbers():
    values = {"array": np.float32([0.1, 0.2]), "pair": (1, 2.5), "jax": jax.numpy.float32(0.3)}
    assert some_results(values=values).values == {
        "array": [float(np.float32(0.1)), float(np.float32(0.2))],
        "pair": [1, 2.5],
        "jax": float(np.float32(0.3)),
    }


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", some_results().to_json().replace("summary", "summery")]
)
def test_text_that_is_not_results(text):
    with pytest.raises(ValueError, match="not the results of this version"):
        Results.from_json(text)


def test_non_finite_results_are_refused_by_name():
    with pytest.raises(ValueError, match=r"finite number for values\.a\.b, got nan"):
        some_results(values={"a": {"b": math.nan}})
    with pytest.raises(ValueError, match="finite number for table 'T'"):
        Table("T", ("x",), ((math.inf,),))


@pytest.mark.parametrize("file", ["/etc/fig.png", "figures/fig4.pdf"])
def test_figure_must_be_a_relative_png(file):
    with pytest.raises(ValueError, match="expected a PNG"):
        Figure(file, "caption")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1 (0.0 to 0.2)", True),
        ("2 of 3", True),
        ("0.9 (one run)", True),
        ("-1e-05 (−∞ to 1)", True),
        ("of 3", False),
    ],
)
def test_a_number_with_its_interval_is_numeric(text, expected):
    assert Table("T", ("x",), ((text,),)).numeric() == (expected,)


def test_table_as_text():
    rows = (("ViT", None, 0.0312, "0.03 ± 0.01"), ("CNN", 3, 0.5, "–"))
    table = Table("T", ("model", "n", "ours", "interval"), rows, "a note")
    assert table.numeric() == (False, True, True, True)
    assert table.as_text().splitlines() == [
        "T",
        "model  n    ours     interval",
        "-----  -  ------  -----------",
        "ViT    –  0.0312  0.03 ± 0.01",
        "CNN    3  0.5000            –",
        "a note",
    ]
    assert Table("", ("x",), ()).as_text() == "x\n-"


def test_table_keeps_small_numbers_readable():
    assert Table("", ("x",), ((1e-7,), (0.5,))).cells() == (("1e-07",), ("0.5",))
    assert Table("", ("x",), ((1234.5678,), (1.0,))).cells() == (("1235",), ("1",))


def test_table_with_a_short_row():
    with pytest.raises(ValueError, match="expected 2 cells in every row, got 1 in row 1"):
        Table("T", ("a", "b"), ((1, 2), (3,)))


# --- Environment ----------------------------------------------------------------------------------
