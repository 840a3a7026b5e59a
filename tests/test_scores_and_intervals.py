import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from calliper import AbsoluteError, CalliperError, Intervals, SignedError
from calliper.scores import JointError, QuantileError, ScaledError, as_score, named_scores

numbers = st.floats(-1e6, 1e6)


@given(y=numbers, y_pred=numbers, radius=st.floats(0, 1e6))
@pytest.mark.parametrize(
    "score", [AbsoluteError(), SignedError(), SignedError("lower"), SignedError("upper")], ids=repr
)
def test_measure_and_invert_belong_together(score, y, y_pred, radius):
    """y is inside exactly when its score is at most the radius, rounding apart."""
    y, y_pred = np.array([y]), np.array([y_pred])
    measured = score.measure(y, y_pred).reshape(1, -1)
    radii = np.full((1, score.n_tails), radius)
    lower, upper = score.invert(y_pred, radii if score.n_tails == 2 else radii[:, 0])
    slack = 1e-9 * (1 + np.abs(y) + np.abs(y_pred) + radius)
    if (measured <= radius - slack).all():
        assert lower <= y <= upper
    if (measured > radius + slack).any():
        assert not lower <= y <= upper
    assert (score.magnitude(y, y_pred) >= measured.max()).all()


def test_intervals_unpack_and_know_their_shape():
    intervals = Intervals([0.0, 1.0], [2.0, np.inf], coverage=0.9)
    lower, upper = intervals
    np.testing.assert_array_equal(upper - lower, intervals.width)
    np.testing.assert_array_equal(intervals.contains([0.0, 0.5]), [True, False])
    np.testing.assert_array_equal(intervals.contains([[2.0], [1e300]]), [True, True])
    assert intervals.at(0.9) is intervals
    with pytest.raises(CalliperError, match=r"y must .* got 3 values for 2 rows"):
        intervals.contains([1.0, 2.0, 3.0])
    with pytest.raises(CalliperError, match="y must be finite"):
        intervals.contains([np.nan, 1.0])


def test_several_levels():
    intervals = Intervals([[0, -1]], [[1, 2]], coverage=(0.5, 0.9))
    np.testing.assert_array_equal(intervals.contains([1.5]), [[False, True]])
    assert intervals.at(0.9).width == [3.0]
    assert list(intervals.to_frame().columns) == [
        "lower_0.5",
        "upper_0.5",
        "lower_0.9",
        "upper_0.9",
    ]
    np.testing.assert_array_equal(intervals.to_frame().to_numpy(), [[0, 1, -1, 2]])
    with pytest.raises(CalliperError, match=r"no intervals at level 0\.8"):
        intervals.at(0.8)


@pytest.mark.parametrize(
    ("lower", "upper", "coverage", "message"),
    [
        ([1.0], [0.0], None, "lower must not exceed upper"),
        ([np.nan], [0.0], None, "lower must not exceed upper"),
        ([np.inf], [np.inf], None, "an open end"),
        ([1.0], [1.0, 2.0], None, "the same shape"),
        (1.0, 2.0, None, "the same shape"),
        ([[0.0, 0.0]], [[1.0, 1.0]], (0.9,), "lower has 2 columns, but coverage 1 levels"),
    ],
)
def test_impossible_intervals(lower, upper, coverage, message):
    with pytest.raises(CalliperError, match=message):
        Intervals(lower, upper, coverage)


@given(y=numbers, y_pred=numbers)
@pytest.mark.parametrize("score", [AbsoluteError(), SignedError()], ids=repr)
def test_a_target_lies_in_the_interval_of_its_own_score(score, y, y_pred):
    """In floating point, without slack: a tie with the threshold must be covered."""
    y, y_pred = np.array([y]), np.array([y_pred])
    lower, upper = score.invert(y_pred, score.measure(y, y_pred))
    assert lower <= y <= upper


def test_a_constant_error_of_two_signs_is_covered():
    y_pred, y = np.full(2, 2.337), np.array([-2.0, 2.0])
    lower, upper = AbsoluteError().invert(y_pred, np.full(2, abs(-2.0 - 2.337)))
    assert (lower <= y).all() and (y <= upper).all()


