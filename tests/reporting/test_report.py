"""The report holds every result, needs nothing from outside and escapes everything."""

import base64
import dataclasses
import html
import re
import shlex
from html.parser import HTMLParser

import pytest
import tyro

from jaxsens import figures
from jaxsens.reporting import report
from jaxsens.reporting.results import Claim, Figure, Results, Table
from jaxsens.reporting.run_folder import RunFolder

EVIL = "<script>alert(\"1\")</script> & 'x'"
CONFIG = {"epochs": 5, "sigma": 0.5, "model": {"depth": 2, "bias": False}, "label": EVIL}
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
    assert not {"script", "link", "iframe", "object", "base"} & {tag for tag, _ in page.tags}
    addresses = [a[k] for _, a in page.tags for k in ("src", "href", "srcset") if k in a]
    assert all(address.startswith("data:image/png;base64,") for address in addresses)


def test_page_embeds_every_figure_with_its_caption(folder):
    page = Page(report.render(RESULTS, folder.path))
    images = page.all("img")
    assert [image["alt"] for image in images] == [figure.caption for figure in RESULTS.figures]
    for image, figure in zip(images, RESULTS.figures, strict=True):
        content = base64.b64decode(image["src"].partition(",")[2])
        assert content == (folder.path / figure.file).read_bytes()


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
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 12


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
