"""Any rows as finite numbers, by what training rows teach: each kind of column, each container."""

import pickle
import warnings
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from calliper import CalliperError
from calliper.embedding import _encoding as encoding
from calliper.embedding._encoding import ColumnEncoder, Levels, Nothing, Numbers, Times

N = 60
rng = np.random.default_rng(0)
Y = rng.normal(size=N)
TOWNS = np.repeat(["Bern", "Basel", "Genf"], [10, 20, 30])
MEANS = np.repeat([5.0, -5.0, 0.0], [10, 20, 30])  # Basel < Genf < Bern
PLACES = {"Basel": 10 / 60, "Genf": 35 / 60, "Bern": 55 / 60}


def filled(train, rows):
    """What ``calliper.embedding`` makes of numbers with gaps: the oracle."""

    def number(cell):
        try:
            return float(cell)
        except TypeError:
            return np.nan

    def numbers(values):
        if hasattr(values, "detach"):
            values = values.detach().cpu().numpy()
        table = np.asarray(values).reshape(-1, 1) if getattr(values, "ndim", 2) == 1 else values
        try:
            return np.asarray(table, dtype=np.float64)
        except (TypeError, ValueError):
            cells = np.asarray(table, dtype=object)
            return np.array([number(cell) for cell in cells.ravel()]).reshape(cells.shape)

    columns = [column[~np.isnan(column)] for column in numbers(train).T]
    medians = np.array([np.median(known) if len(known) else 0.0 for known in columns])
    features = numbers(rows)
    return np.clip(np.where(np.isnan(features), medians, features), -1e30, 1e30)


def same_bits(found, expected):
    assert found.dtype == expected.dtype == np.float64
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))


def encoded(train, rows, y=None):
    """One column, learnt and asked."""
    features = ColumnEncoder.learn(train, y)(rows)
    assert features.shape[1] == 1 and np.isfinite(features).all()
    return features[:, 0]


# Numbers


def with_gaps(dtype=np.float64):
    X = rng.normal(size=(41, 5)) * [1, 1e8, 1e-8, 1e31, 1]
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    X[:, 4] = np.nan
    X[:3, 0] = [np.inf, -np.inf, -0.0]
    return X.astype(dtype)


NUMERIC = {
    "array": with_gaps(),
    "float32": with_gaps(np.float32),
    "whole numbers": rng.integers(-9, 9, size=(41, 3)),
    "large": rng.integers(2**62, 2**63 - 1, size=(41, 2)).astype(np.uint64),
    "bools": rng.uniform(size=(41, 2)) < 0.5,
    "Fortran": np.asfortranarray(with_gaps()),
    "one dimension": with_gaps()[:, 0],
    "objects": with_gaps().astype(object),
    "lists": with_gaps().tolist(),
    "text that is numbers": rng.normal(size=(41, 2)).astype(str),
    "tensor": torch.tensor(with_gaps(np.float32), requires_grad=True),
    "pandas": pd.DataFrame(with_gaps(), columns=list("abcde")),
    "pandas, mixed": pd.DataFrame(
        {
            "f": with_gaps(np.float32)[:, 0],
            "i": rng.integers(99, size=41),
            "b": rng.uniform(size=41) < 0.5,
            "n": pd.array([1, None, *range(39)], dtype="Int64"),
            "t": pd.array([True, None, *[False] * 39], dtype="boolean"),
            "o": [Decimal("1.5"), None, Fraction(1, 3), *range(38)],
        }
    ),
    "pandas, a name twice": pd.DataFrame(with_gaps(), columns=list("aabbc")),
    "Arrow in pandas": pd.DataFrame({"a": pd.array([1.5, None, 2] * 9, dtype="float64[pyarrow]")}),
    "Series": pd.Series(with_gaps()[:, 0]),
    "polars": pl.DataFrame(with_gaps(), schema=list("abcde")),
    "polars, mixed": pl.DataFrame(
        {
            "f": pl.Series([1.5, None, np.nan] * 9, dtype=pl.Float32),
            "i": pl.Series([1, None, 3] * 9, dtype=pl.Int8),
            "b": [True, None, False] * 9,
            "n": [None] * 27,
        }
    ),
}


@pytest.mark.filterwarnings("ignore:invalid value")  # the oracle's median of −∞ and ∞
@pytest.mark.parametrize("rows", NUMERIC.values(), ids=NUMERIC)
def test_numbers_are_as_they_were(rows):
    """To the bit what it was before categories were taken, with targets and without."""
    n = len(rows)
    for y in (None, rng.normal(size=n)):
        encode = ColumnEncoder.learn(rows, y)
        assert set(encode.kinds) == {"numbers"} and not encode.ignored
        same_bits(encode(rows), filled(rows, rows))
        same_bits(encode(rows[:7]), filled(rows, rows[:7]))


