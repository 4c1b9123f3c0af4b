"""Recorded runs: what may be recorded, and pages that say what the data says."""

import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from jaxsens import record
from jaxsens.cli import flags
from jaxsens.reporting import recorded
from jaxsens.reporting.results import Claim, Figure, Results, Table
from jaxsens.run import load_experiment

ROOT = Path(__file__).parents[2]
RESULTS = Results(
    title="A run",
    summary="It ran.",
    claims=(
        Claim("a < b", "1 < 2", "1.0 against 2.0", True, {"a": 1.0, "b": 2.0}, "b − a", (0.5, 1.5)),
        Claim("c < d", "none", "3 against 3 | equal", False),
    ),
    tables=(Table("Numbers", ("model", "ours"), (("a", 1.0), ("b", 2.5)), "n=3."),),
    figures=(),
    values={"a": [0.25] * 10},
    experiment="vision",
    config={},
    environment={"commit": "abc1234", "num_cpus": 2, "cpu": "a processor", "jax": "0.10.2"},
    seconds=75.0,
    command="python -m jaxsens.run --exp vision --preset small --dataset mnist",
)


@pytest.fixture
def checkout(tmp_path):
    """A checkout with one experiment, and a finished run beside it."""
    (tmp_path / "experiments" / "vision").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    return tmp_path


def finished(checkout, **changes):
    file = checkout / "run" / "results.json"
    file.write_text(dataclasses.replace(RESULTS, **changes).to_json())
    return str(file.parent)


def test_a_recorded_run_is_its_results_and_shows_on_the_pages(checkout, capsys):
    (checkout / "experiments" / "vision" / "remarks.md").write_text("Chosen before.\n")
    assert record.main([finished(checkout)], checkout) == 0
    (file,) = (checkout / "experiments" / "vision" / "recorded").iterdir()
    assert file.name == "small-mnist.json"
    assert Results.from_json(file.read_text()) == RESULTS
    page = (checkout / "docs" / "results" / "vision.md").read_text()
    assert page.startswith(recorded.GENERATED)
    for shown in (
        "Chosen before.",
        "## small-mnist: A run",
        "abc1234",
        "| b | 2.5 |",
        r"3 against 3 \| equal",
    ):
        assert shown in page
    claims = (checkout / "docs" / "results" / "README.md").read_text()
    assert "2 claims of 1 runs; 1 hold, 1 do not" in claims
    assert "| [vision, small-mnist](#vision-small-mnist) | 1 | 1 | abc1234 |" in claims
    assert "| b − a: 0.5 to 1.5 (95 %) |" in claims
    assert "**does not hold**" in claims


def test_figures_are_kept_small_and_shown_with_their_captions(checkout):
    figures = (Figure("figures/a.png", "What a is."), Figure("figures/b.png", "What b is."))
    run = Path(finished(checkout, figures=figures))
    (run / "figures").mkdir()
    for name, size in (("a", (3000, 600)), ("b", (400, 300))):
        Image.new("RGBA", size).save(run / "figures" / f"{name}.png")
    assert record.main([str(run)], checkout) == 0
    folder = checkout / "docs" / "results"
    kept = sorted((folder / "figures" / "vision" / "small-mnist").iterdir())
    for file, size in zip(kept, ((1200, 240), (400, 300)), strict=True):
        with Image.open(file) as image:
            assert image.size == size
            assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    page = (folder / "vision.md").read_text()
    assert "](figures/vision/small-mnist/b.png)\n\n**Figure 2.** What b is." in page
    finished(checkout, figures=figures[:1])
    record.main([str(run)], checkout)
    assert [file.name for file in kept[0].parent.iterdir()] == ["a.png"]


