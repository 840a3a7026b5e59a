"""The site as a reader meets it: both themes, phone and desktop, without a complaint."""

import pytest

pytestmark = pytest.mark.usefixtures("site")  # before a browser is started in vain

WIDTHS = (375, 768, 1280)
PAGES = (
    "index.html",
    "start.html",
    "your-model.html",
    "choosing-a-method.html",
    "judging-intervals.html",
    "command-line.html",
    "guarantees.html",
    "evidence.html",
    "paper.html",
    "gallery/index.html",
    "gallery/plot_03_widths_follow_the_error.html",
    "reference/index.html",
    "reference/generated/calliper.ConformalRegressor.html",
    "reference/generated/calliper.exceptions.UnscaledFeaturesWarning.html",
)
#: Text that is cut off at the edge of the page; what scrolls by itself is not.
CUT = (
    "[...document.querySelectorAll('.bd-article h1, .bd-article h2, .bd-article p')]"
    ".filter((e) => !e.closest('table, pre, .highlight') && e.scrollWidth > e.clientWidth + 1)"
    ".map((e) => e.textContent)"
)


def visit(browser, address, page, *, width=1280, theme="light"):
    browser.resize(width)
    browser.driver.get_log("browser")
    browser.driver.get(address + page)
    browser.driver.execute_script(
        "localStorage.setItem('mode', arguments[0]); localStorage.setItem('theme', arguments[0])",
        theme,
    )
    browser.driver.refresh()
    browser.wait("document.readyState === 'complete'")


def complaints(browser):
    return [message for message in browser.console() if "favicon" not in message]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_and_do_not_complain(browser, address, page, theme):
    visit(browser, address, page, theme=theme)
    assert browser.js("document.documentElement.dataset.theme") == theme
    for width in WIDTHS:
        browser.resize(width)
        assert browser.js("document.documentElement.scrollWidth") <= width, f"{page} at {width}"
        assert browser.js(CUT) == [], f"{page} at {width}"
    assert complaints(browser) == []
    broken = "[...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)"
    assert browser.js(broken) == []


def test_links_are_followed(browser, address):
    visit(browser, address, "index.html")
    browser.driver.execute_script("document.querySelector('.sd-card a[href*=start]').click()")
    browser.wait("document.title.startsWith('Start')")
    browser.driver.execute_script("document.querySelector('a[href*=\"your-model\"]').click()")
    browser.wait("document.title.startsWith('Your model')")
    assert complaints(browser) == []


@pytest.mark.parametrize("word", ["XGBoost", "FullRescaled", "groups"])
def test_search_finds(browser, address, word):
    visit(browser, address, "index.html")
    browser.driver.get(f"{address}search.html?q={word}")
    browser.wait("/found \\d+ pages/.test(document.querySelector('#search-results').textContent)")
    assert complaints(browser) == []


def test_code_can_be_copied(browser, address):
    visit(browser, address, "start.html")
    browser.wait("document.querySelectorAll('button.copybtn').length >= 4")
