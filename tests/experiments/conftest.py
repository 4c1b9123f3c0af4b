"""A tiny run of any experiment, in an empty folder and without data."""

import json

import pytest

from jaxsens.run import main


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXSENS_DATA", raising=False)


@pytest.fixture
def tiny_run(tmp_path, capsys):
    """`tiny_run(flags) -> (results, folder, what was printed)`; fails unless the run succeeds."""

    def run(flags: str):
        tiny = "--epochs 1 --evaluate-every 1 --num-train 100 --num-measured 10 --tolerance 0.2"
        assert main([*f"{flags} {tiny}".split(), "--workdir", "run"]) == 0
        folder = tmp_path / "run"
        results = json.loads((folder / "results.json").read_text())
        for figure in results["figures"]:
            assert (folder / figure["file"]).stat().st_size > 5_000
        return results, folder, capsys.readouterr().out

    return run