def test_a_claim_with_another_verdict_than_before_is_shown_as_changed(checkout):
    record.main([finished(checkout)], checkout)
    claims = [dataclasses.replace(RESULTS.claims[0], holds=False), RESULTS.claims[1]]
    later = {"claims": tuple(claims), "environment": RESULTS.environment | {"commit": "def5678"}}
    assert record.main([finished(checkout, **later)], checkout) == 0
    folder = checkout / "docs" / "results"
    for page in ("README.md", "vision.md"):
        shown = (folder / page).read_text()
        assert "| a < b | **does not hold**; held in the record before (abc1234) |" in shown
        assert "| c < d | **does not hold** |" in shown
    # Recorded once more, it has changed nothing.
    record.main([finished(checkout, **later)], checkout)
    assert "before" not in (folder / "vision.md").read_text()


def test_a_record_may_take_the_place_of_another(checkout, capsys):
    record.main([finished(checkout)], checkout)
    figures = checkout / "docs" / "results" / "figures" / "vision"
    assert [each.name for each in figures.iterdir()] == ["small-mnist"]
    claims = (dataclasses.replace(RESULTS.claims[1], holds=True),)
    command = f"{RESULTS.command} --seeds 5"
    run = finished(checkout, command=command, claims=claims)
    assert record.main([run, "--instead-of", "small-mnist"], checkout) == 0
    recorded_runs = checkout / "experiments" / "vision" / "recorded"
    assert [file.name for file in recorded_runs.iterdir()] == ["small-mnist-seeds_5.json"]
    assert [each.name for each in figures.iterdir()] == ["small-mnist-seeds_5"]
    page = (checkout / "docs" / "results" / "vision.md").read_text()
    assert "| c < d | holds; did not hold in the record before (abc1234) |" in page
    assert record.main([run, "--instead-of", "quick"], checkout) == 2
    assert "quick.json does not exist" in capsys.readouterr().err


def test_long_values_stay_in_the_run_folder(checkout):
    record.main([finished(checkout, values={"a": [0.25] * 30_000})], checkout)
    (file,) = (checkout / "experiments" / "vision" / "recorded").iterdir()
    assert file.stat().st_size < 10_000
    assert Results.from_json(file.read_text()).claims == RESULTS.claims


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": {"commit": "abc1234+"}}, "commit abc1234+, with changes"),
        ({"environment": {}}, "made by no checkout"),
        ({"command": ""}, "does not say which command made it"),
    ],
)
def test_what_nobody_could_repeat_is_not_recorded(checkout, capsys, changes, message):
    assert record.main([finished(checkout, **changes)], checkout) == 2
    assert message in capsys.readouterr().err
    assert not (checkout / "experiments" / "vision" / "recorded").exists()


def test_an_unfinished_run_and_a_folder_that_is_no_checkout_are_refused(checkout, capsys):
    assert record.main([str(checkout / "run")], checkout) == 2
    assert "not the folder of a finished run" in capsys.readouterr().err
    assert record.main([], checkout / "run") == 2
    assert "not a checkout of jaxsens" in capsys.readouterr().err


def test_links_of_all_pages_lead_to_files():
    pages = [ROOT / "README.md", ROOT / "experiments" / "README.md", *ROOT.glob("docs/**/*.md")]
    assert len(pages) > 15
    for page in pages:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}"


def test_pages_of_the_repository_say_what_its_data_says():
    folder = ROOT / "docs" / "results"
    found = recorded.pages(ROOT / "experiments", folder / "figures")
    assert {file.name for file in folder.glob("*.md")} == set(found), "run `make results`"
    for name, text in found.items():
        assert (folder / name).read_text("utf-8") == text, f"{name} is stale: run `make results`"


@pytest.mark.parametrize("file", sorted(ROOT.glob("experiments/*/recorded/*.json")), ids=str)
def test_the_command_of_a_recorded_run_gives_its_config(file):
    results = recorded.RecordedRun.read(file).results
    assert file.parents[1].name == results.experiment
    assert file.stem == recorded.label_of(results.command)
    given = flags.split(shlex.split(results.command)[3:])
    _, config = flags.parse(load_experiment(results.experiment), given)
    assert json.loads(json.dumps(dataclasses.asdict(config))) == results.config
    assert results.environment["commit"].isalnum()
