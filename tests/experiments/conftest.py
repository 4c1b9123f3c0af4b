"""A tiny run of any experiment, in an empty folder and without data."""

import io
import json
import numbers

import pytest

import jaxsens
from jaxsens.core.files import write_atomic
from jaxsens.run import main


@pytest.fixture(autouse=True, scope="module")
def _drafts():
    """Saves PNGs alone: PDFs (tests/figures, and tests/cli for a whole run) take longest."""

    def draft(fig, folder, name):
        buffer = io.BytesIO()
        fig.savefig(buffer, format="png", dpi=80)
        return write_atomic(folder / f"{name}.png", buffer.getvalue())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxsens.figures, "save", draft)
        yield


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXSENS_DATA", raising=False)


@pytest.fixture
def check_claims():
    """`check_claims(claims)`: fails unless the fields of all claims (as JSON) are filled."""
    return _check_claims


def _check_claims(claims):
    assert claims
    for claim in claims:
        statement, values, interval = claim["statement"], claim["values"], claim["interval"]
        assert values, statement
        assert claim["decided_by"], statement
        # One interval decides, or several do: then they are among the values.
        if "interval" in claim["statement"] + claim["measured"]:
            assert interval is not None or any("interval" in name for name in values), statement
        if interval is not None:
            low, high = interval
            value = values[claim["decided_by"]]
            if isinstance(value, numbers.Real):
                assert low is None or low <= value, statement
                assert high is None or value <= high, statement
            assert claim["num_examples"] or claim["num_seeds"], statement


@pytest.fixture
def tiny_run(tmp_path, capsys):
    """`tiny_run(flags) -> (results, folder, what was printed)`; fails unless the run succeeds."""

    def run(flags: str):
        tiny = "--epochs 1 --evaluate-every 1 --num-train 100 --num-measured 10 --tolerance 0.2"
        assert main([*f"{flags} {tiny}".split(), "--workdir", "run"]) == 0
        folder = tmp_path / "run"
        results = json.loads((folder / "results.json").read_text())
        _check_claims(results["claims"])
        for figure in results["figures"]:
            assert (folder / figure["file"]).stat().st_size > 5_000
        return results, folder, capsys.readouterr().out

    return run