@settings(max_examples=100)
@given(
    st.lists(
        st.lists(st.floats(width=64) | st.none() | st.integers(), min_size=3, max_size=3),
        min_size=1,
        max_size=12,
    )
)
def test_any_numbers(rows):
    array = np.array([[np.nan if c is None else c for c in row] for row in rows], dtype=np.float64)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = filled(array, array)
    expected[np.isnan(expected)] = 0.0  # where the median lies between −∞ and ∞
    same_bits(ColumnEncoder.learn(array)(array), expected)
    same_bits(ColumnEncoder.learn(rows)(rows), expected)


def test_numbers_by_another_name():
    for column in (
        [Decimal("1.5"), Decimal(4), None],
        ["1.5", " 4 ", None],
        [b"1.5", b"4", None],
        [Fraction(3, 2), np.float32(4), pd.NA],
        pd.array([1.5, 4, None], dtype="Float64"),
    ):
        frame = pd.DataFrame({"x": column})
        np.testing.assert_array_equal(encoded(frame, frame), [1.5, 4, 2.75])
    decimals = pl.DataFrame({"x": [Decimal("1.5"), Decimal(4), None]})
    np.testing.assert_array_equal(encoded(decimals, decimals), [1.5, 4, 2.75])
    wide = pl.DataFrame({"x": pl.Series([1, 2**70, None], dtype=pl.Int128)})
    np.testing.assert_array_equal(encoded(wide, wide), [1, 2.0**70, 2.0**69])


def test_what_is_no_number_among_numbers_is_a_gap():
    train = pd.DataFrame({"x": [1.0, 2, 9]})
    cells = ["7", "seven", None, pd.NA, pd.NaT, [1, 2], datetime(2024, 1, 1), 10**400, -(10**400)]
    found = encoded(train, pd.DataFrame({"x": pd.Series(cells, dtype=object)}))
    np.testing.assert_array_equal(found, [7, 2, 2, 2, 2, 2, 2, 1e30, -1e30])
    dates = pd.DataFrame({"x": pd.to_datetime(["2024-01-01", None])})
    np.testing.assert_array_equal(encoded(train, dates), [2, 2])


def test_a_median_between_infinities_is_zero():
    rows = np.array([[np.inf], [-np.inf], [np.nan]])
    np.testing.assert_array_equal(encoded(rows, rows), [1e30, -1e30, 0])


# Levels


def town_columns():
    yield "text", pd.DataFrame({"t": TOWNS})
    yield "object", pd.DataFrame({"t": TOWNS.astype(object)})
    yield "string", pd.DataFrame({"t": pd.array(TOWNS, dtype="string")})
    yield "category", pd.DataFrame({"t": pd.Categorical(TOWNS)})
    yield "Series", pd.Series(TOWNS, dtype="category")
    yield "U", TOWNS[:, None]
    yield "one dimension", TOWNS
    yield "list", [[town] for town in TOWNS.tolist()]
    yield "polars", pl.DataFrame({"t": TOWNS})
    yield "polars Categorical", pl.DataFrame({"t": pl.Series(TOWNS, dtype=pl.Categorical)})
    yield "polars Enum", pl.DataFrame({"t": pl.Series(TOWNS, dtype=pl.Enum(sorted(PLACES)))})
    yield "polars Series", pl.Series(TOWNS)


@pytest.mark.parametrize(("kind", "rows"), list(town_columns()))
def test_levels_are_in_order_of_their_mean_target(kind, rows):
    expected = [PLACES[town] for town in TOWNS]
    np.testing.assert_allclose(encoded(rows, rows, MEANS), expected, rtol=1e-15)
    np.testing.assert_allclose(encoded(rows, rows[::3], MEANS), expected[::3], rtol=1e-15)
    assert ColumnEncoder.learn(rows, MEANS).kinds == ("levels",)


def test_levels_without_targets_are_in_order_of_frequency():
    expected = {"Genf": 15 / 60, "Basel": 40 / 60, "Bern": 55 / 60}
    found = encoded(TOWNS, TOWNS)
    np.testing.assert_allclose(found, [expected[town] for town in TOWNS], rtol=1e-15)
    np.testing.assert_array_equal(encoded(TOWNS, np.array(["Thun"])), [1.0])  # after all of them


def test_ties_do_not_depend_on_the_order_of_rows():
    rows = np.repeat(["c", "a", "b"], 10)
    for order in (slice(None), slice(None, None, -1)):
        for y in (None, np.zeros(30)):
            encode = ColumnEncoder.learn(rows[order], y)
            found = encode(np.array(["a", "b", "c"]))[:, 0]
            np.testing.assert_allclose(found, [1 / 6, 3 / 6, 5 / 6])


