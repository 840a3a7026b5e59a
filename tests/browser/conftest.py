"""A real browser, without a screen and without a network."""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest

from calliper.lab.comparison import compare
from calliper.lab.report.page import Provenance, render_page
from cases.comparisons import methods, points

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
EVIL = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"
_MISSING = "{} was not found; on Debian: apt-get install chromium chromium-driver"


def _found(name: str, *others: str) -> str:
    for candidate in (name, *others):
        path = shutil.which(candidate)
        if path is not None:
            return path
    message = _MISSING.format(name)
    if os.environ.get("CALLIPER_REQUIRE_BROWSER") == "1":
        pytest.fail(message)
    pytest.skip(message)


class Browser:
    """A page in Chromium, and what it did."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def open(self, path, *, width=1200, scheme="light") -> None:
        self.resize(width)
        self.scheme(scheme)
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        self.driver.get(path.as_uri())
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def resize(self, width) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scheme(self, name) -> None:
        feature = {"name": "prefers-color-scheme", "value": name}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def js(self, expression, *values):
        return self.driver.execute_script(f"return {expression}", *values)

    def wait(self, condition, seconds=30) -> None:
        end = time.monotonic() + seconds
        while not self.js(condition):
            assert time.monotonic() < end, f"{condition} did not come true; {self.console()}"
            time.sleep(0.02)

    def choose(self, selector, value) -> None:
        """As a hand would: set the control and tell the page."""
        self.driver.execute_script(
            "const control = document.querySelector(arguments[0]);"
            "if (control.type === 'radio') control.click();"
            "else { control.value = arguments[1];"
            "control.dispatchEvent(new Event('change', {bubbles: true})); }",
            selector,
            str(value),
        )

    def console(self) -> list[str]:
        """What was complained about."""
        entries = self.driver.get_log("browser")
        return [e["message"] for e in entries if e["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened; data in the page has none."""
        events = (json.loads(e["message"])["message"] for e in self.driver.get_log("performance"))
        asked = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [address for address in asked if not address.startswith("data:")]

    def source(self, name) -> dict:
        """The data that a figure draws now."""
        return self.js(
            "Object.fromEntries(Object.entries(calliper.drawn[arguments[0].split('_')[0]].document"
            ".get_model_by_name(arguments[0]).data).map(([k, v]) => [k, Array.from(v)]))",
            name,
        )

    def text(self, selector) -> str:
        return self.js("document.querySelector(arguments[0]).textContent", selector)

    def level(self, found, value) -> None:
        """Ask for another coverage."""
        self.choose(f"input[name=level][value='{found.levels.index(value)}']", None)

    def cells(self, method) -> list[str]:
        """What the table says of a method, its name first."""
        return self.js(
            "[...[...document.querySelectorAll('#methods tbody tr')]"
            ".find((row) => row.dataset.method === arguments[0]).cells]"
            ".map((cell) => cell.textContent)",
            method,
        )


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    chromium, chromedriver = _found("chromium", "google-chrome"), _found("chromedriver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="session")
def found():
    groups = [("left", EVIL, "$$x$$")[i % 3] for i in range(900)]
    return compare(
        points(500, seed=1),
        points(900, seed=2, ids=True),
        methods=methods(),
        groups=groups,
        group_name="site",
    )


@pytest.fixture(scope="session")
def path(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(
        render_page(found, title=EVIL, provenance=Provenance(f"calliper {EVIL}")), "utf-8"
    )
    return path


@pytest.fixture
def opened(browser, path):
    browser.open(path)
    return browser
