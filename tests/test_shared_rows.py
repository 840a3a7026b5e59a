"""Rows of one set that are in another: copies are noticed, and what chance repeats is not."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression

import calliper
from calliper import CalliperError, ConformalRegressor, MultiTargetRegressor
from calliper._row_checks import SharedRows, sketch_rows, warn_of_copies
from calliper._row_checks import find_shared as find_shared_rows
from calliper.exceptions import SharedRowsWarning


def find_shared(X_a, y_a, X_b, y_b):
    return find_shared_rows(sketch_rows(X_a, y_a), X_b, y_b)


def continuous(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] + 0.3 * rng.normal(size=n) + 5


def discrete(rng, n):
    """Honest data in which rows coincide by chance."""
    units = rng.normal(size=(n // 4 + 1, 3))[rng.integers(0, n // 4 + 1, n)]
    rounded = rng.normal(size=(n, 2)).round(1)
    grid = rng.integers(0, 30, (n, 2))
    return [
        (rng.integers(1, 6, (n, 3)), rng.integers(1, 6, n)),
        (rng.poisson(1, (n, 4)), rng.poisson(2, n)),
        (rng.integers(0, 2, (n, 6)), rng.integers(0, 2, n)),
        (rounded, (rounded[:, 0] + 0.3 * rng.normal(size=n)).round(1)),
        (grid, np.sin(grid[:, 0]) + grid[:, 1]),
        (units, (2 * units[:, 0]).round() + rng.integers(0, 3, n)),
        (np.ones((n, 2)), rng.integers(0, n, n)),
        (rng.choice(list("abcdefgh"), (n, 3)).astype(object), rng.integers(0, 4, n)),
    ]


def in_file(values, digits=6):
    """Numbers as a file with so many digits gives them back."""
    values = np.asarray(values, float)
    cells = [float(f"{value:.{digits}g}") for value in values.ravel()]
    return np.reshape(cells, values.shape)


@pytest.mark.parametrize("turn", [np.asarray, np.float32, in_file])
@pytest.mark.parametrize("d", [1, 3, 30])
def test_all_rows_are_found_in_any_order_and_rounded(turn, d):
    X, y = continuous(300, d)
    order = np.random.default_rng(1).permutation(300)
    found = find_shared(X, y, turn(X[order]), turn(y[order]))
    assert found.all_shared and found.certain
    assert found.n_shared >= 0.99 * 300


@pytest.mark.parametrize("turn", [np.asarray, np.float32, in_file])
def test_a_tenth_that_is_shared_is_counted(turn):
    X, y = continuous(190)
    found = find_shared(X[:100], y[:100], turn(X[90:]), turn(y[90:]))
    assert found.certain and not found.all_shared
    assert found.n_shared == 10
    assert found.describe().startswith("10 of 100 calibration rows are also training rows")


def test_equal_sets_of_discrete_rows_are_refused():
    rng = np.random.default_rng(3)
    for X, y in discrete(rng, 1000):
        order = rng.permutation(1000)
        assert find_shared(X, y, X[order], y[order]).all_shared


@pytest.mark.long
def test_honest_discrete_data_raise_no_alarm_in_a_thousand_draws():
    rng = np.random.default_rng(2)
    draws, alarms = 0, 0
    while draws < 1000:  # eight kinds a round
        n = int(rng.choice([40, 100, 300]))
        for X, y in discrete(rng, n):
            part = np.zeros(n, dtype=bool)
            part[rng.permutation(n)[: max(1, int(n * rng.choice([0.1, 0.3, 0.5])))]] = True
            alarms += find_shared(X[~part], y[~part], X[part], y[part]).certain
            draws += 1
    assert alarms == 0


def test_frames_sparse_rows_text_dates_and_gaps_are_compared():
    X, y = continuous(200)
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["city"] = np.where(X[:, 0] > 0, "Bern", "Basel")
    frame["day"] = pd.date_range("2020-01-01", periods=200)
    frame.loc[::7, "b"] = np.nan
    assert find_shared(frame, y, frame[::-1], y[::-1]).all_shared
    assert find_shared(frame[:100], y[:100], frame[90:], y[90:]).n_shared == 10
    rows = sparse.csr_array(np.where(X > 0, X, 0.0))
    assert find_shared(rows, y, rows, y).all_shared


def test_other_targets_or_widths_are_other_rows():
    X, y = continuous(200)
    assert not find_shared(X, y, X, y + np.random.default_rng(0).normal(size=200)).certain
    assert find_shared(X, y, X[:, :2], y) == SharedRows(n_shared=0, n_rows=200)


def test_a_sketch_knows_rows_whatever_holds_them():
    X, y = continuous(200)
    frame = pd.DataFrame(X, columns=list("abc")).assign(city=np.where(X[:, 0] > 0, "Bern", None))
    known = sketch_rows(frame, y)
    assert known.numbers.nbytes == 24 * 200
    again = pl.from_pandas(frame.iloc[100:]).with_columns(pl.col("city").cast(pl.Categorical))
    assert find_shared_rows(known, again, y[100:]).all_shared
    assert find_shared_rows(known, frame.astype({"city": "category"}), y).all_shared


def test_columns_of_frames_go_by_name_and_small_sets_are_noticed():
    X, y = continuous(95)
    frame = pd.DataFrame(X, columns=list("abc"))
    assert find_shared(frame, y, frame[["c", "a", "b"]], y).all_shared
    found = find_shared(X[:50], y[:50], X[45:], y[45:])
    assert found.certain and found.n_shared == 5


def test_training_rows_that_calibrate_was_given_are_known_again_by_extend(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.normal(size=300)
    model = LinearRegression().fit(X[:100], y[:100])
    made = ConformalRegressor(model).calibrate(
        X[100:200], y[100:200], X_train=X[:100], y_train=y[:100]
    )
    calliper.save(made, tmp_path / "made.calliper")
    for each in (made, calliper.load(tmp_path / "made.calliper", model)):
        with pytest.raises(CalliperError, match="training"):
            each.extend(X[:100], y[:100])
        each.extend(X[200:], y[200:])
        assert each.guarantee().proved >= 0.9


def test_copies_within_the_rows_are_warned_of():
    X, y = continuous(300)
    model = LinearRegression().fit(*continuous(100, seed=1))
    twice, of_both = np.tile(X, (2, 1)), np.tile(y, 2)
    for some in (slice(None), slice(310)):
        n = len(of_both[some]) - 300
        with pytest.warns(SharedRowsWarning, match=f"{n} of {300 + n} rows are copies of others"):
            ConformalRegressor(model).calibrate(twice[some], of_both[some])
    with pytest.warns(SharedRowsWarning, match="300 of 600 rows are copies"):
        ConformalRegressor(model).fit(twice, of_both)
    with pytest.warns(SharedRowsWarning, match="300 of 600 rows are copies"):
        MultiTargetRegressor(LinearRegression()).fit(twice, np.stack([of_both] * 2, axis=1))


def test_rows_that_coincide_by_chance_are_not_taken_for_copies():
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X, y in [*discrete(rng, 80), *discrete(rng, 500), continuous(400)]:
            warn_of_copies(X, np.asarray(y, dtype=float))