def test_means_of_rare_levels_are_shrunken():
    """Five rows of mean 3 stand at 1, behind forty of mean 2 which stand at 1.6."""
    rows = np.repeat(["few", "many", "rest"], [5, 40, 95])
    y = np.repeat([3.0, 2.0, -1.0], [5, 40, 95])
    assert y.mean() == 0
    few, many, rest = encoded(rows, np.array(["few", "many", "rest"]), y)
    assert rest < few < many


def test_rare_and_unseen_levels_share_a_place_by_the_mean_of_the_rare():
    rows = np.array(["a"] * 20 + ["b"] * 20 + [f"rare {i // 4}" for i in range(40)])
    y = np.repeat([0.0, 2.0, 1.0], [20, 20, 40])
    a, b, rare, unseen = encoded(rows, np.array(["a", "b", "rare 3", "new"]), y)
    assert (a, rare, b) == (10 / 80, 40 / 80, 70 / 80)
    assert rare == unseen


def test_unseen_levels_are_at_the_overall_mean_if_none_is_rare():
    low, unseen, high = encoded(TOWNS, np.array(["Basel", "Thun", "Genf"]), MEANS)
    assert low < unseen == 20 / 60 < high  # ȳ = −5/6 is between −5 and 0


def test_missing_is_a_level_of_its_own():
    for gap in (None, np.nan, pd.NA, pd.NaT, float("nan")):
        column = np.array([*TOWNS, *[gap] * 6], dtype=object)
        y = np.append(MEANS, [-99] * 6)
        first, second = encoded(column, np.array([None, "Basel"], dtype=object), y)
        assert (first, second) == (3 / 66, 16 / 66)
        new = pd.DataFrame({0: pd.Series([None, "Basel"], dtype="category")})
        np.testing.assert_array_equal(encoded(column, new, y), [first, second])
        new = pl.DataFrame({"0": pl.Series([None, "Basel"], dtype=pl.Categorical)})
        np.testing.assert_array_equal(encoded(column, new, y), [first, second])
    gap, unseen = encoded(TOWNS, np.array([None, "Thun"], dtype=object), MEANS)
    assert gap == unseen


def test_a_declared_order_is_kept():
    sizes = pd.CategoricalDtype(["S", "M", "L", "XL"], ordered=True)
    train = pd.DataFrame({"s": pd.Series(["L", "S", "M", None, "M"], dtype=sizes)})
    new = pd.DataFrame({"s": ["XL", "S", "XXL", None]})
    for y in (None, [0.0, 9, 3, 1, 2]):
        np.testing.assert_array_equal(encoded(train, new, y), [3, 0, 1, 1])
    cut = pd.DataFrame({"s": pd.cut(np.arange(12.0), 4)})
    np.testing.assert_array_equal(encoded(cut, cut), np.repeat(np.arange(4.0), 3))
    enum = pl.DataFrame({"s": pl.Series(["b", "a"] * 9, dtype=pl.Enum(["b", "a", "c"]))})
    np.testing.assert_array_equal(encoded(enum, enum), [0, 1] * 9)


def test_a_batch_with_a_category_list_of_its_own():
    train = pd.DataFrame({"t": pd.Categorical(TOWNS)})
    encode = ColumnEncoder.learn(train, MEANS)
    for categories in (["Genf"], ["Genf", "Basel"], ["x", "Genf", "Bern"]):
        new = pd.DataFrame({"t": pd.Categorical(["Genf"], categories=categories)})
        np.testing.assert_allclose(encode(new), PLACES["Genf"])
    np.testing.assert_allclose(encode(pl.DataFrame({"t": ["Genf"]})), PLACES["Genf"])
    np.testing.assert_allclose(encode(pd.DataFrame({"t": ["Genf"]})), PLACES["Genf"])


def test_categories_that_are_numbers_are_levels():
    codes = pd.DataFrame({"k": pd.Categorical(np.repeat([3, 7, 5], [10, 20, 30]))})
    expected = np.repeat([55 / 60, 10 / 60, 35 / 60], [10, 20, 30])
    np.testing.assert_allclose(encoded(codes, codes, MEANS), expected)
    for new in ([7, 3], [7.0, 3.0], pd.array([7, 3], dtype="Int64")):
        np.testing.assert_allclose(
            encoded(codes, pd.DataFrame({"k": new}), MEANS), [10 / 60, 55 / 60]
        )
    digits = pl.DataFrame({"k": pl.Series(["1", "2"] * 30, dtype=pl.Categorical)})
    assert ColumnEncoder.learn(digits, MEANS).kinds == ("levels",)


