"""The page over all runs: what is on it, what damages it not, and what its script does."""

import html.parser
import json
import os
import re
import shutil
import subprocess

import pytest
from PIL import Image

from jaxsens import gallery
from jaxsens.reporting import run_cards
from jaxsens.reporting.results import Claim, Figure, Results


def finished(folder, *, seed=0, holds=True, command="", **changes):
    """A run folder as a finished run leaves it."""
    (folder / "figures").mkdir(parents=True)
    Image.new("RGBA", (900, 600), (0, 90, 200, 128)).save(folder / "figures" / "curve.png")
    config = {"dataset": "digits", "seed": seed, "model": {"width": 8 * (seed + 1)}}
    fields = {
        "title": "A <b>title</b>",
        "summary": "It ran.",
        "claims": (Claim("ViT < CNN", "–", "0.1 < 0.2", holds, {"difference": 0.1 + seed}),),
        "tables": (),
        "figures": (Figure("figures/curve.png", "A curve."),),
        "values": {"ViT": {"mean": 0.1 + seed, "per_position": [0.1, 0.2]}},
        "experiment": "vision",
        "config": config,
        "environment": {"commit": f"abc{seed}"},
        "seconds": 61.0 + seed,
        "command": command,
    }
    (folder / "results.json").write_text(Results(**fields | changes).to_json())
    (folder / "config.json").write_text(json.dumps({"experiment": "vision", "config": config}))
    (folder / "report.html").write_text("a report")


@pytest.fixture
def runs(tmp_path):
    command = "python -m jaxsens.run --exp vision --preset small --seed 1"
    finished(tmp_path / "vision" / "a")
    finished(tmp_path / "vision" / "b", seed=1, holds=False, command=command)
    begun = tmp_path / "vision" / "begun"
    begun.mkdir()
    (begun / "config.json").write_text('{"experiment": "vision", "config": {"dataset": "mnist"}}')
    return tmp_path


