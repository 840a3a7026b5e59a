from math import nan

import pytest

from studies.experiments.deutschmann2024.config import TASKS
from studies.experiments.deutschmann2024.methods import PAPER_METHODS
from studies.experiments.deutschmann2024.reasons import REASONS, reason_of
from studies.experiments.deutschmann2024.verdict import (
    Value,
    Verdict,
    is_far_below,
    paper_values,
    parse,
)

FAR = parse("≪ 0")


@pytest.mark.parametrize(
    ("printed", "mean", "error"),
    [
        ("0.952(6)", 0.952, 0.006),
        ("0.99993(6)", 0.99993, 0.00006),
        ("9(1)", 9.0, 1.0),
        ("-0.004(6)", -0.004, 0.006),
        ("1.65(9)e2", 165.0, 9.0),
    ],
)
def test_printed_values_are_read_and_written_back(printed, mean, error):
    value = parse(printed)
    assert (value.mean, value.error) == pytest.approx((mean, error))
    if "e" not in printed:
        assert str(value) == printed


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="expected a value such as"):
        parse("about one")


@pytest.mark.parametrize(
    ("paper", "ours", "mark"),
    [
        (Value(1.0, 0.3), Value(1.49, 0.4), "✓"),  # hypot(0.3, 0.4) = 0.5
        (Value(1.0, 0.3), Value(1.51, 0.4), "▲"),
        (Value(1.0, 0.3), Value(0.49, 0.4), "▼"),
        (Value(1.0, 0.1), Value(1.05, nan), "✓"),
        (Value(1.0, 0.1), Value(nan, nan), "–"),
        (FAR, Value(-2.5, 3.0), "✓"),
        (FAR, Value(-1.9, 0.1), "▲"),
        (FAR, Value(-100.0, 1.0, far_below=True), "✓"),
        (Value(0.5, 0.1), Value(-100.0, 1e6, far_below=True), "▼"),
    ],
)
def test_verdicts(paper, ours, mark):
    assert Verdict(paper, ours).mark == mark


def test_far_below_is_for_one_column_and_needs_more_than_its_uncertainty():
    assert is_far_below("r2_sqi", -3.0, 0.9)
    assert not is_far_below("r2_sqi", -3.0, 1.1)
    assert not is_far_below("tau_si", -3.0, 0.1)


def test_all_printed_rows_are_there():
    values = paper_values()
    for name, task in TASKS.items():
        for n in task.n_calibration:
            for method in PAPER_METHODS:
                absent = name == "mnist" and method in ("MADSplit, Median", "LVD, base")
                assert ((name, n, method, "tau_si") in values) is not absent


def test_the_supplement_corrects_the_main_table():
    assert str(paper_values()["one_dimensional", 2000, "MADSplit, KNN", "mean_width"]) == "0.184(2)"


def test_every_row_has_a_reason_ready_and_every_reason_a_row():
    letters = {reason_of(task, n, method).letter for task, n, method, _ in paper_values()}
    assert letters | {"g"} == {reason.letter for reason in REASONS}


def test_the_narrower_reason_speaks_first():
    assert "prints for N = 2,000" in reason_of("one_dimensional", 2000, "LVD, base").text
    assert "metric" in reason_of("one_dimensional", 500, "LVD, base").text