def test_mixed_types_and_things_that_cannot_be_hashed():
    cells = [1, "1", 2.5, (1, 2), b"x", None, True, date(2024, 1, 1), [1], {"a": 1}, np.zeros(3)]
    column = np.fromiter(cells * 6, dtype=object)
    places = encoded(column, column, np.tile(np.arange(11.0), 6))[:11]
    assert len(set(places[[1, 2, 3, 4, 5, 7]])) == 6
    assert places[0] == places[6]  # 1 is True, and not "1"
    assert places[8] == places[9] == places[10]
    nested = pl.DataFrame({"x": [[1, 2], [3]] * 9, "y": [{"a": 1}, {"a": 2}] * 9})
    assert ColumnEncoder.learn(nested).ignored == ("x", "y")
    vectors = pl.DataFrame({"x": pl.Series([[1, 2], [3, 4]] * 9, dtype=pl.Array(pl.Int64, 2))})
    np.testing.assert_array_equal(encoded(vectors, vectors), 0)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_unique_texts_say_nothing(frame):
    ids = [f"id {i:04}" for i in range(N)]
    rows = frame({"id": ids, "town": TOWNS, "x": Y})
    encode = ColumnEncoder.learn(rows, MEANS)
    assert encode.ignored == ("id",) and encode.kinds == ("nothing", "levels", "numbers")
    assert not encode(rows)[:, 0].any()
    assert repr(encode) == "ColumnEncoder(3 columns: 1 of levels, 1 of nothing, 1 of numbers)"
    almost = [*ids[:-10], *["none"] * 10]  # a text that many rows share is a level
    found = encoded(np.array(almost), np.array([*ids, "none"]), MEANS)
    assert len(set(found[:-1])) == 1 and found[-1] != found[0]
    by_position = ColumnEncoder.learn(np.array([ids, TOWNS]).T, MEANS)
    assert by_position.ignored == (0,)


# Dates and times


def test_dates_are_days_since_the_median():
    days = [datetime(2024, 1, 1), datetime(2024, 1, 3), datetime(2024, 1, 31, 12), None]
    expected = [-2, 0, 28.5, 0]
    zurich = pd.Series(days).dt.tz_localize("Europe/Zurich")
    columns = [
        pd.Series(days),
        pd.Series(days, dtype="datetime64[s]"),
        pd.Series(days, dtype="datetime64[ns]"),
        pd.Series(days, dtype="timestamp[ns][pyarrow]"),
        pd.Series(days, dtype=object),
        zurich,
        zurich.astype(object),
        pl.Series(days),
        pl.Series(days, dtype=pl.Datetime("ms")),
        pl.Series(days).dt.replace_time_zone("Europe/Zurich"),
        np.array(days, dtype="M8[us]"),
        np.array(days, dtype="M8[h]"),
        np.array([*np.array(days[:3], dtype="M8[h]"), pd.NaT], dtype=object),
    ]
    for column in columns:
        encode = ColumnEncoder.learn(column)
        assert encode.kinds == ("times",)
        np.testing.assert_array_equal(encode(column)[:, 0], expected)
    naive = ColumnEncoder.learn(columns[0])
    for column in columns:
        shift = 1 / 24 if "Zurich" in str(column.dtype) or column is columns[6] else 0
        np.testing.assert_allclose(naive(column)[:, 0], [-2 - shift, -shift, 28.5 - shift, 0])


def test_days_of_the_calendar_and_periods():
    days = [date(2024, 1, 1), date(2024, 1, 3), date(2024, 2, 1), None]
    for column in (
        pd.Series(days, dtype=object),
        pd.Series(days, dtype="date32[day][pyarrow]"),
        pl.Series(days),
        pd.Series(pd.PeriodIndex(days, freq="D")),
        pd.Series([*days[:2], pd.Timestamp("2024-02-01"), pd.NaT], dtype=object),
    ):
        np.testing.assert_array_equal(encoded(column, column), [-2, 0, 29, 0])
    ends = pd.Series([datetime.min.replace(tzinfo=timezone(timedelta(hours=5))), datetime.max])
    assert np.isfinite(encoded(ends.astype(object), ends)).all()


def test_durations_and_times_of_day():
    spans = [timedelta(hours=6), timedelta(days=1), timedelta(days=2), None]
    for column in (
        pd.Series(spans),
        pd.Series(spans, dtype="duration[ns][pyarrow]"),
        pd.Series(spans, dtype=object),
        pl.Series(spans),
        np.array(spans, dtype="m8[s]"),
    ):
        np.testing.assert_array_equal(encoded(column, column), [-0.75, 0, 1, 0])
    times = [time(6), time(12, tzinfo=UTC), time(18), None]
    for column in (pd.Series(times, dtype=object), pl.Series([time(6), time(12), time(18), None])):
        np.testing.assert_array_equal(encoded(column, column), [-0.25, 0, 0.25, 0])


