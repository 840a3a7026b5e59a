"""The table of methods in a real browser: its numbers, its order, and the keyboard."""

from __future__ import annotations

import json


def read(text):
    """A number as the table writes it: its value, and that of one in its last place."""
    text = text.split(" ±")[0].replace(",", "").replace("−", "-").removesuffix("\u00a0%")
    digits = text.partition("e")[0].partition(".")[2]
    return float(text), 10.0 ** -len(digits)


FIELDS = {
    "proved": 100, "coverage": 100, "mean_width": 1, "median_width": 1, "score": 1,
    "relative_score": 100, "worst_by_prediction": 100, "worst_by_width": 100, "tau_si": 1,
    "r2_sqi": 1, "fraction_infinite": 100, "seconds": 1,
}  # fmt: skip


def test_numbers_on_the_page_are_the_records(opened, found):
    """Every column, at every level, to the last digit shown."""
    machine = json.loads(found.to_json())
    for value in found.levels:
        opened.level(found, value)
        for record in (r for r in machine["records"] if r["level"] == value):
            name, *cells = opened.cells(record["method"])
            for text, (field, unit) in zip(cells, FIELDS.items(), strict=True):
                number = record[field]
                if number is None or number == "inf":
                    assert text == ("–" if number is None else "∞"), field
                elif text == "< −10":
                    assert number < -10
                else:
                    shown, step = read(text)
                    down = field == "proved"  # a promise is not rounded up
                    assert abs(shown - unit * number) <= (1 if down else 0.5001) * step, field
                    assert not down or shown <= unit * number + 1e-9
                if field in ("coverage", "score", "relative_score") and "±" in text:
                    error, step = read(text.split("± ")[1])
                    assert abs(error - unit * record[f"{field}_error"]) <= 0.5001 * step, field
            assert ("use this" in name) == (
                found.verdicts[found.levels.index(value)].method == record["method"]
            )


def test_keys_are_enough(opened, found):
    """The level by arrow keys, the order of the table by the return key."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    find = opened.driver.find_element
    find(By.CSS_SELECTOR, "input[name=level]:checked").send_keys(Keys.ARROW_RIGHT)
    assert opened.js("calliper.values.levels[calliper.state.level]") == 0.95
    assert opened.text("[data-level]") == "95\u00a0%"
    find(By.CSS_SELECTOR, "#methods button[data-column='2']").send_keys(Keys.RETURN)
    order = opened.js(
        "[...document.querySelectorAll('#methods tbody tr')].map(r => r.dataset.method)"
    )
    assert order == sorted(order, key=lambda name: found.record(name, 0.95).mean_width)
    assert sorted_by(opened) == ["ascending"]


def sorted_by(browser):
    return browser.js(
        "[...document.querySelectorAll('th[aria-sort]')].map((h) => h.getAttribute('aria-sort'))"
    )


def test_the_order_of_the_table_follows_the_level_and_has_a_way_back(opened, found):
    def order():
        return opened.js(
            "[...document.querySelectorAll('#methods tbody tr')].map((r) => r.dataset.method)"
        )

    def click(column):
        opened.js(f"document.querySelector(\"#methods button[data-column='{column}']\").click()")

    given = order()
    click(4)
    for value in found.levels:
        opened.level(found, value)
        assert order() == sorted(given, key=lambda name: found.record(name, value).score)
    click(6)  # coverage of the worst tenth: the best is the largest
    assert sorted_by(opened) == ["descending"]
    click(6)
    assert sorted_by(opened) == ["ascending"]
    click(6)
    assert sorted_by(opened) == [] and order() == given
