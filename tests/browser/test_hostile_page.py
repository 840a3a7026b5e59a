"""Names and values of strangers on the page, from their file to the browser, stay text."""

from __future__ import annotations

import csv
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.long

HARM = "window.harmed=1"
#: Each would run if it stood unescaped in an element, an attribute, a script, a formula or a
#: template; the last ones look like something else than they are.
HOSTILE = [
    f"<script>{HARM}</script>",
    f"</script></title></style><svg onload={HARM}>",
    f"<img src=x onerror={HARM}>",
    f"<!--<script>{HARM}//",
    f'" autofocus onfocus="{HARM}" x="',
    f"' onmouseover='{HARM}' onload='{HARM}",
    f"javascript:{HARM}",
    f"<a href=javascript:{HARM}>",
    f"$$\\href{{javascript:{HARM}}}{{x}}$$",
    f"{{{{ 7 * 7 }}}}{{% include 'x' %}}${{{HARM}}}",
    f"@y{{safe}} @{{id}}<script>{HARM}</script>",
    f"&lt;script&gt;{HARM}&#60;/script&#62;",
    f"\u2028{HARM}\u2029//",
    "\u202elmth.\u2066txt",
    "\uff1cscript\uff1e\u200b\u00ad\U000e0041",
    "=cmd()|'/C calc'!A0",
]
TARGET, PREDICTION, GROUP, ID = HOSTILE[1], HOSTILE[4], HOSTILE[8], HOSTILE[11]
FEATURES = [HOSTILE[0], HOSTILE[9]]


def write(path, n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 2))
    y = x[:, 0] * rng.normal(size=n)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*FEATURES, TARGET, PREDICTION, GROUP, ID])
        for i in range(n):
            name = HOSTILE[i % len(HOSTILE)]
            rows.writerow([*x[i], y[i], 0.0, name, f"{name} {i}"])


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report by the command line on files whose every name is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    names = [f"<img src=x onerror={HARM}>.csv", f'" onload="{HARM} \'.csv']
    for seed, name in enumerate(names):
        write(folder / name, 480, seed)
    report = folder / f"<script>{HARM};.html"
    options = {
        "--calibration": names[0], "--test": names[1], "--target": TARGET, "--group": GROUP,
        "--prediction": PREDICTION, "--features": ",".join(FEATURES), "--id": ID,
        "--output": report.name,
    }  # fmt: skip
    words = [word for pair in options.items() for word in pair]
    run = [sys.executable, "-m", "calliper", "compare", *words]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return report, names


def test_nothing_of_it_runs_and_all_of_it_is_shown(browser, page):
    report, names = page
    browser.open(report)
    browser.driver.execute_script(
        "document.querySelectorAll('details').forEach((d) => (d.open = true))"
    )
    shown = "document.body.innerText.replaceAll('\\u2060', '')"
    for name in names:
        assert name in browser.text(".repeat table.files")
    for selector in ("#by", "#over"):
        every = f"[...document.querySelectorAll('{selector} option')].map((o) => o.value)"
        for value in browser.js(every):
            browser.choose(selector, value)
    titles = browser.js("[...document.querySelectorAll('#by option')].map((o) => o.textContent)")
    assert all(any(name in title for title in titles) for name in (GROUP, *FEATURES))
    browser.choose("#by", f"group:{GROUP}")
    cells = browser.js(
        "[...document.querySelectorAll('#numbers-parts tbody th')].map((c) => c.textContent)"
    )
    assert set(cells) == {name.strip() for name in HOSTILE}  # as groups are read everywhere
    points = browser.text("#numbers-points")
    assert any(name in points for name in HOSTILE)
    assert "window.harmed=1" in browser.js(shown)
    assert_unharmed(browser, report)


@pytest.mark.parametrize(("figure", "x", "y"), [("points", "x", "y"), ("widths", "width", "error")])
def test_the_text_under_the_pointer_is_text(browser, page, figure, x, y):
    """Tooltips are written by the drawing library, from ids of strangers."""
    report, _ = page
    browser.open(report)
    browser.js(f"document.getElementById('figure-{figure}').scrollIntoView({{block: 'center'}})")
    data = browser.source(f"{figure}_inside")
    images = [i for i, name in enumerate(data["id"]) if name.startswith("<img")][:4]
    assert images, "or this tests nothing"
    seen = [text for i in images for text in hovered(browser, figure, data[x][i], data[y][i])]
    assert any(f"<img src=x onerror={HARM}>" in text for text in seen), seen
    assert_unharmed(browser, report)


def hovered(browser, name, x, y):
    """What the tooltips of a figure say with the pointer at this point of its data."""
    place = browser.js(
        "(() => { const view = Object.values(Bokeh.index)"
        ".flatMap((v) => [v, ...(v.child_views ?? [])])"
        ".find((v) => v.model === calliper.drawn[arguments[0]].figure);"
        "const box = view.el.getBoundingClientRect(), frame = view.frame ?? view;"
        "return [box.left + frame.x_scale.compute(arguments[1]),"
        " box.top + frame.y_scale.compute(arguments[2])]; })()",
        name, x, y,
    )  # fmt: skip
    move = {"type": "mouseMoved", "x": place[0], "y": place[1]}
    browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", move)
    browser.wait(f"{DEEP}('.bk-tooltip-content').length > 0", seconds=5)
    return browser.js(f"{DEEP}('.bk-tooltip-content').map((tip) => tip.textContent)")


#: Elements that match, also those inside of drawings, which are trees of their own.
DEEP = (
    "((css) => (function all(node) { return [...(node.matches?.(css) ? [node] : []), "
    "...[...node.children, ...(node.shadowRoot?.children ?? [])].flatMap(all)]; })(document.body))"
)


def assert_unharmed(browser, report):
    """No script of theirs ran or could, nothing was fetched, and the page did not complain."""
    assert browser.js("window.harmed === undefined")
    assert browser.js(f"{DEEP}('img, iframe, object, embed, base')") == []
    handlers = (
        f"{DEEP}('*').filter((e) => [...e.attributes]"
        ".some((a) => a.name.startsWith('on') || /javascript:/.test(a.name === 'href' && a.value)))"
        ".length"
    )
    assert browser.js(handlers) == 0
    assert browser.requests() == [report.as_uri()]
    assert browser.console() == []
