"""The page on judging intervals names every measure."""

from pathlib import Path

from calliper import metrics

PAGE = Path(__file__).parents[3] / "docs" / "judging-intervals.md"


def test_every_measure_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    measures = [name for name in metrics.__all__ if name[0].islower() and name != "interval_scorer"]
    assert [name for name in measures if f"`{name}" not in page] == []
