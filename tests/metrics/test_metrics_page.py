"""The page on measures prints what it says, and names every measure."""

from __future__ import annotations

import re
from pathlib import Path

from calliper import metrics

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_the_examples_print_what_the_page_says(capsys):
    names = {}
    for kind, block in re.findall(r"^```(python|text)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        if kind == "python":
            exec(block, names)
        else:
            assert capsys.readouterr().out == block


def test_every_measure_is_on_the_page():
    measures = [name for name in metrics.__all__ if name[0].islower() and name != "interval_scorer"]
    assert [name for name in measures if f"`{name}" not in PAGE] == []
