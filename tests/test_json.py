"""Strict JSON everywhere, infinity spelt one way, and intervals that come back to the last bit."""

import ast
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context

import calliper
from calliper import Boxes, CalliperError, Intervals

INF = np.inf
ends = st.floats(allow_nan=False, width=64)


def refuse(word):
    raise AssertionError(f"{word} is not strict JSON")


def strictly(text):
    return json.loads(text, parse_constant=refuse)


@st.composite
def intervals(draw):
    m, levels = draw(st.integers(0, 6)), draw(st.sampled_from([0, 1, 3]))
    shape = (m, levels) if levels else (m,)
    size = m * max(levels, 1)
    pairs = draw(st.lists(st.tuples(ends, ends).map(sorted), min_size=size, max_size=size))
    lower, upper = np.array(pairs, dtype=float).reshape(-1, 2).T.reshape(2, *shape)
    same = (lower == upper) & np.isinf(lower)
    lower[same], upper[same] = -INF, INF
    level = draw(st.floats(0.01, 0.99))
    labels = draw(st.sampled_from([None, [*range(m)], [f"row {i}" for i in range(m)]]))
    centre = draw(st.sampled_from([None, np.linspace(-1, 1 / 3, m)]))
    return Intervals(lower, upper, (level,) * levels if levels else level, labels, centre)


def bits(values):
    return np.asarray(values, dtype=np.float64).tobytes()


@given(intervals())
def test_intervals_come_back_to_the_last_bit(made):
    text = made.to_json()
    assert strictly(text) == made.to_dict()
    for source in (text, text.encode(), made.to_dict()):
        back = Intervals.from_json(source)
        assert bits(back.lower) == bits(made.lower) and bits(back.upper) == bits(made.upper)
        assert back.lower.shape == made.lower.shape
        assert (back.coverage, back.index) == (made.coverage, made.index)
        assert (back.centre is None) == (made.centre is None)
        assert made.centre is None or bits(back.centre) == bits(made.centre)


def test_no_bound_is_inf_in_text_and_labels_are_text_where_json_has_nothing_better():
    days = pd.date_range("2026-01-01", periods=2)
    made = Intervals([-INF, 0.5], [1.0, INF], 0.9, days)
    assert made.to_dict()["lower"] == ["-inf", 0.5] and made.to_dict()["upper"] == [1.0, "inf"]
    assert Intervals.from_json(made.to_json()).index == [str(day) for day in days]
    nested = Intervals([0.0], [1.0], 0.9, pd.MultiIndex.from_tuples([("a", np.int64(3))]))
    assert Intervals.from_json(nested.to_json()).index == [("a", 3)]


@pytest.mark.parametrize(
    "source", ["", "[]", "{}", '{"lower": [1], "upper": [0]}', '{"lower": ["x"], "upper": [1]}',
               '{"lower": [null], "upper": [1]}', '{"lower": 1, "upper": 2}', None],
)  # fmt: skip
def test_anything_else_is_refused(source):
    with pytest.raises(CalliperError, match=r"expected the output of Intervals\.to_json"):
        Intervals.from_json(source)


def test_frames_are_of_the_library_that_is_asked_for_or_that_scikit_learn_is_set_to():
    made = Intervals([0.0, 1.0], [2.0, INF], 0.9, ["a", "b"])
    boxes = Boxes((made, made), ("height", "weight"))
    for result in (made, boxes):
        assert isinstance(result.to_frame(), pd.DataFrame) and [*result.to_frame().index] == [
            "a",
            "b",
        ]
        with config_context(transform_output="polars"):
            found = result.to_frame()
            assert isinstance(result.to_frame("pandas"), pd.DataFrame)
        assert isinstance(found, pl.DataFrame)
        assert found.equals(result.to_frame("polars"))
        assert found.columns == [*result.to_frame().columns]
        np.testing.assert_array_equal(found.to_numpy(), result.to_frame().to_numpy())
    with pytest.raises(CalliperError, match="'pandas' or 'polars'; got 'arrow'"):
        made.to_frame("arrow")


def test_json_is_written_in_one_place():
    """Who calls ``json.dumps`` alone would spell infinity otherwise, or in no strict way."""
    source = Path(calliper.__file__).parent
    writers = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = getattr(node, "attr", "") in ("dump", "dumps")
            if named and getattr(node.value, "id", "") == "json":
                writers.add(path.relative_to(source).as_posix())
    # Of what is kept, a number without a JSON of its own is a node, {"float": "inf"}.
    assert writers == {"_writing.py", "files/_file.py"}


def test_no_stored_file_spells_infinity_otherwise():
    root = Path(__file__).parents[1]
    stored = [*root.glob("studies/experiments/**/*.json"), *root.glob("docs/**/*.json")]
    assert [path.name for path in stored if "Infinity" in path.read_text()] == []