def test_what_is_no_date_among_dates_is_a_gap():
    train = pd.DataFrame({"x": pd.to_datetime(["2024-01-01", "2024-01-03", "2024-01-05"])})
    cells = [date(2024, 1, 4), "2024-01-04", 5, None, timedelta(1), pd.NA]
    found = encoded(train, pd.DataFrame({"x": pd.Series(cells, dtype=object)}))
    np.testing.assert_array_equal(found, [1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(encoded(train, pd.DataFrame({"x": [1.0, 2.0]})), [0, 0])
    mixed = pd.Series([date(2024, 1, 4), timedelta(1)] * 9, dtype=object)
    assert ColumnEncoder.learn(mixed).kinds == ("levels",)


@pytest.mark.parametrize(
    "column",
    [
        np.full(9, np.nan),
        np.full(9, None),
        pd.Series([None] * 9, dtype="Int64"),
        pd.Series([None] * 9, dtype="datetime64[ns]"),
        pd.Series([None] * 9, dtype="timedelta64[ns]"),
        pl.Series([None] * 9),
        pl.Series([None] * 9, dtype=pl.Datetime),
        pl.Series([None] * 9, dtype=pl.Duration),
        pd.Series([None] * 9, dtype="str"),
    ],
    ids=lambda column: str(column.dtype),
)
def test_nothing_but_gaps_is_zero(column):
    np.testing.assert_array_equal(encoded(column, column), 0)
    np.testing.assert_array_equal(encoded(column, column, Y[:9]), 0)


# Sparse


def one_hot(n=400, levels=40, seed=0):
    codes = np.random.default_rng(seed).integers(levels, size=n)
    return sparse.csr_matrix((np.ones(n), (np.arange(n), codes)), shape=(n, levels))


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_small_sparse_matrices_are_filled_up(make):
    rows = make(one_hot())
    encode = ColumnEncoder.learn(rows)
    same_bits(encode(rows), rows.toarray())
    same_bits(encode(rows.toarray()[:3]), rows.toarray()[:3])
    same_bits(ColumnEncoder.learn(rows.toarray())(rows), rows.toarray())


def test_sparse_columns_of_frames_are_filled_up():
    frame = pd.get_dummies(pd.DataFrame({"t": TOWNS, "x": Y}), sparse=True, dtype=float)
    frame["gap"] = pd.arrays.SparseArray(np.where(Y > 0, Y, np.nan), fill_value=np.nan)
    dense = pd.DataFrame({name: np.asarray(frame[name]) for name in frame})
    same_bits(ColumnEncoder.learn(frame)(frame), filled(dense, dense))
    same_bits(ColumnEncoder.learn(frame)(dense), filled(dense, dense))


def wide(n=300, d=700, seed=1):
    rng = np.random.default_rng(seed)
    topics = rng.uniform(size=(4, d)) < 0.02
    rows = topics[rng.integers(4, size=n)] * rng.uniform(1, 2, size=(n, d))
    return sparse.csr_array(rows + (rng.uniform(size=(n, d)) < 0.001))


def test_large_sparse_matrices_are_reduced():
    rows = wide()
    encode = ColumnEncoder.learn(rows)
    features = encode(rows)
    assert features.shape == (300, 30) == (300, encode.n_features)
    assert encode.kinds == ("sparse",) * 700 and not encode.ignored
    again = ColumnEncoder.learn(sparse.coo_matrix(rows))
    same_bits(again(rows), features)
    same_bits(np.vstack([encode(rows[i : i + 1].toarray()) for i in range(9)]), features[:9])
    dense, truth = rows.toarray(), np.linalg.svd(rows.toarray())[1]
    assert (features**2).sum() > 0.95 * (truth[:30] ** 2).sum()
    holes = sparse.csr_array(rows)
    holes.data[:3] = np.nan, np.inf, -np.inf
    assert np.isfinite(encode(holes)).all() and np.isfinite(ColumnEncoder.learn(holes)(rows)).all()
    assert np.isnan(holes.data[0])  # not touched
    with pytest.raises(CalliperError, match="inputs have 5 columns; training rows have 700"):
        encode(dense[:, :5])


def test_frames_with_many_sparse_columns():
    rows = wide()
    frame = pd.DataFrame.sparse.from_spmatrix(rows, columns=[f"w{i}" for i in range(700)])
    frame.insert(3, "town", np.resize(TOWNS, 300))
    encode = ColumnEncoder.learn(frame, np.resize(MEANS, 300))
    features = encode(frame)
    assert features.shape == (300, 31) and encode.kinds[3] == "levels"
    np.testing.assert_allclose(features[:, 1:], ColumnEncoder.learn(rows)(rows), rtol=1e-9)
    shuffled = frame[frame.columns[::-1]]
    same_bits(encode(shuffled), features)
    same_bits(encode(pl.DataFrame({k: np.asarray(frame[k]) for k in shuffled})), features)


def test_components_that_are_rounding_are_left_out():
    few = sparse.csr_array(np.outer(np.arange(50.0), np.arange(600) % 2))
    assert ColumnEncoder.learn(few)(few).shape == (50, 1)
    empty = sparse.csr_array((50, 600))
    assert ColumnEncoder.learn(empty)(empty).shape[0] == 50


def test_long_but_narrow_sparse_matrices_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(encoding, "MOST_CELLS", 1000)
    assert ColumnEncoder.learn(one_hot(levels=30)).n_features == 30
    assert ColumnEncoder.learn(one_hot(n=2000, levels=90)).kinds == ("sparse",) * 90
    monkeypatch.setattr(encoding, "MOST_ROWS", 100)
    assert ColumnEncoder.learn(one_hot(n=2000, levels=90)).n_features == 30


def test_behind_an_encoder_of_scikit_learn():
    frame = pd.DataFrame({"t": TOWNS, "x": Y})
    for threshold in (0.0, 1.0):
        steps = make_column_transformer(
            (OneHotEncoder(), ["t"]), (StandardScaler(), ["x"]), sparse_threshold=threshold
        )
        rows = steps.fit_transform(frame)
        assert sparse.issparse(rows) == bool(threshold)
        features = ColumnEncoder.learn(rows)(rows)
        np.testing.assert_array_equal(features, rows.toarray() if threshold else rows)
    texts = [f"{a} {b} {a * b}" for a in range(10, 50) for b in range(10, 50)]
    words = TfidfVectorizer().fit_transform(texts)
    assert ColumnEncoder.learn(words)(words).shape == (1600, 30)


# Containers


def mixed_frame(n=N, seed=3):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=n),
        "town": rng.choice(["Bern", "Basel", "Genf", "Thun"], size=n),
        "day": np.datetime64("2024-01-01") + rng.integers(99, size=n).astype("m8[D]"),
        "id": [f"id {i}" for i in rng.permutation(n)],
    }


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_frames_go_by_name(make):
    rows = make(mixed_frame())
    encode = ColumnEncoder.learn(rows, Y)
    expected = encode(rows)
    assert encode.kinds == ("numbers", "levels", "times", "nothing")
    same_bits(encode(rows[["id", "day", "town", "x"]]), expected)
    more = {"new": [object()] * N, **mixed_frame()}
    same_bits(encode(pd.DataFrame(more)), expected)
    for other in (pd.DataFrame, pl.DataFrame):
        same_bits(encode(other(mixed_frame())), expected)
    array = pd.DataFrame(mixed_frame()).to_numpy(dtype=object)
    same_bits(encode(array), expected)
    same_bits(ColumnEncoder.learn(array, Y)(rows), expected)
    with pytest.raises(
        CalliperError, match=r"lack 2 of 4 columns .* first being 'town'; they have 'x', 'id'"
    ):
        encode(rows[["x", "id"]] if make is pl.DataFrame else rows.drop(columns=["town", "day"]))
    with pytest.raises(CalliperError, match="inputs have 3 columns; training rows have 4"):
        encode(array[:, :3])


