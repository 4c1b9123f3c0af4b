"""The report holds every result, needs nothing from outside and escapes everything."""

import base64
import dataclasses
import html
import io
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import tyro
from PIL import Image

from jaxsens import figures
from jaxsens.reporting import example_maps, papers, report, report_parts
from jaxsens.reporting.example_maps import ExampleMap, ExampleMaps
from jaxsens.reporting.results import Claim, Figure, Results, Table
from jaxsens.reporting.run_folder import RunFolder

EVIL = "<script>alert(\"1\")</script> & 'x'"
CONFIG = {"epochs": 5, "sigma": 0.5, "model": {"depth": 2, "bias": False}, "label": EVIL}
PIXEL = np.zeros((2, 4, 1), np.uint8)
RESULTS = Results(
    experiment="fig4",
    title=f"Title {EVIL}",
    summary=f"Summary {EVIL}",
    claims=(
        Claim("ViT below CNN", "0.02 < 0.06", "0.03 < 0.05", True),
        Claim(f"claim {EVIL}", f"paper {EVIL}", f"ours {EVIL}", False),
    ),
    tables=(
        Table("Table one", ("model", f"ours {EVIL}"), (("ViT", 0.0312), (EVIL, None)), f"n {EVIL}"),
        Table("Table two", ("epoch", "acc"), ((1, 0.5),)),
    ),
    figures=(Figure("figures/a.png", f"Caption {EVIL}"), Figure("figures/b.png", "Caption b")),
    values={},
    config=CONFIG,
    environment={"python": "3.11", "device": EVIL},
    seconds=75.0,
)


@pytest.fixture
def folder(tmp_path):
    with RunFolder.open(tmp_path / "run", "fig4", CONFIG) as opened:
        for name, value in (("a", 0.1), ("b", 0.2)):
            figures.save(figures.bars(["ViT"], [value], [0.0], [1.0]), opened.figures, name)
        opened.write_results(RESULTS)
        yield opened


class Page(HTMLParser):
    """Every tag of a page with its attributes, and that all of them are closed in order."""

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def test_page_is_well_formed_and_the_same_every_time(folder):
    path = report.write(RESULTS, folder.path)
    assert path == folder.path / "report.html"
    text = path.read_text("utf-8")
    assert text == report.render(RESULTS, folder.path)
    page = Page(text)
    assert page.stack == []
    assert page.all("html") == [{"lang": "en"}]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(attributes["scope"] in ("col", "row") for attributes in page.all("th"))


