"""The pages in a real browser: report, gallery, sweep and site, on a phone and on a desk.

No console message, no request that leaves the page, landmarks, alternative texts, names, contrast
in light and dark, every control within reach of the keyboard, nothing cut off.
"""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from jaxsens import figures, gallery, sweep
from jaxsens.reporting import papers, report
from jaxsens.reporting.example_maps import ExampleMap, ExampleMaps, png_uri, write_maps
from jaxsens.reporting.plain_json import plain
from jaxsens.reporting.results import Claim, Figure, Results, Table, grouped
from jaxsens.sweeps.cells import read_cells
from tests.browser.browser import Window, start
from tests.docs.blocks import ROOT
from tests.sweeps import fake_run

pytestmark = pytest.mark.slow
PHONE, DESK = 390, 1280
LOOKS = [(PHONE, False), (PHONE, True), (DESK, False), (DESK, True)]
LONG = "A statement that is long enough to be broken into several lines on the screen of a phone"


@pytest.fixture(scope="module")
def browser():
    found = start()
    yield found
    found.quit()


def some_results(seed=0, config=None):
    """Results with all that a report can show."""
    rows = tuple((f"model {i}", None if i == 2 else i / 7, f"{i} – {i + 1}") for i in range(4))
    return Results(
        title="Sensitivity to one patch: handwritten digits",
        summary="Of four models, one is the least sensitive.",
        claims=(
            *grouped("Orderings", [Claim(LONG, "0.02 < 0.06", "0.1 against 0.2", True)]),
            *grouped("Other things", [Claim("b < c", "–", "0.3 against 0.2", seed > 0)]),
        ),
        tables=(Table("All of the numbers", ("model", "measured", "95 % interval"), rows, "n=10"),),
        figures=(Figure("figures/bars.png", "Sensitivity, with 95 % intervals."),),
        values={"ViT": {"mean": 0.1 + seed}},
        experiment="vision",
        config=config or {"dataset": "digits", "seed": seed},
        environment={"commit": "abc1234", "jaxsens": "0.1.0", "platform": "Linux-" + "x" * 60},
        seconds=75.0,
        command="python -m jaxsens.run --exp vision --num-measured 60 --evaluate-every 1",
    )


def some_maps():
    draws = np.random.default_rng(0)
    images = [
        ExampleMap(
            f"image {i}",
            {name: tuple(draws.random(16).round(4).tolist()) for name in ("ViT", "CNN", "MLP")},
            png_uri(draws.integers(0, 256, (8, 8, 1), np.uint8)),
        )
        for i in range(3)
    ]
    words = ("<s>", "Is", " this", " a", " paraphrase", "?", "</s>")
    text = {"LSTM": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, None), "RoBERTa": (0.9,) * 7}
    return (
        ExampleMaps("Where the models are sensitive", tuple(images), (4, 4), "Noise on a patch."),
        ExampleMaps("Which words", (ExampleMap("text 0", text, tokens=words),), None, "Noise."),
    )