def test_names_of_any_kind():
    frame = pd.DataFrame(
        rng.normal(size=(9, 3)), columns=pd.MultiIndex.from_product([["a"], [0, 1, 2]])
    )
    same_bits(ColumnEncoder.learn(frame)(frame.iloc[:, ::-1]), frame.to_numpy())
    numbered = pd.DataFrame(rng.normal(size=(9, 3)))
    same_bits(ColumnEncoder.learn(numbered)(numbered[[2, 0, 1]]), numbered.to_numpy())
    twice = pd.DataFrame({"a": TOWNS, "b": Y}).set_axis(["a", "a"], axis=1)
    assert ColumnEncoder.learn(twice).kinds == ("levels", "numbers")


def test_rows_go_by_place_and_not_by_label():
    frame = pd.DataFrame(mixed_frame())
    encode = ColumnEncoder.learn(frame, Y)
    odd = frame.set_axis(rng.permutation(N) // 2, axis=0)
    same_bits(ColumnEncoder.learn(odd, Y)(odd), encode(frame))


def test_arrow_tables():
    frame = pl.DataFrame(mixed_frame())
    same_bits(ColumnEncoder.learn(frame, Y)(frame.to_arrow()), ColumnEncoder.learn(frame, Y)(frame))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["CCO", "CC", "C"] * 9, "a list of str without columns"),
        ([1.0, 2.0], "a list of float without columns"),
        ([np.zeros((8, 8))] * 3, r"got shape \(3, 8, 8\)"),
        (np.zeros((3, 8, 8)), r"got shape \(3, 8, 8\)"),
        (np.zeros((3, 0)), r"got shape \(3, 0\)"),
        (torch.zeros(3, 8, 8), r"got shape \(3, 8, 8\)"),
        ([[1, 2], [3]], "different lengths"),
        ([np.zeros((2, 3)), np.zeros((3, 3))], "a list of ndarray without columns"),
        ([{"a": 1}, {"a": 2}], "a list of dict without columns"),
        ([object()], "a list of object without columns"),
        ([], "a list of nothing without columns"),
        ({"a": [1]}, "a dict has none"),
        (pl.LazyFrame({"a": [1]}), "a LazyFrame has none"),
        (5, "a int has none"),
        (pd.DataFrame(index=[0, 1]), "no columns"),
    ],
)
def test_rows_without_columns_are_refused(rows, message):
    with pytest.raises(CalliperError, match=message):
        ColumnEncoder.learn(rows)
    with pytest.raises(CalliperError, match=message):
        ColumnEncoder.learn(np.eye(8))(rows)


