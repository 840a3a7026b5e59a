"""The page in a real browser: it opens, it obeys, and its numbers are those of the records."""

from __future__ import annotations

import numpy as np
import pytest

from calliper import FullRescaled
from calliper.lab._words import number, percent
from calliper.lab.comparison import Points, compare
from calliper.lab.report.page import Provenance, render_page
from cases.comparisons import methods, points

pytestmark = pytest.mark.long


def test_it_opens_without_complaint_and_asks_for_nothing(opened, path):
    assert opened.console() == []
    assert opened.requests() == [path.as_uri()]
    assert opened.js("performance.getEntriesByType('resource').length") == 0
    assert opened.js("document.querySelectorAll('.drawing > *').length") == 4


def test_the_level_changes_figures_and_numbers(opened, found):
    before = opened.source("widths_inside")
    assert opened.text("#headline") == found.verdict.headline
    for value in (0.5, 0.99):
        opened.level(found, value)
        verdict = found.verdicts[found.levels.index(value)]
        assert opened.text("#headline") == verdict.headline
        assert opened.text("[data-verdict=covers]") == verdict.covers
        looked = verdict.method or "full"
        assert opened.text("#promise") == found.record(looked, value).guarantee
        after = opened.source("widths_inside")
        assert after["width"] != before["width"]
        part = opened.source("parts_focus")
        stored = next(
            p for p in found.parts
            if (p.method, p.level, p.by) == (looked, value, "prediction")
        )  # fmt: skip
        assert part["coverage"] == pytest.approx(100 * stored.table.coverage)
        assert part["n"] == [f"{n:,}" for n in stored.table.n]
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


def test_the_method_follows_the_recommendation_until_another_is_chosen(opened, found):
    assert found.verdicts[-1].method == "split" != found.verdict.method, "or this tests nothing"
    opened.level(found, 0.99)
    assert opened.js("calliper.values.methods[calliper.state.focus]") == "split"
    assert opened.text("#recommended") == "recommended"
    opened.choose("select[name=focus]", found.methods.index("jackknife"))
    assert opened.text("#recommended") == "recommended: split"
    assert opened.text("#promise") == found.record("jackknife", 0.99).guarantee
    opened.level(found, 0.9)
    assert opened.js("calliper.values.methods[calliper.state.focus]") == "jackknife"
    assert opened.text("#recommended") == "recommended: full"


def test_script_and_page_write_numbers_alike(opened):
    shares = [0.0, 1.0, 0.9, 0.8765, 0.9999, 0.99999, 0.1225, 1e-5, 0.05, 0.30049999]
    assert opened.js("arguments[0].map(calliper.percent)", shares) == [*map(percent, shares)]
    numbers = [0.0, -0.4567, 1234.5678, 1234567.0, 3.1, 1e-3, -98.76, 0.5]
    assert opened.js("arguments[0].map(calliper.number)", numbers) == [*map(number, numbers)]


def test_tenths_of_widths_are_told_by_number_and_groups_are_not_joined(opened):
    opened.choose("select[name=other]", 1)
    opened.choose("#by", "width:")
    axis = "calliper.drawn.parts.figure.below[0]"
    assert opened.js(f"[...{axis}.major_label_overrides.values()]") == [*map(str, range(1, 11))]
    lines = (
        "calliper.drawn.parts.figure.renderers.filter((r) => r.name.endsWith('line'))"
        ".map((r) => r.visible)"
    )
    assert opened.js(lines) == [True, True]
    opened.choose("#by", "group:site")
    assert opened.js(f"{axis}.axis_label") == "site" and opened.js(lines) == [False, False]
    assert opened.js("calliper.drawn.parts.figure.left[0].bounds") == [0, 100]


def test_drawings_are_no_stops_for_the_keyboard(opened):
    opened.wait(
        "(function all(list) { return list.flatMap((e) => [e.tabIndex >= 0 ? 1 : 0, "
        "...all([...e.children, ...(e.shadowRoot?.children ?? [])])]); })"
        "([...document.querySelectorAll('.drawing')]).reduce((a, b) => a + b, 0) === 0"
    )