class Tags(html.parser.HTMLParser):
    """All tags with their attributes; unclosed ones are found at the end."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page_of(root):
    assert gallery.main([str(root)]) == 0
    return (root / "index.html").read_text("utf-8")


def test_every_run_is_on_the_page_with_what_it_says(runs, capsys):
    text = page_of(runs)
    assert capsys.readouterr().out.startswith("3 runs: 2 finished, 1 unfinished; page: ")
    for shown in (
        "vision/a",
        "vision/b/report.html",
        "small, changed",
        "abc1",
        "1 min 2 s",
        "0 of 1",
        "1 of 1",
        "mnist",
        "model.width",
        "ViT.mean",
        "ViT &lt; CNN",
        "A &lt;b&gt;title&lt;/b&gt;",
    ):
        assert shown in text, shown


def test_the_page_needs_nothing_but_itself(runs):
    tags = Tags(page_of(runs))
    assert not tags.open
    for tag, attributes in tags.tags:
        assert tag != "link"
        source = attributes.get("src")
        assert source is None or source.startswith("data:image/png;base64,")
        if tag == "a":
            target = attributes["href"]
            assert target.startswith("#run-") or (runs / target).is_file()
    pictures = [a for tag, a in tags.tags if tag == "img"]
    assert pictures
    assert all("alt" in a for a in pictures)


def test_the_same_folders_give_the_same_page(runs):
    assert page_of(runs) == page_of(runs)


def test_newest_runs_come_first(runs):
    os.utime(runs / "vision" / "a" / "results.json", (2e9, 2e9))
    cards = [run_cards.read_card(folder, runs) for folder in run_cards.find_runs(runs)]
    assert {card.folder for card in cards} == {"vision/a", "vision/b", "vision/begun"}
    first = re.search(r'<th scope="row"><a href="#run-0">(.*?)</a>', page_of(runs))
    assert first[1] == "vision/a"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results.json", ""),
        ("results.json", '{"claims": 5'),
        ("results.json", "[" * 200_000),
        ("results.json", "null"),
        ("results.json", b"\xff\xfe\x00"),
        ("config.json", "{"),
    ],
)
def test_damage_is_shown_as_damage(runs, name, content, capsys):
    folder = runs / "vision" / "begun"
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    text = page_of(runs)
    assert "1 damaged" in capsys.readouterr().out
    assert '<td class="damaged">damaged<span class="detail">' in text


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": "long"},
        {"environment": []},
        {"config": [1]},
        {"values": 3},
        {"title": None},
    ],
)
def test_parts_of_other_types_are_damage(runs, changes, capsys):
    file = runs / "vision" / "a" / "results.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    page_of(runs)
    assert "1 finished, 1 unfinished, 1 damaged" in capsys.readouterr().out


def test_figures_that_are_missing_outside_or_no_pictures_are_left_out(tmp_path):
    figures = tuple(
        Figure(file, "A curve.") for file in ("figures/no.png", "../../out.png", "figures/text.png")
    )
    finished(tmp_path / "runs" / "a", figures=figures)
    (tmp_path / "runs" / "a" / "figures" / "text.png").write_text("no picture")
    Image.new("RGB", (9, 9)).save(tmp_path / "out.png")
    assert "data:image" not in page_of(tmp_path / "runs").replace("img-src data:", "")


def test_failures_say_why(runs):
    (runs / "vision" / "begun.failed").write_text("training diverged (exit status 1)\n")
    assert '<td class="failed">failed<span class="detail">training diverged' in page_of(runs)


def test_what_a_run_says_is_never_code(tmp_path):
    finished(tmp_path / "a", title="</script><script>alert(1)</script>", summary="<img src=x>")
    text = page_of(tmp_path)
    assert "<script>alert" not in text
    assert "<img src=x>" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{root}/nowhere"], "is not a folder"),
        (["{root}/vision/a"], "is a run folder itself; give the folder above it"),
        (["{root}/empty"], "no run folder below"),
        (["{root}", "more"], "expected one folder RUNS; got 'more' as well"),
        (["--colour"], "expected one folder RUNS; got '--colour' as well"),
    ],
)
def test_bad_arguments_are_one_line(runs, words, message, capsys):
    (runs / "empty" / "deep").mkdir(parents=True)
    assert gallery.main([word.format(root=runs) for word in words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_page_of_somebody_else_is_kept(runs, capsys):
    (runs / "index.html").write_text("mine")
    assert gallery.main([str(runs)]) == 2
    assert "was not made by jaxsens.gallery" in capsys.readouterr().err
    assert (runs / "index.html").read_text() == "mine"


def test_configs_of_other_programs_are_no_runs(runs, capsys):
    (runs / "other").mkdir()
    (runs / "other" / "config.json").write_text('{"colour": "red"}')
    page_of(runs)
    assert capsys.readouterr().out.startswith("3 runs")


CLICKS = """
addEventListener("load", () => {
  const [first, second] = document.querySelectorAll("td input");
  first.click(); second.click();
  const heads = [...document.querySelectorAll("th button")];
  heads.find((b) => b.textContent === "took").click();
  const filter = document.getElementById("filter");
  filter.value = "finished"; filter.dispatchEvent(new Event("input"));
  document.title = document.getElementById("shown").textContent;
  filter.value = "finished abc1"; filter.dispatchEvent(new Event("input"));
});
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_the_script_sorts_filters_and_compares(runs, tmp_path):
    for name, when in (("a", 2e9), ("b", 1.9e9)):  # a and b come first
        os.utime(runs / "vision" / name / "results.json", (when, when))
    text = page_of(runs).replace("</body>", f"<script>{CLICKS}</script></body>")
    (tmp_path / "clicked.html").write_text(text)
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--enable-logging=stderr", f"file://{tmp_path}/clicked.html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "CONSOLE" not in done.stderr
    seen = done.stdout
    assert "1 of 3 shown" in seen
    assert "Configuration: 3 of 5 differ" in seen
    assert "Claims: 1 of 1 differ" in seen
    cells = "".join(f'<td class="number">{number}</td>' for number in ("0.1", "1.1", "1"))
    assert f"ViT.mean</th>{cells}" in seen
    assert "<title>2 of 3 shown</title>" in seen  # "finished" is not "unfinished"
    assert 'aria-sort="ascending"><button type="button">took' in seen
    body = seen[seen.index('id="table"') :]
    order = re.findall(r'<th scope="row"><a href="#run-\d">(.*?)</a>', body)
    assert order == ["vision/begun", "vision/a", "vision/b"]