def test_page_asks_nothing_from_outside(folder):
    text = report.render(RESULTS, folder.path)
    page = Page(text)
    assert not re.search(r"https?:|url\(|@import|//[a-z]", re.sub(r"base64,[^\"]*", "", text))
    assert not {"link", "iframe", "object", "base"} & {tag for tag, _ in page.tags}
    # The one script is the page's own, and inside it.
    assert page.all("script") == [{}]
    addresses = {k: [a[k] for _, a in page.tags if k in a] for k in ("src", "href", "srcset")}
    assert all(address.startswith("data:image/png;base64,") for address in addresses["src"])
    files = [a for a in addresses["href"] if not a.startswith("#")]
    assert all(a.startswith("data:text/csv;charset=utf-8;base64,") for a in files)
    assert not addresses["srcset"]
    (policy,) = [a["content"] for a in page.all("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_links_inside_the_page_lead_somewhere(folder):
    page = Page(report.render(RESULTS, folder.path))
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    inside = [a["href"][1:] for a in page.all("a") if a["href"].startswith("#")]
    assert {"claims", "tables", "figures", "reproduce", "cite"} == set(inside)
    assert set(inside) <= ids


def test_page_embeds_every_figure_with_its_caption(folder):
    page = Page(report.render(RESULTS, folder.path))
    images = page.all("img")
    assert [image["alt"] for image in images] == [figure.caption for figure in RESULTS.figures]
    for image, figure in zip(images, RESULTS.figures, strict=True):
        content = base64.b64decode(image["src"].partition(",")[2])
        assert content == (folder.path / figure.file).read_bytes()


def test_a_figure_of_many_pixels_keeps_half_as_many_on_a_phone(folder):
    Image.new("L", (1260, 540)).save(folder.figures / "a.png")
    divisions = Page(report.render(RESULTS, folder.path)).all("div")
    (wide,) = [each for each in divisions if each.get("class") == "wide"]
    assert wide["style"] == "--width: 630px"
    assert wide["aria-label"] == "Picture of figure 1"


def test_page_states_every_claim_and_number(folder):
    text = html.unescape(report.render(RESULTS, folder.path))
    for claim in RESULTS.claims:
        assert claim.statement in text
        assert claim.paper in text
        assert claim.measured in text
    for table in RESULTS.tables:
        for cell in (table.title, table.note, *table.columns, *sum(table.cells(), ())):
            assert cell in text
    verdicts = re.findall(r'class="badge">\S (.*?)<', text)
    assert verdicts == ["HOLDS", "DOES NOT HOLD"]
    assert "claims that hold: 1 of 2" in text
    assert "1 min 15 s" in text
    assert "model.depth" in text
    assert report.command("fig4", RESULTS.config) in re.sub("</?span>", "", text)


def test_everything_is_escaped(folder):
    text = report.render(RESULTS, folder.path)
    assert text.count("<script") == 1
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;") >= 12


def files_of(page):
    """The CSV files of a page, by name."""
    links = [a for a in page.all("a") if "download" in a]
    return {a["download"]: base64.b64decode(a["href"].partition(",")[2]).decode() for a in links}


def test_tables_and_figures_are_there_as_csv(folder):
    files = files_of(Page(report.render(RESULTS, folder.path)))
    assert files.keys() == {"table_1.csv", "table_2.csv", "a.csv", "b.csv"}
    assert files["table_2.csv"] == "epoch,acc\n1,0.5\n"
    assert files["table_1.csv"].splitlines()[1] == "ViT,0.0312"
    assert files["a.csv"] == (folder.figures / "a.csv").read_text()


def test_figures_of_earlier_runs_and_with_many_numbers_have_no_link(folder):
    (folder.figures / "a.csv").unlink()
    (folder.figures / "b.csv").write_bytes(b"x" * (report.MAX_CSV + 1))
    text = report.render(RESULTS, folder.path)
    assert files_of(Page(text)).keys() == {"table_1.csv", "table_2.csv"}
    assert "Its numbers are in <code>figures/b.csv</code>" in text
    assert "figures/a.csv" not in text


def test_claims_stand_under_their_groups(tmp_path):
    claims = [Claim(f"claim {i}", "p", "m", i < 2, group=f"group {i % 2}") for i in range(4)]
    small = dataclasses.replace(RESULTS, claims=tuple(claims), figures=())
    text = report.render(small, tmp_path)
    order = [text.index(f">{each}<") for each in ("claim 0", "claim 2", "claim 1", "claim 3")]
    assert order == sorted(order)
    assert re.findall(r"(group \d) <span>(.*?)</span>", text) == [
        ("group 0", "1 of 2"),
        ("group 1", "1 of 2"),
    ]


def test_the_page_says_what_to_cite(tmp_path):
    small = dataclasses.replace(RESULTS, figures=(), environment={"jaxsens": "7.8", "commit": "ab"})
    text = html.unescape(report.render(small, tmp_path, [papers.WORD_SENSITIVITY]))
    assert papers.WORD_SENSITIVITY.bibtex() in text
    assert "version = {7.8},\n  note = {commit ab}," in text
    assert "@misc" not in report.render(small, tmp_path)


def test_papers_are_those_of_the_citation_file():
    citation = (Path(__file__).parents[2] / "CITATION.cff").read_text("utf-8")
    for paper in (papers.SIMPLICITY_BIAS, papers.SENSITIVE_FUNCTIONS, papers.WORD_SENSITIVITY):
        for text in (paper.title, f"year: {paper.year}", f"arXiv {paper.arxiv}"):
            assert text in citation
        for author in paper.authors:
            family, _, given = author.partition(", ")
            named = f"family-names: {family}\n        given-names: {given}"
            assert (named if given else "name: et al.") in citation
    assert f'"{re.search("title = {(.*?)}", papers.software_bibtex("1"))[1]}"' in citation


IMAGES = ExampleMaps(
    "Where",
    tuple(
        ExampleMap(
            f"image {i}", {"ViT": (0.0, 0.4), EVIL: (None, 0.2)}, example_maps.png_uri(PIXEL)
        )
        for i in range(2)
    ),
    layout=(1, 2),
    note=f"Noise {EVIL}",
)
TEXTS = ExampleMaps(
    "Which words", (ExampleMap("text 0", {"LSTM": (0.5, None)}, tokens=(EVIL, " b")),)
)


def test_maps_are_shown_with_all_models_and_their_numbers(tmp_path):
    example_maps.write_maps(tmp_path, IMAGES, TEXTS)
    small = dataclasses.replace(RESULTS, figures=())
    text = report.render(small, tmp_path)
    page = Page(text)
    assert page.stack == []
    assert "<script>alert" not in text
    # Without script: every example, a picture, and for each model a map with a hint of the picture.
    assert len(page.all("img")) == 2 * (1 + 2 * 2)
    assert all("alt" in image for image in page.all("img"))
    (tokens,) = re.findall(r'<dd class="tokens">(.*?)</dd>', text)
    first, second = re.findall(r"<span(.*?)>(.*?)</span>", tokens)
    assert first[0] == ' style="--share: 1" title="0.5"'
    assert html.unescape(first[1]) == EVIL
    assert second == (' class="unmeasured"', " b")
    files = files_of(page)
    assert files["maps_1.csv"].splitlines()[:3] == [
        f'example,row,column,ViT,"{EVIL.replace(chr(34), chr(34) * 2)}"',
        "image 0,0,0,0.0,",
        "image 0,0,1,0.4,0.2",
    ]
    assert files["maps_2.csv"].endswith("text 0,1, b,\n")
    (data,) = re.findall(r'id="maps-data">(.*?)</script>', text)
    assert json.loads(data)[1]["examples"] == [{"tokens": [EVIL, " b"], "values": [[0.5, None]]}]


def test_the_colours_of_a_map_are_those_of_its_values():
    uri = report_parts.heat_uri(IMAGES.examples[0], "ViT", IMAGES)
    image = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
    assert [image.getpixel((x, 0)) for x in range(2)] == [(255, 245, 240), (103, 0, 13)]
    with pytest.raises(ValueError, match="maps of texts"):
        report_parts.heat_uri(TEXTS.examples[0], "LSTM", TEXTS)


def test_a_full_page_of_maps_stays_small(tmp_path):
    """As many examples as are kept, of five models on colour images."""
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 256, (24, 32, 32, 3), np.uint8)
    examples = [
        ExampleMap(
            f"image {i}",
            {f"model {m}": tuple(draws.random(64).round(4).tolist()) for m in range(5)},
            example_maps.png_uri(pixels[i]),
        )
        for i in range(24)
    ]
    example_maps.write_maps(tmp_path, ExampleMaps("Where", tuple(examples), (8, 8)))
    page = report.render(dataclasses.replace(RESULTS, figures=()), tmp_path)
    assert len(page) < 1_500_000


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [((True,), "hold: 1 of 1"), ((False,), "hold: 0 of 1"), ((), None)],
)
def test_header_counts_claims(tmp_path, verdicts, expected):
    claims = tuple(Claim("s", "p", "m", holds) for holds in verdicts)
    small = dataclasses.replace(RESULTS, claims=claims, tables=(), figures=(), environment={})
    text = report.render(small, tmp_path)
    assert Page(text).stack == []
    assert expected is None or expected in text
    assert ("Claims" in text) == bool(claims)


def test_a_lost_figure_is_named_and_nothing_is_written(folder):
    (folder.figures / "a.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.png"):
        report.write(RESULTS, folder.path)
    assert not (folder.path / "report.html").exists()


@dataclasses.dataclass(frozen=True)
class Model:
    depth: int = 1
    use_bias: bool = True


@dataclasses.dataclass(frozen=True)
class Config:
    num_epochs: int = 1
    sigma: float = 1.0
    shift: float = 0.0
    augment: bool = False
    data_dir: str | None = "x"
    label: str = ""
    widths: tuple[int, ...] = (1,)
    model: Model = dataclasses.field(default_factory=Model)


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(7, 1e-05, -0.25, True, None, "two words; $HOME 'x'", (8, 16), Model(3, False)),
        Config(widths=()),
    ],
)
def test_command_gives_back_the_config(config):
    words = shlex.split(report.command("fig4", dataclasses.asdict(config)))
    assert words[:5] == ["python", "-m", "jaxsens.run", "--exp", "fig4"]
    assert tyro.cli(Config, args=words[5:]) == config