def test_infinite_intervals_are_said_instead_of_drawn(browser, tmp_path):
    class Endless(FullRescaled):
        def predict_radius(self, Z, coverage=0.9, **how):
            return np.full((len(Z), len(coverage)), np.inf)

    found = compare(points(200, seed=1), points(80, seed=2), methods={"endless": Endless()})
    path = tmp_path / "endless.html"
    path.write_text(render_page(found), "utf-8")
    browser.open(path)
    browser.choose("select[name=focus]", 0)
    for name in ("widths", "points"):
        assert "is infinite" in browser.text(f"#nothing-{name}")
        assert browser.js(f"!document.getElementById('nothing-{name}').hidden")
    assert "infinite" in browser.cells("endless")[0]
    browser.choose("select[name=focus]", 1)
    assert browser.js("document.getElementById('nothing-points').hidden")
    assert browser.console() == []


def test_points_drawn_are_the_points(opened, found):
    opened.choose("#over", "feature:a")
    inside, outside = opened.source("points_inside"), opened.source("points_outside")
    answer = next(a for a in found.answers if a.method == "full")
    lower, upper = answer.at(0.9)
    for data, expected in ((inside, True), (outside, False)):
        for k, name in enumerate(data["id"]):
            i = found.test.ids.index(name)
            assert data["x"][k] == pytest.approx(found.test.Z[i, 0], abs=1e-6)
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
    opened.choose("#by", "group:site")
    assert len(opened.source("parts_focus")["x"]) == 3
    assert opened.js("document.querySelectorAll('#numbers-parts tbody tr').length") == 6
    assert opened.console() == []


def test_names_of_others_do_no_harm(opened, found):
    evil = next(group for group in found.groups if "script" in group)
    assert opened.js("window.harmed === undefined")
    opened.choose("#by", "group:site")
    assert opened.js("window.harmed === undefined")
    assert evil in opened.text(".eyebrow") and evil in opened.text("#numbers-parts")
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


def test_infinite_intervals_and_a_void_comparison_open_too(browser, tmp_path):
    few = points(15, seed=1)
    test = Points(few.Z, few.y, few.y_pred, None, few.feature_names)
    path = tmp_path / "void.html"
    path.write_text(render_page(compare(few, test, methods=methods(), coverage=0.99)), "utf-8")
    browser.open(path, width=375)
    assert "void" in browser.text("#headline") and "15 of 15 test rows" in browser.text(".void")
    assert browser.js("document.querySelectorAll('#methods .tag').length") == 0
    assert browser.js("getComputedStyle(document.querySelector('.panels')).opacity") < "0.5"
    assert browser.source("widths_inside")["width"] == []
    assert browser.console() == []


@pytest.mark.parametrize("width", [375, 1400])
def test_commands_break_between_words_only(browser, found, tmp_path, width):
    words = "calliper --calibration c.csv --features-prefix emb_ --method {method} --new n.csv"
    use = " ".join([words] * 5 + ["a-long-name-" * 20])
    path = tmp_path / "report.html"
    path.write_text(render_page(found, provenance=Provenance(use, use=use)), "utf-8")
    browser.open(path, width=width)
    torn = (
        "[...document.querySelectorAll('pre')].map((box) => {"
        "  const walk = document.createTreeWalker(box, NodeFilter.SHOW_TEXT), torn = [];"
        "  for (let node; (node = walk.nextNode()); )"
        "    for (const found of node.data.matchAll(/\\S+/g)) {"
        "      const range = document.createRange();"
        "      range.setStart(node, found.index);"
        "      range.setEnd(node, found.index + found[0].length);"
        "      if (range.getClientRects().length > 1) torn.push(found[0]);"
        "    }"
        "  return torn;"
        "})"
    )
    for verdict in (found.verdict, found.verdicts[-1]):  # as the page begins, and as it changes
        browser.level(found, verdict.level)
        assert browser.text("#use pre") == use.replace("{method}", verdict.method)
        assert browser.js(torn) == [["a-long-name-" * 20]] * 2, "only what fits no line is broken"
    assert browser.js("document.documentElement.scrollWidth") <= width