def test_targets_are_checked():
    with pytest.raises(CalliperError, match="y_train has 3 values for 60 rows"):
        ColumnEncoder.learn(TOWNS, [1, 2, 3])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_no_rows_at_all(make):
    rows = make(mixed_frame())
    assert ColumnEncoder.learn(rows, Y)(rows[:0]).shape == (0, 4)
    assert ColumnEncoder.learn(np.zeros((4, 3)))(np.zeros((0, 3))).shape == (0, 3)
    assert ColumnEncoder.learn(np.zeros((0, 3)))(np.ones((2, 3))).shape == (2, 3)


def test_inputs_are_left_alone_and_come_back_writable():
    rows = with_gaps()
    before = rows.copy()
    features = ColumnEncoder.learn(rows)(rows)
    features[:] = 7
    np.testing.assert_array_equal(rows, before)
    assert features.flags.c_contiguous


def test_pickles():
    frame = pd.DataFrame(mixed_frame()).assign(size=pd.cut(Y, 3))
    for rows in (frame, wide(), with_gaps()):
        encode = ColumnEncoder.learn(rows, rng.normal(size=rows.shape[0]))
        expected = encode(rows)
        same_bits(pickle.loads(pickle.dumps(encode))(rows), expected)


def test_neither_pandas_nor_polars_is_needed():
    import subprocess
    import sys

    code = (
        "import sys; sys.modules.update(pandas=None, polars=None);"
        "from calliper.embedding._encoding import ColumnEncoder;"
        "encode = ColumnEncoder.learn([['a', 1.0]] * 9);"
        "assert encode([['b', None]]).tolist() == [[1.0, 1.0]]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Laws

CELLS = (
    st.sampled_from(["Bern", "Basel", "1", "2.5", "nan", ""])
    | st.none()
    | st.integers(-3, 3)
    | st.floats()
    | st.booleans()
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
    | st.decimals()
    | st.just([1])
    | st.just(pd.NA)
    | st.just(pd.NaT)
    | st.just(10**400)
)
KINDS = st.sampled_from(
    [
        CELLS,
        st.sampled_from("abc") | st.none(),
        st.floats() | st.none(),
        st.dates() | st.none(),
        st.datetimes(),
        st.timedeltas(),
        st.decimals(),
        st.text(),
    ]
)
ROWS = KINDS.flatmap(lambda cell: st.lists(cell, min_size=1, max_size=30))


def object_column(cells):
    return np.fromiter(cells, dtype=object, count=len(cells))


@settings(max_examples=60, deadline=None)
@given(ROWS, st.lists(CELLS, min_size=1, max_size=12), st.booleans(), st.data())
def test_a_row_is_the_same_in_any_company(train, new, known, data):
    """Whatever was learnt: alone, among others, in another container, with repeats."""
    train = train * data.draw(st.sampled_from([1, 5]))
    y = np.arange(len(train)) % 7.0 if known else None
    with np.errstate(all="ignore"):
        encode = ColumnEncoder.learn(object_column(train), y)
    together = encode(object_column(new))
    assert np.isfinite(together).all()
    alone = np.vstack([encode(object_column([cell])) for cell in new])
    same_bits(alone, together)
    same_bits(encode(pd.DataFrame({"x": pd.Series(new, dtype=object)})), together)
    same_bits(encode(pd.Series(new, dtype=object)), together)
    some = data.draw(st.lists(st.integers(0, len(new) - 1), max_size=9))
    same_bits(encode(object_column([new[i] for i in some])), together[some])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from("abcdefgh") | st.none(), min_size=1, max_size=200),
    st.text(min_size=2) | st.integers() | st.dates(),
    st.booleans(),
)
def test_unseen_levels(train, unseen, known):
    """One place for all that was not learnt; levels in [0, 1], in the order of their means."""
    y = np.array([(len(train) - i) ** 2 % 11.0 for i in range(len(train))])
    column = Levels.learn(train, y if known else None)
    assert 0 <= column.gap <= 1 and all(0 <= place <= 1 for place in column.places.values())
    assert np.isnan(column.locate([unseen, "zz"])).all()
    counts = {level: train.count(level) for level in set(train)}
    assert set(column.places) == {level for level, n in counts.items() if n >= 5}
    ranked = sorted(column.places, key=column.places.__getitem__)
    if known:
        keys = []
        for level in ranked:
            own = y[[cell == level for cell in train]]
            keys.append((own.sum() + 10 * y.mean()) / (len(own) + 10))
    else:
        keys = [-counts[level] for level in ranked]
    assert all(a <= b + 1e-12 for a, b in pairwise(keys))
    found = np.where(np.isnan(placed := column.locate(train)), column.gap, placed)
    np.testing.assert_allclose(found.mean(), 0.5)  # of ridits


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(N)))
def test_the_order_of_training_rows_does_not_matter(order):
    frame, y = pd.DataFrame(mixed_frame()), np.arange(N) % 8.0
    shuffled = ColumnEncoder.learn(frame.iloc[order], y[order])(frame)
    np.testing.assert_allclose(shuffled, ColumnEncoder.learn(frame, y)(frame), rtol=1e-12)


