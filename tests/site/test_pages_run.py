"""Every Python block of every page runs, in the order of the page, and prints what the page says.

A block behind ``<!-- not run: reason -->`` is left out: it needs a cluster, a GPU or weights.
"""

import importlib.util
import os
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"(?P<no><!-- not run: [^\n]+ -->\n)?^```(?P<kind>python|text)\n(?P<text>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
PAGES = [
    page
    for page in sorted(DOCS.glob("*.md"))
    if page.stem != "index" and "```python" in page.read_text(encoding="utf-8")
]
PEERS = ("catboost", "crepes", "lightgbm", "mapie", "skops", "torch", "xgboost")


def blocks(page):
    """The kind and the text of the blocks that run, or that say what was printed."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [(block["kind"], block["text"]) for block in found if not block["no"]]


def run(page, names, printed=lambda: ""):
    """Run the blocks of a page one after another, and compare what they print."""
    heard = ""
    for number, (kind, text) in enumerate(blocks(page), start=1):
        if kind == "text":
            assert heard == text
        else:
            exec(compile(text, f"{page.name}, block {number}", "exec"), names)
            heard = printed()
    return names


@pytest.mark.filterwarnings("ignore")  # of other libraries
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run(page, monkeypatch, tmp_path, capsys, request):
    code = "\n".join(text for kind, text in blocks(page) if kind == "python")
    for library in PEERS:
        asked = re.search(rf"^(import|from) {library}", code, re.MULTILINE)
        if asked and importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed: the page does not run")
    if "load_demand" in code:
        shared = os.environ.get("CALLIPER_DATA") or str(ROOT.parent / "shared" / "data")
        monkeypatch.setenv("CALLIPER_DATA", shared)
        if not (Path(shared) / "series").exists():
            pytest.skip(f"{shared} lacks the series: the page does not run")
    if any(kind == "text" for kind, _ in blocks(page)):
        request.getfixturevalue("all_trees")
    monkeypatch.chdir(tmp_path)  # some save what they made
    np.random.seed(0)  # noqa: NPY002 - pages leave random_state out, as people do
    names = run(page, {"__name__": "page"}, lambda: capsys.readouterr().out)
    if page.stem == "start":
        assert len(run(DOCS / "index.md", names)["lower"]) == len(names["y_new"])


def test_few_pages_and_few_words():
    pages = sorted(DOCS.glob("*.md"))
    assert len(pages) <= 25
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 25_000
    listed = (DOCS / "index.md").read_text(encoding="utf-8").splitlines()
    assert [page.stem for page in pages if page.stem not in listed] == ["index"]