def test_an_error_with_its_sign_leads_back_to_the_target():
    y, y_pred, score = np.array([1.0, 5.0, -2.0]), np.array([3.0, 3.0, -2.0]), AbsoluteError()
    signed = score.signed(y, y_pred)
    np.testing.assert_array_equal(signed, [-2.0, 2.0, 0.0])
    np.testing.assert_array_equal(score.target_at(y_pred, signed), y)
    np.testing.assert_array_equal(score.magnitude(y, y_pred), np.abs(signed))


units = st.floats(0.1, 100)


@given(y=numbers, centre=numbers, down=units, up=units, radius=st.floats(0, 1e6))
def test_scaled_errors_and_their_intervals_belong_together(y, centre, down, up, radius):
    """Its own score covers a target without slack; ``place`` undoes ``signed``."""
    score, y, rows = ScaledError(), np.array([y]), np.array([[centre, down, up]])
    measured = score.measure(y, rows)
    assume(measured[0] != 0 or y[0] == centre)  # a quotient that is smaller than any number
    lower, upper = score.invert(rows, measured)
    assert lower <= y <= upper and score.centre(rows) == centre
    slack = 1e-9 * (1 + np.abs(y) + abs(centre) + radius * max(down, up)) / min(down, up)
    lower, upper = score.invert(rows, np.array([radius]))
    if measured > radius + slack:
        assert not lower <= y <= upper
    if measured <= radius:
        assert lower <= y <= upper
    signed = score.signed(y, rows)
    np.testing.assert_allclose(np.abs(signed), score.magnitude(y, rows))
    np.testing.assert_allclose(score.target_at(rows, signed), y, atol=1e-9 * (1 + abs(centre)))


few = st.integers(-8, 8).map(float)


@given(
    y=few,
    centre=few,
    down=units,
    up=units,
    radius=st.floats(0, 60),
    ends=st.tuples(few, few),
    pull=st.sampled_from([0.0, 0.5, 3.0]),
)
def test_intervals_stop_at_the_ends_of_the_targets(y, centre, down, up, radius, ends, pull):
    """The score alone decides who is inside: also beyond an end, at it, and on the way to it."""
    lowest, highest = min(ends), max(ends) + 1
    score = ScaledError(lowest=lowest, highest=highest, beyond=20.0, pull=pull)
    middle = min(max(centre, lowest), highest)
    rows = np.array([[centre, down, up]])
    down, up = max(down, pull * (middle - lowest)), max(up, pull * (highest - middle))
    literal = max((middle - y) / down, (y - middle) / up) + 20.0 * (not lowest <= y <= highest)
    y = np.array([y])
    measured = score.measure(y, rows)
    np.testing.assert_allclose(measured, literal, rtol=1e-12)
    lower, upper = score.invert(rows, measured)
    assert lower <= y <= upper and score.centre(rows) == middle
    lower, upper = score.invert(rows, np.array([radius]))
    if abs(literal - radius) > 1e-9:
        assert (lower <= y <= upper) == (literal <= radius)
    if radius < 20:
        assert lowest <= lower and upper <= highest
    np.testing.assert_allclose(
        score.target_at(rows, score.signed(y, rows)), y, rtol=1e-9, atol=1e-9
    )
    wider = score.invert(rows, np.array([radius + 1]))
    assert wider[0] <= lower and upper <= wider[1]


def test_ends_that_make_no_sense_are_refused():
    rows = np.array([[0.0, 1.0, 1.0]])
    for how in (
        {"lowest": 1.0, "highest": 1.0},
        {"lowest": 1.0, "highest": 0.0, "beyond": 2.0},
        {"beyond": -1.0},
        {"beyond": -1.0, "pull": 1.0},
        {"beyond": np.inf},
        {"pull": np.inf},
        {"lowest": np.nan},
        {"lowest": None},
    ):
        with pytest.raises(CalliperError, match="lowest < highest, and beyond"):
            ScaledError(**how).measure(np.array([0.0]), rows)