def write_run(folder, results, maps=()):
    figures.save(
        figures.bars(["ViT", "CNN"], [0.1, 0.2], [0.0, 0.1], [0.2, 0.3]), folder / "figures", "bars"
    )
    write_maps(folder, *maps)
    report.write(results, folder, [papers.SIMPLICITY_BIAS])
    (folder / "results.json").write_text(results.to_json())
    identity = {"experiment": results.experiment, "config": results.config}
    (folder / "config.json").write_text(json.dumps(identity))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report, a gallery and the page of a sweep, made from run folders."""
    root = tmp_path_factory.mktemp("pages")
    for seed in range(3):
        write_run(root / "runs" / "vision" / f"run{seed}", some_results(seed), some_maps())
    (root / "runs" / "vision" / "begun").mkdir()
    identity = '{"experiment": "vision", "config": {"dataset": "mnist"}}'
    (root / "runs" / "vision" / "begun" / "config.json").write_text(identity)
    assert gallery.main([str(root / "runs")]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        (root / "s.toml").write_text('experiment = "spectrum"\nseed = [0, 1, 2]')
        for cell in read_cells("s.toml", root / "sweep"):
            config = plain(cell.config, "")
            found = fake_run.results(int(config["seed"]), config)
            write_run(cell.folder, Results.from_json(json.dumps(found)))
        assert sweep.main(["s.toml", "--runs", "sweep", "--collect"]) == 0
    (swept,) = root.rglob("sweep-s.html")
    return {
        "report": root / "runs" / "vision" / "run0" / "report.html",
        "gallery": root / "runs" / "index.html",
        "sweep": swept,
    }


@pytest.mark.parametrize(("width", "dark"), LOOKS)
@pytest.mark.parametrize("name", ["report", "gallery", "sweep"])
def test_a_page_is_sound(pages, browser, name, width, dark):
    window = Window(browser, width, dark).open(pages[name])
    assert window.problems() == []
    others = [url for url in window.requests() if not url.startswith("data:")]
    assert others == [pages[name].resolve().as_uri()]


@pytest.mark.parametrize("name", ["report", "gallery", "sweep"])
def test_every_control_is_reached_by_tab(pages, browser, name):
    window = Window(browser, DESK).open(pages[name])
    assert window.unreached() == []


def test_tables_are_sorted_by_a_click(pages, browser):
    window = Window(browser, DESK).open(pages["report"])
    click = "document.querySelectorAll('table.sortable th button')[1].click()"
    read = (
        "return [...document.querySelectorAll('table.sortable tbody tr')]"
        ".map((row) => row.cells[1].textContent)"
    )
    assert window.run(f"{click}; {read}") == ["0.0000", "0.1429", "0.4286", "–"]
    assert window.run(f"{click}; {read}") == ["0.4286", "0.1429", "0.0000", "–"]


def test_examples_are_chosen_and_numbers_told(pages, browser):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    window = Window(browser, DESK).open(pages["report"])
    maps = some_maps()
    images, texts = browser.find_elements(By.CSS_SELECTOR, "section.maps")
    examples = images.find_elements(By.CSS_SELECTOR, ".example")
    assert [example.is_displayed() for example in examples] == [True, False, False]
    images.find_element(By.CSS_SELECTOR, "[data-step='1']").click()
    assert [example.is_displayed() for example in examples] == [False, True, False]

    def told(values, position):
        return ", ".join(f"{name} {float(f'{v[position]:.3g}'):g}" for name, v in values.items())

    heat = examples[1].find_element(By.CSS_SELECTOR, ".heat")
    left = 5 - heat.size["width"] // 2
    ActionChains(browser).move_to_element_with_offset(heat, left, 5).perform()
    output = images.find_element(By.TAG_NAME, "output")
    assert output.text == "row 3, column 1: " + told(maps[0].examples[1].values, 8)
    assert len(examples[1].find_elements(By.CSS_SELECTOR, ".mark")) == 3
    browser.execute_script("arguments[0].focus()", heat)
    ActionChains(browser).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN).perform()
    assert output.text == "row 4, column 2: " + told(maps[0].examples[1].values, 13)
    token = texts.find_elements(By.CSS_SELECTOR, ".tokens span")[4]
    ActionChains(browser).move_to_element(token).perform()
    assert texts.find_element(By.TAG_NAME, "output").text == "“paraphrase”: LSTM 0.8, RoBERTa 0.9"
    assert window.problems() == []


def test_two_runs_are_compared_and_runs_filtered(pages, browser):
    from selenium.webdriver.common.by import By

    window = Window(browser, DESK).open(pages["gallery"])
    for run in ("vision/run0", "vision/run1"):
        browser.find_element(By.CSS_SELECTOR, f"[aria-label='compare {run}']").click()
    captions = browser.find_elements(By.CSS_SELECTOR, "#comparison caption")
    assert [caption.text for caption in captions] == [
        "Configuration: 1 of 4 differ",
        "Claims: 1 of 2 differ",
        "Numbers: 1 of 1 differ",
    ]
    assert window.problems() == []
    browser.find_element(By.ID, "filter").send_keys("finished")
    assert browser.find_element(By.ID, "shown").text == "3 of 4 shown"


def test_without_script_every_example_is_shown(pages, browser):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(pages["report"].resolve().as_uri())
        from selenium.webdriver.common.by import By

        examples = browser.find_elements(By.CSS_SELECTOR, ".example")
        assert [example.is_displayed() for example in examples] == [True] * 4
        assert not browser.find_element(By.CSS_SELECTOR, ".chooser").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_problems_are_found(tmp_path, browser):
    """The tests above can fail."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<title></title><main><h1>a</h1><h3>b</h3><p style='color:#999'>pale</p>"
        "<div style='width:3000px'>wide</div><img src='data:,'><button></button>"
        "<a href='#x' style='outline:none'>unseen</a>"
        "<script>console.error('oh'); new Image().src = 'http://127.0.0.1:9/x.png'</script></main>"
    )
    window = Window(browser, PHONE).open(page)
    found = "\n".join(window.problems())
    for expected in (
        "names no language",
        "no title",
        "level 3 after one of level 1",
        "contrast 2.85",
        "cut off at the right",
        "an image without alt",
        "a button without a name",
        "console: ",
    ):
        assert expected in found
    assert any("127.0.0.1" in url for url in window.requests())
    (unseen,) = window.unreached()
    assert unseen.startswith("focus is not shown: <a")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="`make docs` installs mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


SITE = ["index", "install", "guides/what_sensitivity_is", "guides/your_model", "results/index"]
SITE += ["results/benchmarks", "results/vision", "api/measurement", "developers/index"]
SITE += ["tutorials/vit_and_cnn"]


@pytest.mark.parametrize(("width", "dark"), LOOKS)
@pytest.mark.parametrize("name", SITE)
def test_a_page_of_the_site_is_sound(site, browser, name, width, dark):
    page = site / f"{name}.html"
    window = Window(browser, width, dark).open(page)
    assert window.problems() == []
    outside = [u for u in window.requests() if not re.match(r"data:|blob:", u)]
    assert all(url.startswith(site.resolve().as_uri()) for url in outside)


def test_search_works_from_a_disk(site, browser):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    window = Window(browser, DESK).open(site / "index.html")
    browser.find_element(By.CSS_SELECTOR, "input[data-md-component=search-query]").click()
    browser.switch_to.active_element.send_keys("tolerance")
    found = WebDriverWait(browser, 30).until(
        lambda page: page.find_elements(By.CSS_SELECTOR, ".md-search-result__item a")
    )
    assert any("tolerance" in each.get_attribute("href") for each in found)
    outside = [url for url in window.requests() if not re.match(r"data:|blob:|file:", url)]
    assert outside == []
