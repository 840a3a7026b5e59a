"""The paper's adaptivity measures against the slow oracle, closed forms and bad input."""

from __future__ import annotations

import warnings
from math import isnan

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import r2_score

from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.metrics import SparseBinsWarning, r2_sqi, tau_si, tau_sqi
from calliper.metrics._bins import merge, quantile_edges
from calliper.metrics._scored import tie_rounding

INF = float("inf")
ALL = [tau_si, tau_sqi, r2_sqi]
ignore_warnings = pytest.mark.filterwarnings("ignore::UserWarning")

level_names = st.sampled_from(["0.5", "0.8", "0.9", "0.95"])
bins = st.integers(2, 12)
sizes = st.sampled_from([1, 2, 3, 5, 20])


@st.composite
def rows(draw):
    """Multiples of 1/8, so that differences are exact, with few or many ties."""
    n = draw(st.integers(2, 80))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    scores, radius = (rng.integers(0, draw(st.sampled_from([2, 5, 300])), n) for _ in "ab")
    return np.column_stack([scores, radius]) / 8


def around_zero(rows):
    """Scores as targets above a prediction of 0, and centred intervals."""
    scores, radius = np.array(rows, float).T
    return scores, (-radius, radius), 2 * radius, np.zeros(len(scores))


def equal(fast, slow):
    return (isnan(fast) and isnan(slow)) or fast == pytest.approx(slow, rel=1e-9, abs=1e-9)


@ignore_warnings
@given(rows())
def test_tau_si_equals_the_definition(rows):
    scores, ends, widths, y_pred = around_zero(rows)
    assert equal(tau_si(scores, ends, y_pred=y_pred), oracles.tau_si(scores, widths))


@ignore_warnings
@given(rows(), level_names, bins, sizes)
def test_tau_sqi_equals_the_definition(rows, level, n_bins, smallest):
    scores, ends, widths, y_pred = around_zero(rows)
    fast = tau_sqi(
        scores, ends, y_pred=y_pred, coverage=float(level), n_bins=n_bins, min_bin_size=smallest
    )
    assert equal(fast, oracles.tau_sqi(scores, widths, level, n_bins, smallest))


@ignore_warnings
@given(rows(), level_names, bins, sizes)
def test_r2_sqi_equals_the_definition(rows, level, n_bins, smallest):
    scores, ends, widths, y_pred = around_zero(rows)
    fast = r2_sqi(
        scores, ends, y_pred=y_pred, coverage=float(level), n_bins=n_bins, min_bin_size=smallest
    )
    assert equal(fast, oracles.r2_sqi(scores, widths, level, n_bins, smallest))


@ignore_warnings
@pytest.mark.parametrize(("level", "smallest"), [("0.5", 20), ("0.9", 20), ("0.95", 40)])
def test_the_default_size_of_a_bin(level, smallest):
    rng = np.random.default_rng(0)
    for n in (150, 199, 200, 201, 399, 400, 500):
        widths = rng.integers(1, 300, n) / 8
        scores = widths * rng.exponential(size=n)
        ends = (-widths / 2, widths / 2)
        fast = r2_sqi(scores, ends, y_pred=0 * widths, coverage=float(level))
        assert equal(fast, oracles.r2_sqi(scores, widths, level, 10, smallest))
        fast = tau_sqi(scores, ends, y_pred=0 * widths, coverage=float(level))
        assert equal(fast, oracles.tau_sqi(scores, widths, level, 10, smallest))


@ignore_warnings
@given(rows(), st.integers(-8, 8), st.integers(-20, 20), st.randoms())
@pytest.mark.parametrize("measure", ALL)
def test_unit_origin_and_order_do_not_matter(measure, rows, power, shift, random):
    y, ends, _, y_pred = around_zero(rows)
    options = {} if measure is tau_si else {"coverage": 0.75, "n_bins": 4, "min_bin_size": 2}
    value = measure(y, ends, y_pred=y_pred, **options)
    factor, order = 2.0**power, np.array(random.sample(range(len(y)), len(y)))
    moved = [factor * (part + shift) for part in (y, *ends, y_pred)]
    y, lower, upper, y_pred = (part[order] for part in moved)
    assert equal(measure(y, (lower, upper), y_pred=y_pred, **options), value)
    assert equal(measure(-y, (-upper, -lower), y_pred=-y_pred, **options), value)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(2, 12))
