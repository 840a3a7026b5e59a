"""The page on distributions prints what it says."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "distributions.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("all_trees")
def test_the_example_prints_what_the_page_says(capsys):
    ((code, printed),) = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
    )
    exec(code, {})
    assert capsys.readouterr().out == printed
