"""Rows of any kind become finite numbers, each cell by itself, as training rows taught."""

import pickle
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import OneHotEncoder

from calliper import CalliperError
from calliper.space import _encoding as encoding
from calliper.space._encoding import Column, ColumnEncoder

rng = np.random.default_rng(0)


def column(values, y=None, **how):
    return ColumnEncoder.learn(pd.DataFrame({"x": pd.Series(values, **how)}), y)


def objects(cells):
    return np.fromiter(cells, dtype=object, count=len(cells))


def test_numbers_keep_their_values_and_gaps_take_the_median():
    holes = np.array([[1.0, np.nan, np.inf], [3.0, np.nan, -2.0], [np.nan, np.nan, 4.0]])
    for rows in (holes, holes.tolist(), holes.astype(object), pd.DataFrame(holes)):
        encode = ColumnEncoder.learn(rows)
        assert encode.kinds == ("numbers",) * 3
        np.testing.assert_array_equal(encode(rows), [[1, 0, 1e30], [3, 0, -2], [2, 0, 4]])
    texts = column(["1", "2.5", None, "4"])
    np.testing.assert_array_equal(
        texts([["7"], ["Bern"], [None], [10**400]]).ravel()[:3], [7, 2.5, 2.5]
    )
    nullable = column([1, None, 3], dtype="Int64")
    np.testing.assert_array_equal(nullable(pd.DataFrame({"x": [pd.NA, 5]})).ravel(), [2, 5])


def test_dates_are_days_whatever_they_come_in():
    days = pd.date_range("2020-01-01", periods=5)
    new = pd.Timestamp("2020-01-13 12:00")
    zurich = timezone(timedelta(hours=1))
    for train in (days, days.as_unit("ns"), days.tz_localize("UTC"), [d.date() for d in days]):
        encode = column(train)
        assert encode.kinds == ("times",)
        for cell in (new, new.to_pydatetime(), datetime(2020, 1, 13, 13, tzinfo=zurich)):
            assert encode(objects([cell])).ravel() == [10.5]
        assert encode(objects([date(2020, 1, 1)])).ravel() == [-2]
        np.testing.assert_array_equal(encode(objects([None, "soon", 3])).ravel(), 0)
    frame = pl.DataFrame({"x": pl.Series(days.to_list()).cast(pl.Date)})
    np.testing.assert_array_equal(ColumnEncoder.learn(frame)(frame).ravel(), range(-2, 3))
    durations = column([timedelta(days=i) for i in range(5)])
    assert durations(objects([timedelta(hours=60)])).ravel() == [0.5]


def test_levels_are_placed_by_their_mean_target():
    n = {"a": 5, "b": 40, "c": 100, "d": 4}
    means = {"a": 5.0, "b": 4.0, "c": 0.0, "d": 9.0}
    cells = [level for level in n for _ in range(n[level])]
    y = np.array([means[cell] for cell in cells])
    # By hand: a, of five rows, is drawn towards the mean by more than b.
    shrunk = {k: (n[k] * means[k] + 10 * y.mean()) / (n[k] + 10) for k in n}
    before, expected = 0, {}
    for level in sorted(n, key=shrunk.get):
        expected[level] = (before + n[level] / 2) / len(y)
        before += n[level]
    assert sorted(expected, key=expected.get) == ["c", "a", "b", "d"]
    found = column(cells, y)(objects(["a", "b", "c", "d", "new", None])).ravel()
    np.testing.assert_allclose(found[:4], [expected[k] for k in "abcd"])
    assert found[4] == found[5] == found[3]  # never seen is as good as rare
    by_frequency = column(cells)(objects(["c", "b", "x"])).ravel()
    np.testing.assert_allclose(by_frequency, [50 / 149, 120 / 149, 147 / 149])


def test_an_order_that_is_meant_is_kept():
    sizes = pd.Categorical(["L", "S", None, "M"] * 3, ["S", "M", "L"], ordered=True)
    encode = column(sizes, np.arange(12.0))
    np.testing.assert_array_equal(
        encode(objects(["S", "M", "L", "XL", None])).ravel(), [0, 1, 2, 1, 1]
    )


def test_ids_and_free_text_say_nothing():
    encode = column([f"id {i}" for i in range(50)], np.arange(50.0))
    assert np.ptp(encode(objects(["id 1", "id 7", "else"]))) == 0


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical, pl.Enum(["1", "2", "3"])])
def test_frames_of_both_kinds_agree(kind):
    cells, y = rng.choice(["1", "2", "3"], 90), rng.normal(size=90)
    as_pandas = pd.DataFrame({"k": pd.Categorical(cells), "z": y})
    as_polars = pl.DataFrame({"k": pl.Series(cells.tolist(), dtype=kind), "z": y})
    ours, theirs = ColumnEncoder.learn(as_pandas, y), ColumnEncoder.learn(as_polars, y)
    if kind is pl.String:  # text of numbers is numbers, categories of them are not
        assert theirs.kinds == ("numbers", "numbers")
        return
    np.testing.assert_array_equal(ours(as_pandas), theirs(as_polars))
    np.testing.assert_array_equal(ours(as_pandas), ours(as_polars))