def test_edges_are_exact_quantiles(values, n_bins):
    ordered = np.sort(np.array(values, float))
    edges = quantile_edges(ordered, n_bins)
    np.testing.assert_allclose(edges, np.quantile(ordered, np.arange(n_bins + 1) / n_bins))
    assert (np.diff(edges) >= 0).all()


def test_an_edge_on_a_value_is_that_value():
    ordered = np.arange(109.0)
    assert np.quantile(ordered, 7 / 12) > 63, "the reason for edges in integer arithmetic"
    np.testing.assert_array_equal(quantile_edges(ordered, 12), np.arange(0.0, 109.0, 9.0))


def test_edges_beside_infinity():
    edges = quantile_edges(np.array([1.0, 2.0, INF, INF]), 6)
    np.testing.assert_array_equal(edges, [1.0, 1.5, 2.0, INF, INF, INF, INF])


@ignore_warnings
@pytest.mark.parametrize(
    ("count", "smallest", "first", "last"),
    [
        ([5, 5, 5], 5, [0, 1, 2], [0, 1, 2]),
        ([3, 3, 5], 5, [0, 2], [1, 2]),
        ([5, 5, 4], 5, [0, 1], [0, 2]),
        ([1, 1, 1], 5, [0], [2]),
        ([4, 9, 1, 1], 5, [0], [3]),
    ],
)
def test_small_bins_join_the_next_and_the_rest_joins_below(count, smallest, first, last):
    got = merge(np.array(count), smallest)
    assert [list(part) for part in got] == [first, last]


def test_perfect_and_reversed_order():
    radius = np.arange(1.0, 401.0)
    for sign in (1, -1):
        ends = (-(radius[::sign]), radius[::sign])
        assert tau_si(radius / 2, ends) == pytest.approx(sign)
        assert tau_sqi(radius / 2, ends, coverage=0.95) == sign


def two_sizes(factor, *, size=100):
    """Scores 1..size in narrow intervals and 2..2·size in wide ones; CSQ = median."""
    narrow = np.arange(1.0, size + 1)
    y = np.concatenate([narrow, 2 * narrow])
    radius = factor * np.repeat([narrow.mean(), 2 * narrow.mean()], size)
    return y, Intervals(-radius, radius, 0.5), 0 * y


def test_r2_sqi_is_one_when_each_bin_is_as_wide_as_its_quantile():
    y, intervals, y_pred = two_sizes(1.0)
    assert r2_sqi(y, intervals, y_pred=y_pred) == pytest.approx(1.0)


def test_r2_sqi_of_intervals_twice_too_wide_in_closed_form():
    # ISQ = 4q and 8q against 2q and 4q: residuals 4 + 16, spread 4 + 4.
    y, intervals, y_pred = two_sizes(2.0)
    assert r2_sqi(y, intervals, y_pred=y_pred) == pytest.approx(1 - 20 / 8)
    assert tau_sqi(y, intervals, y_pred=y_pred) == 1.0


def test_r2_sqi_takes_the_widths_as_what_is_explained():
    rng = np.random.default_rng(0)
    widths = rng.uniform(1, 2, 1000)
    y = widths * rng.standard_normal(1000)
    bins = np.array_split(np.argsort(widths), 10)
    isq = [np.median(widths[b]) for b in bins]
    csq = [np.quantile(np.abs(y[b]), 0.8) for b in bins]
    value = r2_sqi(y, (-widths / 2, widths / 2), y_pred=0 * y, coverage=0.8)
    assert value == pytest.approx(r2_score(isq, 2 * np.array(csq)))


def test_the_middle_of_the_edges_instead_of_the_median():
    widths = np.array([1.0, 1.0, 2.0, 4.0, 6.0, 10.0])
    scores = widths / 2
    # Edges 1, 3 and 10; middles 2 and 6.5. Medians of the scores: 0.5 and 3.
    value = r2_sqi(
        scores, (-widths / 2, widths / 2), y_pred=0 * widths, coverage=0.5, n_bins=2,
        bin_width="midpoint", min_bin_size=1,
    )  # fmt: skip
    assert value == pytest.approx(r2_score([2.0, 6.5], [1.0, 6.0]))


