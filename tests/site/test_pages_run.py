"""Every Python block of the pages that were written for the site runs, in the order of the page."""

import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "start.md", DOCS / "monitoring.md", *sorted((DOCS / "guide").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)


def run(page, names):
    """Run the blocks of a page one after another."""
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), start=1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore")  # of other libraries
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run(page, monkeypatch, tmp_path, request):
    monkeypatch.chdir(tmp_path)  # some save what they made
    if page.stem == "networks":
        pytest.importorskip("torch", reason="torch is not installed: its page does not run")
    if page.stem == "start":  # which says what it printed
        request.getfixturevalue("all_trees")
        np.random.seed(0)  # noqa: NPY002 - the page leaves random_state out, as people do
    names = run(page, {})
    if page.stem == "start":
        lower, upper, y_new = names["lower"], names["upper"], names["y_new"]
        printed = f"{((lower <= y_new) & (y_new <= upper)).mean():.0%} of {len(y_new)} new targets"
        assert printed in page.read_text(encoding="utf-8")
        assert len(run(DOCS / "index.md", names)["lower"]) == len(y_new)