# What it is for


def noisy_levels(rng, n, n_levels=12, by_mean=False):
    """Errors that depend on the level, whose name says nothing; on its mean, or on nothing else."""
    mean = rng.normal(size=n_levels)
    deviation = np.exp(mean if by_mean else rng.normal(size=n_levels)) / 2
    codes, x = rng.integers(n_levels, size=n), rng.normal(size=n)
    noise = deviation[codes] * rng.normal(size=n)
    names = np.array([f"level {i}" for i in range(n_levels)])
    frame = pd.DataFrame({"k": pd.Categorical(names[codes], categories=names), "x": x})
    return frame, codes, x + mean[codes] + noise, np.abs(noise), deviation[codes]


def losses(model, seed, by_mean):
    """How far expected errors are from the truth, by three ways to number levels."""
    frame, codes, y, errors, deviation = noisy_levels(
        np.random.default_rng(seed), 2000, by_mean=by_mean
    )
    train, new = slice(0, 1000), slice(1000, None)
    encode = ColumnEncoder.learn(frame[train], y[train])
    by_error, apart = ColumnEncoder.learn_and_encode(frame[train], errors[train])
    by_hand = np.c_[codes, frame["x"]]
    found = []
    for known, unknown in (
        (by_hand[train], by_hand[new]),
        (encode(frame[train]), encode(frame[new])),
        (apart, by_error(frame[new])),
    ):
        scaler = StandardScaler().fit(known)
        model.fit(scaler.transform(known), errors[train])
        expected = model.predict(scaler.transform(unknown))
        truth = deviation[new] * np.sqrt(2 / np.pi)
        found.append(np.mean((expected - truth) ** 2) / np.var(truth))
    return found


@pytest.mark.parametrize("by_mean", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        KNeighborsRegressor(15),
        GradientBoostingRegressor(n_estimators=50, subsample=0.5, max_features=0.5, random_state=0),
    ],
    ids=["neighbours", "trees"],
)
def test_levels_in_order_tell_as_much_as_codes_by_hand(model, by_mean):
    by_hand, encoded, by_error = np.mean([losses(model, s, by_mean) for s in range(20)], axis=0)
    assert encoded < (0.8 if by_mean else 1.1) * by_hand
    assert by_error < 0.95 * by_hand


def test_places_without_the_rows_own_target():
    """Levels of few rows and pure noise: their order knows the targets, that of others does not."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"k": rng.integers(500, size=3000).astype(str), "x": rng.normal(size=3000)}
    )
    frame["k"] = "k" + frame["k"]
    y = rng.normal(size=3000)
    encode, apart = ColumnEncoder.learn_and_encode(frame, y)
    assert encode == ColumnEncoder.learn(frame, y)
    same_bits(apart[:, 1], encode(frame)[:, 1].copy())
    assert np.corrcoef(encode(frame)[:, 0], y)[0, 1] > 0.3
    assert abs(np.corrcoef(apart[:, 0], y)[0, 1]) < 0.2
    assert apart[:, 0].min() >= 0 and apart[:, 0].max() <= 1


def test_places_apart_change_nothing_but_levels():
    for rows in (with_gaps(), wide(), pd.DataFrame({"s": pd.cut(Y, 4), "x": Y})):
        y = rng.normal(size=rows.shape[0])
        encode, features = ColumnEncoder.learn_and_encode(rows, y)
        same_bits(features, encode(rows))
    few = ColumnEncoder.learn_and_encode(np.array([["a"]] * 3), [1.0, 2, 3])[1]
    np.testing.assert_array_equal(few, 0)


def test_columns_are_what_they_say():
    frame = pd.DataFrame(mixed_frame())
    encode = ColumnEncoder.learn(frame, Y)
    assert [type(column) for column in encode.columns] == [Numbers, Levels, Times, Nothing]
    assert encode.n_features == 4 and encode.names == ("x", "town", "day", "id")