def test_empty_bins_are_neither_sparse_nor_part_of_their_neighbour():
    widths = np.repeat([1.0, 9.0], 10)
    # Of 60 edges three fall into the gap: 11/60, 30/60 and 49/60 of the way from 1 to 9.
    isq = [(1 + 1 + 8 * 11 / 60) / 2, (1 + 8 * 49 / 60 + 9) / 2]
    options = {"y_pred": 0 * widths, "coverage": 0.5, "n_bins": 60, "min_bin_size": 5}
    ends = (-widths / 2, widths / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tau_sqi(widths, ends, **options) == 1.0
        value = r2_sqi(widths, ends, bin_width="midpoint", **options)
    assert value == pytest.approx(r2_score(isq, [2.0, 18.0]))


def test_the_middle_of_merged_bins_spans_their_edges():
    widths = np.arange(1.0, 10.0)
    with pytest.warns(SparseBinsWarning):
        value = r2_sqi(
            widths / 2, (-widths / 2, widths / 2), y_pred=0 * widths, coverage=0.5, n_bins=4,
            bin_width="midpoint", min_bin_size=4,
        )  # fmt: skip
    # Edges 1, 3, 5, 7, 9 hold 2, 2, 2 and 3 points: joined to [1, 5) and [5, 9].
    assert value == pytest.approx(r2_score([3.0, 7.0], [2.5, 7.0]))


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_r2_sqi_at_extreme_units(size):
    y, intervals, y_pred = two_sizes(2.0)
    ends = (intervals.lower * size, intervals.upper * size)
    assert r2_sqi(y * size, ends, y_pred=y_pred, coverage=0.5) == pytest.approx(-1.5)


@pytest.mark.parametrize("measure", ALL)
@pytest.mark.parametrize("centre", [1.0, 1e6])
def test_constant_radii_are_constant_widths_in_spite_of_rounding(measure, centre):
    rng = np.random.default_rng(0)
    y_pred = centre * rng.standard_normal(1000)
    intervals = Intervals(y_pred - 1.7, y_pred + 1.7, 0.9)
    assert len(np.unique(intervals.width)) > 1
    with pytest.warns(UndefinedMetricWarning, match=rf"{measure.__name__} is NaN: all 1000 widths"):
        assert isnan(measure(y_pred + rng.standard_normal(1000), intervals, y_pred=y_pred))


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_what_differs_by_more_than_rounding_stays_apart(size):
    values = size * np.array([1.0 + 1e-13, 1.0, 1.0 + 1e-14])
    np.testing.assert_array_equal(tie_rounding(values, values), values)


def test_rounding_ties_keep_places_and_infinities():
    values = np.array([INF, 3.0, 1.0 + 2e-16, 1.0, INF])
    np.testing.assert_array_equal(
        tie_rounding(values, np.array([0.0, 3, 1, 1, 0])), [INF, 3, 1, 1, INF]
    )


def test_no_order_of_scores_is_nan_with_the_reason():
    y, ends = np.ones(4), (-np.arange(1.0, 5), np.arange(1.0, 5))
    with pytest.warns(UndefinedMetricWarning, match=r"tau_si is NaN: all 4 scores are equal \(1\)"):
        assert isnan(tau_si(y, ends))
    with pytest.warns(UndefinedMetricWarning, match="the score quantile is 1 in every bin"):
        assert isnan(tau_sqi(y, ends, coverage=0.9, n_bins=2, min_bin_size=1))


def test_too_few_rows_are_nan_with_the_reason():
    with pytest.warns(UndefinedMetricWarning, match="1 of the rows are left, and 2 are needed"):
        assert isnan(tau_si([1.0], ([0.0], [1.0])))
    ends = (-np.arange(1.0, 20), np.arange(1.0, 20))
    for measure in tau_sqi, r2_sqi:
        with (
            pytest.warns(SparseBinsWarning),
            pytest.warns(UndefinedMetricWarning, match="19 rows leave fewer than two bins"),
        ):
            assert isnan(measure(np.arange(19.0), ends, coverage=0.9))


@pytest.mark.parametrize("measure", [tau_sqi, r2_sqi])
def test_merged_bins_are_said_with_numbers_where_the_caller_stands(measure):
    radius = np.arange(1.0, 101.0)
    message = r"10 of 10 bins .* fewer than 40 points.* into 2\. Pass more test points \(400 fill"
    with pytest.warns(SparseBinsWarning, match=message) as caught:
        measure(radius, (-radius, radius), coverage=0.95)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("measure", [tau_sqi, r2_sqi])
def test_full_bins_are_silent_and_the_limit_is_exact(measure):
    radius = np.arange(1.0, 401.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure(radius, (-radius, radius), coverage=0.95)
    with pytest.warns(SparseBinsWarning, match="1 of 10 bins"):
        measure(radius[1:], (-radius[1:], radius[1:]), coverage=0.95)


def test_undefined_warnings_point_at_the_caller():
    for measure in ALL:
        with pytest.warns(UndefinedMetricWarning) as caught:
            measure([0.0, 1.0], Intervals(np.zeros(2), np.ones(2), 0.9))
        assert caught[0].filename == __file__


# Infinite intervals


def with_infinite():
    radius = np.array([1.0, 2.0, 3.0, INF])
    return np.array([1.0, 2.0, 3.0, 0.5]), Intervals(-radius, radius, 0.5), np.zeros(4)


def test_kept_infinite_intervals_rank_as_the_widest():
    y, intervals, y_pred = with_infinite()
    assert tau_si(y, intervals, y_pred=y_pred) == pytest.approx(0.0)
    options = {"y_pred": y_pred, "n_bins": 4, "min_bin_size": 1}
    assert tau_sqi(y, intervals, **options) == 0.0


def test_infinite_intervals_that_fill_a_bin_are_not_mixed_with_finite_ones():
    radius = np.repeat([1.0, 2.0, INF], [20, 20, 60])
    y = np.repeat([1.0, 2.0, 9.0], [20, 20, 60])
    # Mixed with the second kind, the score quantile of the last bin would still be 9; so ask
    # for the smallest scores there.
    options = {"y_pred": 0 * y, "coverage": 0.05, "min_bin_size": 1, "n_bins": 5}
    assert tau_sqi(y, (-radius, radius), **options) == 1.0


def test_capped_infinite_intervals_have_twice_the_largest_score():
    y, intervals, y_pred = with_infinite()
    capped = {"infinite": "cap", "max_score": 1.5, "y_pred": y_pred}
    radius = np.array([1.0, 2.0, 3.0, 1.5])
    options = {"n_bins": 4, "min_bin_size": 1, "coverage": 0.5}
    assert tau_si(y, intervals, **capped) == tau_si(y, (-radius, radius), y_pred=y_pred)
    for measure in tau_sqi, r2_sqi:
        value = measure(y, intervals, **capped, **options)
        assert value == measure(y, (-radius, radius), y_pred=y_pred, **options)


def test_dropped_infinite_intervals_need_no_prediction():
    y, intervals, y_pred = with_infinite()
    assert tau_si(y, intervals, infinite="drop") == pytest.approx(1.0)
    value = tau_si(y, intervals, infinite="drop", y_pred=y_pred)
    assert value == tau_si(y[:3], (intervals.lower[:3], intervals.upper[:3]))
    for measure in tau_sqi, r2_sqi:
        options = {"n_bins": 3, "min_bin_size": 1, "coverage": 0.5}
        assert measure(y, intervals, infinite="drop", **options) == measure(
            y[:3], (intervals.lower[:3], intervals.upper[:3]), **options
        )


@pytest.mark.parametrize("measure", ALL)
def test_nothing_left_is_nan(measure):
    ends = Intervals(np.full(3, -INF), np.full(3, INF), 0.9)
    with pytest.warns(UndefinedMetricWarning, match=f"{measure.__name__} is NaN: 0 "):
        assert isnan(measure([1.0, 2.0, 3.0], ends, infinite="drop"))


def test_a_few_infinite_intervals_do_not_undo_r2_sqi_but_many_do():
    y, intervals, y_pred = two_sizes(1.0)
    upper = intervals.upper.copy()
    upper[-10:] = INF
    assert r2_sqi(y, Intervals(-upper, upper, 0.5), y_pred=y_pred) == pytest.approx(1.0, abs=0.1)
    upper[100:] = INF
    message = "r2_sqi is NaN: the size of 1 of 2 bins is infinite; use 'cap' or 'drop'"
    with pytest.warns(UndefinedMetricWarning, match=message):
        assert isnan(r2_sqi(y, Intervals(-upper, upper, 0.5), y_pred=y_pred))


@pytest.mark.parametrize("measure", ALL)
@pytest.mark.parametrize("options", [{}, {"infinite": "cap", "max_score": 1.0}])
def test_no_middle_no_prediction(measure, options):
    y, intervals, _ = with_infinite()
    message = "y_pred is needed: 1 of 4 intervals are infinite, the first at position 3.*'drop'"
    with pytest.raises(CalliperError, match=message):
        measure(y, intervals, **options)


@pytest.mark.parametrize("measure", ALL)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"infinite": "cap"}, "needs max_score.*pass the largest calibration score"),
        ({"infinite": "cap", "max_score": 0.0}, "positive and finite; got 0.0"),
        ({"infinite": "cap", "max_score": INF}, "positive and finite; got inf"),
        ({"infinite": "cap", "max_score": float("nan")}, "positive and finite; got nan"),
        ({"max_score": 1.0}, "with infinite='cap' only; got infinite='keep' and max_score=1.0"),
        ({"infinite": "clip"}, "infinite must be 'keep', 'cap' or 'drop'; got 'clip'"),
        ({"y_pred": [0.0]}, "y_pred has 1 values for 3 rows"),
        ({"y_pred": [0.0, np.nan, 0.0]}, "y_pred must be finite"),
        ({"y": [0.0]}, "y has 1 values for 3 rows"),
        ({"intervals": ([], [])}, "at least one row; got 0"),
        (
            {"intervals": Intervals(np.zeros((3, 2)), np.ones((3, 2)), (0.8, 0.9))},
            r"one level; got 2 \(0.8, 0.9\): pass intervals.at\(0.9\)",
        ),
    ],
)
def test_bad_input(measure, options, message):
    good = {"y": np.arange(3.0), "intervals": Intervals(-np.arange(3.0), np.arange(3.0), 0.9)}
    with pytest.raises(CalliperError, match=message):
        measure(**(good | options))


