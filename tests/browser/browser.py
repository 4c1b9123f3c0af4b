"""A real browser: Debian's chromium, headless, by selenium; where it is missing, tests skip."""

import json
import shutil
from pathlib import Path

import pytest

_AUDIT = Path(__file__).with_name("audit.js").read_text("utf-8")
_FOCUS = """
const reached = document.activeElement;
if (!reached || reached === document.body) return null;
reached.dataset.reached = "yes";
const style = getComputedStyle(reached);
const seen = style.outlineStyle !== "none" || style.boxShadow !== "none";
return { html: reached.outerHTML.slice(0, 120), seen };
"""
_CONTROLS = """
const kinds = "a[href], button, input, select, textarea, summary, [tabindex]";
return [...document.querySelectorAll(kinds)].filter((each) =>
  each.checkVisibility({ visibilityProperty: true }) && !each.disabled && each.tabIndex >= 0
  && !each.dataset.reached && !each.closest("[inert]")).map((each) => each.outerHTML.slice(0, 120));
"""
#: Roles that must say what they are; images are looked at by `audit.js`.
_NAMED = ("button", "link", "combobox", "searchbox", "textbox", "checkbox", "radio")


def start():
    """A browser that nobody sees."""
    pytest.importorskip("selenium", reason="the extra `browser` has selenium")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("Debian's packages chromium and chromium-driver are not installed")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


class Window:
    """A browser's window of some width, in light or dark.

    Args:
      browser: what `start` gave.
      width: in CSS pixels; below 600 it is a phone's.
      dark: whether the reader asks for dark colours.
    """

    def __init__(self, browser, width, dark=False):
        self.browser = browser
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, page):
        """Opens a file; logs of earlier pages are forgotten."""
        self.browser.get("about:blank")
        self.browser.get_log("browser"), self.browser.get_log("performance")
        self.browser.get(page.resolve().as_uri())
        return self

    def problems(self):
        """What `audit.js` finds, what the console says, and controls without a name."""
        found = self.browser.execute_script(_AUDIT)
        found += [f"console: {entry['message']}" for entry in self.browser.get_log("browser")]
        tree = self.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        for node in tree:
            role = node.get("role", {}).get("value")
            if role in _NAMED and not node["ignored"] and not node.get("name", {}).get("value"):
                found.append(f"a {role} without a name")
        return found

    def requests(self):
        """The addresses that were asked for since the page was opened."""
        messages = [
            json.loads(e["message"])["message"] for e in self.browser.get_log("performance")
        ]
        sent = [m for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [m["params"]["request"]["url"] for m in sent]

    def unreached(self, most=400):
        """The controls that Tab does not reach, and those reached whose focus cannot be seen."""
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.keys import Keys

        self.browser.execute_script("document.body.focus()")
        unseen, first = [], None
        for _ in range(most):
            ActionChains(self.browser).send_keys(Keys.TAB).perform()
            at = self.browser.execute_script(_FOCUS)
            if at is None or at["html"] == first:
                break
            first = first or at["html"]
            if not at["seen"]:
                unseen.append(f"focus is not shown: {at['html']}")
        return self.browser.execute_script(_CONTROLS) + unseen

    def run(self, script, *arguments):
        """What a script gives."""
        return self.browser.execute_script(script, *arguments)
