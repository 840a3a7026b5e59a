"""The page in a real browser: it opens, it obeys, and its numbers are those of the records."""

from __future__ import annotations

import json

import pytest
from comparisons import methods, points

from calliper.report.comparison import Points, compare
from calliper.report.page import Provenance, render_page

EVIL = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"


@pytest.fixture(scope="module")
def found():
    groups = [("left", EVIL, "$$x$$")[i % 3] for i in range(900)]
    return compare(
        points(500, seed=1), points(900, seed=2, ids=True), methods=methods(), groups=groups
    )


@pytest.fixture(scope="module")
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


def level(found, value):
    return f"input[name=level][value='{found.levels.index(value)}']"


def test_it_opens_without_complaint_and_asks_for_nothing(opened, path):
    assert opened.console() == []
    assert opened.requests() == [path.as_uri()]
    assert opened.js("performance.getEntriesByType('resource').length") == 0
    assert opened.js("document.querySelectorAll('.drawing > *').length") == 4


def test_the_level_changes_figures_and_numbers(opened, found):
    before = opened.source("widths_inside")
    assert opened.text("#headline") == found.verdict.headline
    for value in (0.5, 0.99):
        opened.choose(level(found, value), None)
        verdict = found.verdicts[found.levels.index(value)]
        assert opened.text("#headline") == verdict.headline
        assert opened.text("[data-verdict=covers]") == verdict.covers
        assert opened.text("[data-verdict=promise]") == verdict.promise
        after = opened.source("widths_inside")
        assert after["width"] != before["width"]
        part = opened.source("parts_focus")
        stored = next(
            p for p in found.parts
            if (p.method, p.level, p.by) == ("full", value, "prediction")
        )  # fmt: skip
        assert part["coverage"] == pytest.approx(100 * stored.table.coverage)
        assert part["n"] == stored.table.n.tolist()
    assert opened.console() == []


def test_the_method_changes_figures(opened, found):
    assert set(opened.source("parts_focus")["method"]) == {"full"}
    assert set(opened.source("parts_other")["method"]) == {"split"}
    opened.choose("select[name=focus]", found.methods.index("split"))
    opened.choose("select[name=other]", found.methods.index("jackknife"))
    assert set(opened.source("parts_focus")["method"]) == {"split"}
    assert set(opened.source("curve_other")["method"]) == {"jackknife"}
    assert len(set(opened.source("widths_inside")["width"])) < 5, "split has one width"
    assert "split" in opened.text("#words-points")
    opened.choose("select[name=other]", -1)
    assert opened.source("parts_other")["x"] == []
    assert opened.console() == []


def test_numbers_on_the_page_are_the_records(opened, found):
    machine = json.loads(found.to_json())
    for value in found.levels:
        opened.choose(level(found, value), None)
        for record in (r for r in machine["records"] if r["level"] == value):
            cells = opened.js(
                "[...[...document.querySelectorAll('#methods tbody tr')]"
                ".find((row) => row.dataset.method === arguments[0]).cells]"
                ".map((cell) => cell.textContent)",
                record["method"],
            )
            assert cells[2].startswith(f"{100 * record['coverage']:.1f}\u00a0%")
            if record["mean_width"] != "inf":
                shown = float(cells[3].replace(",", ""))
                assert shown == pytest.approx(record["mean_width"], rel=1e-3)
            assert ("use this" in cells[0]) == (
                found.verdicts[found.levels.index(value)].method == record["method"]
            )


def test_points_drawn_are_the_points(opened, found):
    opened.choose("#over", "feature:a")
    inside, outside = opened.source("points_inside"), opened.source("points_outside")
    answer = next(a for a in found.answers if a.method == "full")
    lower, upper = answer.at(0.9)
    for data, expected in ((inside, True), (outside, False)):
        for k, name in enumerate(data["id"]):
            i = found.test.ids.index(name)
            assert data["x"][k] == pytest.approx(found.test.Z[i, 0], rel=1e-6)
            assert data["lower"][k] == pytest.approx(lower[i], rel=1e-4, abs=1e-5)
            assert (lower[i] <= found.test.y[i] <= upper[i]) == expected
    assert f"{len(outside['id'])} of them lie outside" in opened.text("#words-points")