@pytest.mark.parametrize("measure", [tau_sqi, r2_sqi])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 1}, "n_bins must be an integer of at least 2; got 1"),
        ({"n_bins": 2.0}, "n_bins must be an integer of at least 2; got 2.0"),
        ({"min_bin_size": 0}, "min_bin_size must be an integer of at least 1; got 0"),
        ({"min_bin_size": True}, "min_bin_size must be an integer of at least 1; got True"),
        ({"coverage": 90}, "strictly between 0 and 1; got 90. Percent"),
        ({"coverage": None}, "do not carry their level.*Pass coverage="),
    ],
)
def test_bad_bins(measure, options, message):
    radius = np.arange(3.0)
    with pytest.raises(CalliperError, match=message):
        measure(radius, (-radius, radius), **({"coverage": 0.9} | options))


def test_bad_bin_width():
    radius = np.arange(3.0)
    with pytest.raises(CalliperError, match="bin_width must be 'median' or 'midpoint'; got 'mean'"):
        r2_sqi(radius, (-radius, radius), coverage=0.9, bin_width="mean")


def test_the_level_of_the_intervals_is_the_default():
    y, intervals, y_pred = two_sizes(1.0)
    explicit = r2_sqi(y, tuple(intervals), y_pred=y_pred, coverage=0.5)
    assert r2_sqi(y, intervals, y_pred=y_pred) == explicit
    assert r2_sqi(y, intervals, y_pred=y_pred, coverage=0.8) != explicit