@given(y=numbers, centre=numbers)
def test_scaled_errors_in_units_of_one_are_absolute_errors(y, centre):
    y, y_pred = np.array([y]), np.array([centre])
    rows = np.array([[centre, 1.0, 1.0]])
    measured = AbsoluteError().measure(y, y_pred)
    np.testing.assert_array_equal(ScaledError().measure(y, rows), measured)
    ends = AbsoluteError().invert(y_pred, measured)
    found, digits = (
        ScaledError().invert(rows, measured),
        1e-14 * (abs(centre) + measured[0]),
    )
    np.testing.assert_allclose(found, ends, rtol=1e-12, atol=digits + 1e-300)


def test_scaled_errors_have_no_bound_where_the_radius_has_none():
    rows = np.array([[0.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    lower, upper = ScaledError().invert(rows, np.array([np.inf, 1.0]))
    assert lower[0] == -np.inf and upper[0] == np.inf
    np.testing.assert_allclose([lower[1], upper[1]], [-1.0, 4.0])
    flat = ScaledError().invert(np.array([[0.0, 0.0, 1.0]]), np.array([np.inf]))
    assert flat == (-np.inf, np.inf)


def test_the_centre_goes_with_each_level():
    ends = Intervals([[0, -1]], [[1, 2]], coverage=(0.5, 0.9), centre=np.array([0.5]))
    assert ends.at(0.9).centre is ends.centre and Intervals([0.0], [1.0]).centre is None


@given(y=st.tuples(numbers, numbers), y_pred=st.tuples(numbers, numbers), unit=units)
def test_joint_errors_and_their_boxes_belong_together(y, y_pred, unit):
    """The worst target in its unit decides; its own score covers a row without slack."""
    score, y, y_pred = JointError([1.0, unit]), np.array([y]), np.array([y_pred])
    errors = (y - y_pred)[0] / [1.0, unit]
    measured = score.measure(y, y_pred)
    assert measured == np.abs(errors).max() and score.magnitude(y, y_pred) == measured
    assert score.signed(y, y_pred) in errors and np.abs(score.signed(y, y_pred)) == measured
    assume(measured[0] != 0 or (y == y_pred).all())  # a quotient that is smaller than any number
    lower, upper = score.invert(y_pred, measured)
    assert (lower <= y).all() and (y <= upper).all()
    np.testing.assert_allclose(upper - y_pred, [measured[0] * np.array([1.0, unit])], atol=1e-8)
    np.testing.assert_allclose(y_pred - lower, [measured[0] * np.array([1.0, unit])], atol=1e-8)
    assert score.n_outputs == 2 and score.centre(y_pred) is y_pred


def test_joint_errors_say_what_they_take():
    for y, y_pred in ([[1.0, 2.0]], [[1.0]]), ([1.0, 2.0], [1.0, 2.0]), ([[1.0]], [[1.0]]):
        with pytest.raises(CalliperError, match=r"JointError takes .* shape \(n, 2\)"):
            JointError([1.0, 1.0]).measure(np.array(y), np.array(y_pred))
    for units in ([1.0, 0.0], [-1.0, 1.0]):
        with pytest.raises(CalliperError, match="units must be positive"):
            _ = JointError(units).n_outputs


def test_unknown_sides_and_variants_are_refused():
    with pytest.raises(ValueError, match="side must be 'both', 'lower' or 'upper'; got 'left'"):
        _ = SignedError("left").n_tails
    with pytest.raises(ValueError, match=r"variant must be 'plain', .* got 'other'"):
        _ = QuantileError("other").n_tails
    with pytest.raises(ValueError, match="offset must be positive"):
        QuantileError("ratio", offset=0.0).centre(np.array([[0.0, 1.0]]))


def test_an_end_that_is_no_number_is_no_bound():
    rows, radius = np.array([[0.0, 1e300, 1e300]]), np.array([1e300])
    assert ScaledError().invert(rows, radius) == (-np.inf, np.inf)
    lower, upper = JointError([1e300]).invert(np.array([[0.0]]), radius)
    assert lower == -np.inf and upper == np.inf


def test_sides_have_their_own_radius():
    score, y_pred = SignedError(), np.array([10.0])
    lower, upper = score.invert(y_pred, np.array([[1.0, 3.0]]))
    np.testing.assert_allclose([lower[0], upper[0]], [9.0, 13.0])
    np.testing.assert_array_equal(
        score.measure(np.array([9.0, 13.0]), np.array([10.0, 10.0])), [[1.0, 0.0], [0.0, 3.0]]
    )
    lower, upper = SignedError("lower").invert(y_pred, np.array([[1.0, 2.0]]).T)
    assert lower.shape == upper.shape == (2, 1) and (upper == np.inf).all()


def test_ends_of_products_move_by_a_few_last_digits():
    y = np.array([[1.0]])
    for score, rows, digits in (
        (JointError([1.0]), y, 4),
        (ScaledError(), np.array([[1.0, 1.0, 1.0]]), 5),
    ):
        further = 3.0 + digits * np.spacing(3.0)
        lower, upper = score.invert(rows, np.array([3.0]))
        assert np.ravel(lower) == np.nextafter(1.0 - further, -np.inf)
        assert np.ravel(upper) == np.nextafter(1.0 + further, np.inf)


@pytest.mark.parametrize(
    ("variant", "row", "radius", "digits"),
    [
        ("plain", [1.0, 2.0], [3.0], 1),
        ("asymmetric", [1.0, 2.0], [[3.0, 3.0]], 1),
        ("ratio", [1.0, 2.0], [1.5], 4),  # a width of two
        ("median", [1.0, 2.0, 2.0], [1.5], 4),  # of two below, and of one above
    ],
)
def test_quantiles_move_by_the_digits_that_their_unit_costs(variant, row, radius, digits):
    score = QuantileError(variant, offset=1.0)
    (lower,), (upper,) = score.invert(np.array([row]), np.array(radius))
    up = 1.5 if variant == "median" else 3.0
    assert lower == np.nextafter(1.0 - (3.0 + digits * np.spacing(3.0)), -np.inf)
    assert upper == np.nextafter(2.0 + (up + digits * np.spacing(up)), np.inf)


def test_quantiles_that_coincide_are_a_millionth_apart():
    assert QuantileError("ratio").measure(np.array([2.0]), np.ones((1, 2))) == 1 / 1e-6


def test_some_rows_of_intervals_are_intervals_with_all_that_is_known():
    lower, labels = np.arange(8.0).reshape(4, 2), pd.Index(list("abcd"))
    intervals = Intervals(lower, lower + 1, (0.5, 0.9), labels, np.arange(4.0))
    mask = np.array([True, False, False, True])
    nullable = pd.array([True, False, False, True], dtype="boolean")
    series = pd.Series(mask, labels)
    for rows in (mask, series, nullable, [0, 3], slice(0, 4, 3), np.array([0, -1])):
        some = intervals[rows]
        np.testing.assert_array_equal(some.lower, lower[[0, 3]])
        np.testing.assert_array_equal(some.upper, lower[[0, 3]] + 1)
        assert some.coverage == (0.5, 0.9) and [*some.index] == ["a", "d"]
        np.testing.assert_array_equal(some.centre, [0, 3])
    assert intervals[[]].lower.shape == (0, 2)
    assert Intervals([0.0, 1.0], [1.0, 2.0], index=["x", "y"])[1:].index == ["y"]
    assert isinstance(Intervals(*np.zeros((2, 9)), index=pd.RangeIndex(9))[:5].index, pd.RangeIndex)


@pytest.mark.parametrize("rows", [0, (0, 1), "lower", [0.5], [[0, 1]], [None, True]])
def test_what_picks_no_rows_is_refused(rows):
    with pytest.raises(CalliperError, match=r"selects rows.*intervals\[\[0\]\]"):
        Intervals([0.0, 1.0], [1.0, 2.0])[rows if rows != (0, 1) else (slice(None), 1)]


@pytest.mark.parametrize("rows", [[True], [2], [-3]])
def test_rows_that_are_not_there(rows):
    with pytest.raises(IndexError, match="there are 2 intervals"):
        Intervals([0.0, 1.0], [1.0, 2.0])[rows]


def test_intervals_as_an_array():
    one = Intervals([0.0, 1.0], [1.0, 2.0])
    np.testing.assert_array_equal(np.asarray(one), [[0, 1], [1, 2]])
    assert np.array(one, dtype=np.float32).dtype == np.float32
    several = Intervals(np.zeros((4, 3)), np.ones((4, 3)), (0.1, 0.2, 0.3))
    assert np.asarray(several).shape == (4, 2, 3)
    with pytest.raises(ValueError, match="copy"):
        np.array(one, copy=False)


def test_no_length_and_why():
    intervals = Intervals(np.zeros(3), np.ones(3))
    with pytest.raises(TypeError, match=r"unpack as lower, upper = intervals: .* rows, 3"):
        len(intervals)
    assert intervals and len([*intervals]) == 2


def test_scores_have_names_on_the_command_line():
    said = {name: repr(score) for name, score in named_scores().items()}
    both = {side: f"SignedError(side={side!r})" for side in ("lower", "upper")}
    assert said == {"absolute": "AbsoluteError()", "signed": "SignedError()", **both}


def test_what_is_no_score_is_refused():
    with pytest.raises(TypeError, match="score_function must be a score such as"):
        as_score("absolute")


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ({}, ""),
        ({"lowest": 0.0}, "cut off at 0, where targets end"),
        ({"lowest": 0.0, "highest": 1.5}, "cut off at 0 and 1.5, where targets end"),
    ],
)
def test_ends_are_said_in_words(ends, said):
    words = ScaledError(**ends).describe_ends()
    assert words.startswith(said) and bool(words) == bool(ends)


def test_a_score_of_ones_own_has_no_signs_unless_it_says_so():
    class Own(AbsoluteError.__base__):
        def invert(self, y_pred, radius):
            return y_pred - radius, y_pred + radius

    for ask in (Own().signed, Own().target_at):
        with pytest.raises(NotImplementedError):
            ask(np.ones(1), np.ones(1))


def test_targets_beyond_an_end_are_further_out_by_as_much():
    score = ScaledError(lowest=0.0, highest=4.0, beyond=100.0)
    rows = np.tile([2.0, 1.0, 4.0], (4, 1))
    found = score.signed(np.array([-1.0, 0.0, 4.0, 6.0]), rows)
    np.testing.assert_array_equal(found, [-103.0, -2.0, 0.5, 101.0])


def test_beyond_an_end_a_target_is_held_at_its_own_radius_and_none_before():
    """Also where what is added for the end is so much that digits of the rest are lost."""
    rng = np.random.default_rng(0)
    y = np.append(-rng.exponential(size=50), 4 + rng.exponential(size=50))
    rows = rng.uniform(1, 3, size=(100, 3))
    score = ScaledError(lowest=0.0, highest=4.0, beyond=1e6)
    lower, upper = score.invert(rows, score.measure(y, rows))
    assert ((lower <= y) & (y <= upper)).all() and (upper > 4).sum() >= 50
    lower, upper = score.invert(rows, np.full(100, 1e6 - 1))
    assert (lower == 0).all() and (upper == 4).all()


def test_no_room_without_an_end_pulls_nothing():
    rows = np.array([[2.0, 1.0, 1.0]])
    lower, upper = ScaledError(lowest=0.0, pull=2.0).invert(rows, np.ones(1))
    np.testing.assert_allclose([lower[0], upper[0]], [-2.0, 3.0])


def test_a_target_is_placed_where_its_score_says_and_no_further():
    rows = np.tile([2.0, 1.0, 4.0], (3, 1))
    found = ScaledError().target_at(rows, np.array([-0.3, 0.0, 0.7]))
    np.testing.assert_array_equal(found, [2.0 - 0.3, 2.0, 2.0 + 0.7 * 4.0])