def test_every_choice_has_a_figure_and_words(opened):
    for selector, words in (("#by", "#words-parts"), ("#over", "#words-points")):
        for value in opened.js(
            f"[...document.querySelector('{selector}').options].map(o => o.value)"
        ):
            opened.choose(selector, value)
            assert len(opened.text(words)) > 40
    opened.choose("#by", "group:")
    assert len(opened.source("parts_focus")["x"]) == 3
    assert opened.js("document.querySelectorAll('#numbers-parts tbody tr').length") == 6
    assert opened.console() == []


def test_names_of_others_do_no_harm(opened):
    assert opened.js("window.harmed === undefined")
    opened.choose("#by", "group:")
    assert opened.js("window.harmed === undefined")
    assert EVIL in opened.text(".eyebrow") and EVIL in opened.text("#numbers-parts")
    assert opened.js("document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize("width", [320, 375, 800, 1400])
def test_nothing_runs_over_the_edge(browser, path, width):
    browser.open(path, width=width)
    browser.driver.execute_script(
        "document.querySelectorAll('details').forEach(d => d.open = true)"
    )
    assert browser.js("document.documentElement.scrollWidth") <= width
    widest = browser.js(
        "Math.max(...[...document.querySelectorAll('main > *, .panel, .drawing')]"
        ".map((element) => element.getBoundingClientRect().right))"
    )
    assert widest <= width + 0.5


def colours(browser):
    return browser.js(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
        "calliper.drawn.parts.figure.below[0].major_label_text_color,"
        "calliper.drawn.parts.figure.renderers[0].glyph.line_color.value]"
    )


def test_dark_changes_page_and_figures_at_once(opened):
    light = colours(opened)
    opened.scheme("dark")
    opened.wait(f"calliper.drawn.parts.figure.below[0].major_label_text_color !== '{light[2]}'")
    dark = colours(opened)
    assert all(a != b for a, b in zip(light, dark, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(browser, path, scheme):
    """Contrast of at least 4.5 : 1 for text, as WCAG asks for."""
    browser.open(path, scheme=scheme)
    pairs = [
        ("--text", "--paper"), ("--quiet", "--paper"), ("--quiet", "--panel"),
        ("--accent", "--paper"), ("--accent", "--panel"), ("--text", "--good-paper"),
        ("--warn", "--paper"), ("--void", "--void-paper"), ("--paper", "--accent"),
    ]  # fmt: skip
    for text, ground in pairs:
        first, second = (luminance(browser, name) for name in (text, ground))
        contrast = (max(first, second) + 0.05) / (min(first, second) + 0.05)
        assert contrast >= 4.5, (text, ground, contrast)


def luminance(browser, name):
    code = browser.js(
        "getComputedStyle(document.documentElement).getPropertyValue(arguments[0])", name
    )
    shares = [int(code.strip()[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in shares]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_keys_are_enough(opened, found):
    """The level by arrow keys, the order of the table by the return key."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    find = opened.driver.find_element
    find(By.CSS_SELECTOR, level(found, 0.9)).send_keys(Keys.ARROW_RIGHT)
    assert opened.js("calliper.values.levels[calliper.state.level]") == 0.95
    assert opened.text("[data-level]") == "95\u00a0%"
    find(By.CSS_SELECTOR, "#methods button[data-column='2']").send_keys(Keys.RETURN)
    order = opened.js(
        "[...document.querySelectorAll('#methods tbody tr')].map(r => r.dataset.method)"
    )
    assert order == sorted(order, key=lambda name: found.record(name, 0.95).mean_width)
    assert (
        opened.js("document.querySelector('th[aria-sort]').getAttribute('aria-sort')")
        == "ascending"
    )


def test_infinite_intervals_and_a_void_comparison_open_too(browser, tmp_path):
    few = points(15, seed=1)
    test = Points(few.Z, few.y, few.y_pred, None, few.feature_names)
    path = tmp_path / "void.html"
    path.write_text(render_page(compare(few, test, methods=methods(), coverage=0.99)), "utf-8")
    browser.open(path, width=375)
    assert "void" in browser.text("#headline") and "15 of 15 test rows" in browser.text(".void")
    assert browser.source("widths_inside")["width"] == []
    assert browser.console() == []