def test_frames_go_by_name_and_arrays_by_position():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [5.0, 6.0]})
    encode = ColumnEncoder.learn(frame)
    np.testing.assert_array_equal(encode(frame[["b", "a"]].assign(more=0)), frame)
    np.testing.assert_array_equal(encode(frame.to_numpy()), frame)
    with pytest.raises(CalliperError, match=r"lack 1 of the 2 columns.*'b'"):
        encode(frame[["a"]])
    with pytest.raises(CalliperError, match="have 1 columns, but training rows 2"):
        encode(frame[["a"]].to_numpy())


@pytest.mark.parametrize(
    "rows",
    [
        ["Bern", "Basel"],
        [[1], [1, 2]],
        np.zeros((2, 2, 2)),
        np.zeros((2, 0)),
        pd.DataFrame(index=[0]),
    ],
)
def test_rows_without_columns_are_refused(rows):
    with pytest.raises(CalliperError, match="columns"):
        ColumnEncoder.learn(rows)


def test_sparse_rows():
    cells = rng.choice(list("abc"), (60, 2))
    onehot = OneHotEncoder().fit_transform(cells)
    np.testing.assert_array_equal(ColumnEncoder.learn(onehot)(onehot), onehot.toarray())
    wide = sparse.random_array((200, 2000), density=0.01, random_state=0, format="csr")
    encode = ColumnEncoder.learn(wide)
    features = encode(wide)
    assert features.shape == (200, 30) == (200, encode.n_features)
    np.testing.assert_allclose(encode(wide[7:8]), features[7:8], atol=1e-12)
    values = np.linalg.svd(wide.toarray(), compute_uv=False)
    np.testing.assert_allclose((features**2).sum(), (values[:30] ** 2).sum(), rtol=0.05)
    texts = [" ".join(rng.choice(list("abcdefghij"), 5) + "xy") for _ in range(100)]
    vectors = TfidfVectorizer().fit_transform(texts)
    assert np.isfinite(ColumnEncoder.learn(vectors)(vectors)).all()


def test_the_own_target_has_no_part_in_the_place_of_a_training_row():
    """Levels that mean nothing: an order by the target itself would foretell it."""
    seen, honest = [], []
    for seed in range(20):
        draw = np.random.default_rng(seed)
        rows = pd.DataFrame(
            {"k": draw.integers(0, 40, 300).astype(str), "z": draw.normal(size=300)}
        )
        rows["k"] = "k" + rows["k"]
        y = draw.normal(size=300)
        encode, features = ColumnEncoder.learn_and_encode(rows, y)
        seen.append(np.corrcoef(encode(rows)[:, 0], y)[0, 1])
        honest.append(np.corrcoef(features[:, 0], y)[0, 1])
        np.testing.assert_array_equal(features[:, 1], rows["z"])
    assert np.mean(seen) > 0.25 and np.mean(honest) < 0.05


def test_neither_pandas_nor_polars_is_needed():
    code = (
        "import sys; sys.modules.update(pandas=None, polars=None);"
        "from calliper.space._encoding import ColumnEncoder;"
        "encode = ColumnEncoder.learn([['a', 1.0]] * 9);"
        "assert encode([['b', None]]).tolist() == [[1.0, 1.0]]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pickling():
    encode = column(["a", "b"] * 9, np.arange(18.0))
    again = pickle.loads(pickle.dumps(encode))
    np.testing.assert_array_equal(again(objects(["a", "b"])), encode(objects(["a", "b"])))


CELLS = (
    st.sampled_from(["Bern", "1", "2.5", "nan", ""])
    | st.none()
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(UTC))
    | st.timedeltas()
    | st.just([1, 2])
    | st.just(pd.NA)
    | st.just(pd.NaT)
)
KINDS = st.sampled_from(
    [CELLS, st.floats(), st.integers(), st.sampled_from("abc") | st.none(), st.dates(), st.text()]
)


@settings(max_examples=80, deadline=None)
@given(
    KINDS.flatmap(lambda cell: st.lists(cell, min_size=1, max_size=12)),
    st.lists(CELLS, min_size=1, max_size=8),
    st.booleans(),
)
def test_a_row_is_the_same_in_any_company(train, new, known):
    train = train * 5
    encode = ColumnEncoder.learn(objects(train), np.arange(len(train)) % 7.0 if known else None)
    together = encode(objects(new))
    assert np.isfinite(together).all()
    alone = np.vstack([encode(objects([cell])) for cell in new])
    np.testing.assert_array_equal(alone, together)
    frame = pd.DataFrame({"x": pd.Series(new, dtype=object)})
    np.testing.assert_array_equal(encode(frame), together)


def test_rare_levels_are_one():
    learnt = Column.of_levels(
        ["a"] * encoding.FEWEST_OF_LEVEL + ["b"] * (encoding.FEWEST_OF_LEVEL - 1), None
    )
    assert list(learnt.places) == ["a"]
