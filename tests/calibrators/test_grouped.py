"""Groups: the promise in each, whatever the calibrator."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LinearRegression

from calliper import (
    KNN,
    RBF,
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    SignedError,
    Split,
)
from calliper.calibrators import (
    LCP,
    RLCP,
    ConditionalCalibration,
    Grouped,
    LoCart,
    MADSplit,
    as_calibrator,
)
from calliper.calibrators._calibrator import refuse_distribution
from calliper.exceptions import CalliperError, SmallCalibrationWarning
from calliper.guarantees import conformal_coverage, jackknife_coverage

NOISE = {"calm": 1.0, "loud": 4.0}


def draw(rng, n):
    """A quarter of the rows are loud; nothing in the features says so."""
    group = rng.choice(["calm", "loud"], size=n, p=[0.75, 0.25])
    scale = np.where(group == "loud", NOISE["loud"], NOISE["calm"])
    return rng.uniform(size=(n, 1)), np.abs(rng.normal(size=n)) * scale, group


@pytest.mark.parametrize(
    "method", [Split(), FullRescaled(KNN(5)), JackknifeRescaled(RBF(0.2))], ids=repr
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_coverage_in_each_group_over_draws(method):
    rng, n_draws = np.random.default_rng(3), 100
    grouped, plain = np.full((2, 2, n_draws), np.nan)
    for repetition in range(n_draws):
        Z, scores, group = draw(rng, 80)
        new, truth, asked = draw(rng, 240)
        fitted = Grouped(method).fit(Z, scores, groups=group)
        inside = truth <= fitted.predict_radius(new, 0.8, groups=asked)
        without = truth <= method.fit(Z, scores).predict_radius(new, 0.8)
        for place, label in enumerate(NOISE):
            grouped[place, repetition] = inside[asked == label].mean()
            plain[place, repetition] = without[asked == label].mean()
    error = grouped.std(axis=1) / np.sqrt(n_draws)
    promise = 0.6 if isinstance(method, JackknifeRescaled) else 0.8
    assert (grouped.mean(axis=1) > promise - 4 * error).all()
    assert plain[1].mean() < 0.8 - 0.1, (
        "without groups the loud are clearly below, or it says nothing"
    )


METHODS = [
    Split(),
    FullRescaled(random_state=0),
    FullRescaled(KNN(5), statistic="quantile"),
    JackknifeRescaled(),
    MADSplit(),
    LoCart(random_state=0),
    LCP(bandwidth=0.5),
    RLCP(0.5, random_state=0),
    ConditionalCalibration(),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_each_group_is_calibrated_on_its_own_rows_alone(method):
    rng = np.random.default_rng(0)
    Z, scores, group = draw(rng, 160)
    new, _, asked = draw(rng, 40)
    known = {"training": draw(rng, 80)[:2]}
    known = known if method.uses.needs else {}
    fitted = Grouped(method).fit(Z, scores, groups=group, **known)
    radius = fitted.predict_radius(new, [0.5, 0.8], groups=asked)
    promise = []
    for label in NOISE:
        own = clone(method).fit(Z[group == label], scores[group == label], **known)
        np.testing.assert_array_equal(
            radius[asked == label], own.predict_radius(new[asked == label], [0.5, 0.8])
        )
        promise.append(own.guaranteed_coverage(0.8))
    assert fitted.guaranteed_coverage(0.8) == min(promise)
    assert "in each of the 2 groups" in fitted.guarantee(0.8).describe()


def test_words_name_groups_without_a_finite_interval():
    few = Grouped(Split()).fit(np.zeros((50, 1)), np.arange(50.0), groups=np.arange(50) < 4)
    words = few.guarantee(0.9).describe()
    assert "infinite, with too few rows, in 1: True)" in words
    assert "its calibration rows (46 in the group with this guarantee)" in words
    assert "too few rows" not in few.guarantee(0.5).describe()


def test_small_and_unseen_groups_are_infinite_with_one_warning():
    group = np.repeat(["big", "small", "only here"], [40, 5, 12])
    scores = np.arange(57.0)
    fitted = Grouped(Split()).fit(np.zeros((57, 1)), scores, groups=group)
    asked = ["big", "small", "never", "never"]
    with pytest.warns(SmallCalibrationWarning) as caught:
        radius = fitted.predict_radius(np.zeros((4, 1)), [0.8, 0.9], groups=asked)
    (message,) = [str(each.message) for each in caught]
    assert "group 'never' has 0 (9 more needed), group 'small' has 5 (4 more needed)" in message
    assert "Coverage 0.9 needs at least 9" in message
    np.testing.assert_array_equal(radius[0], np.sort(scores[:40])[[32, 36]])
    np.testing.assert_array_equal(radius[1], [44.0, np.inf])
    assert np.isinf(radius[2:]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict_radius(np.zeros((1, 1)), 0.9, groups=["only here"])


def test_confidence_holds_in_each_group_and_is_refused_where_there_is_no_law():
    group, scores = np.repeat([0, 1], [40, 20]), np.arange(60.0)
    fitted = Grouped(Split()).fit(np.zeros((60, 1)), scores, groups=group)
    with pytest.warns(SmallCalibrationWarning, match=r"group 1 has 20 \(9 more needed"):
        radius = fitted.predict_radius(np.zeros((2, 1)), 0.9, groups=[0, 1], confidence=0.95)
    own = Split().fit(np.zeros((40, 1)), scores[:40])
    np.testing.assert_array_equal(
        radius, [own.predict_radius([[0.0]], 0.9, confidence=0.95)[0], np.inf]
    )
    assert "95 % of draws" in fitted.guarantee(0.9, 0.95).describe()
    fitted = Grouped(FullRescaled(KNN(2))).fit(np.zeros((60, 1)), scores, groups=group)
    with pytest.raises(CalliperError, match="FullRescaled does not support confidence"):
        fitted.predict_radius(np.zeros((2, 1)), 0.9, groups=[7, 8], confidence=0.95)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (None, "needs the group of each row"),
        (["a"] * 9, r"one value for each of the 10 rows; got shape \(9,\)"),
        ([["a", "b"]] * 10, r"got shape \(10, 2\)"),
        (["a"] * 9 + [None], "at position 9.. Fill"),
        ([1.0] * 4 + [np.nan] * 6, "at position 4.. Fill"),
        (pd.array([1] * 3 + [None] * 7, dtype="Int64"), "at position 3.. Fill"),
        ("site", "must name a column of X; its columns have no names"),
    ],
)
def test_bad_groups(groups, message):
    Z, scores = np.zeros((10, 1)), np.arange(10.0)
    with pytest.raises(CalliperError, match=message):
        Grouped(Split()).fit(Z, scores, groups=groups)
    fitted = Grouped(Split()).fit(Z, scores, groups=["a"] * 10)
    with pytest.raises(CalliperError, match=message):
        fitted.predict_radius(Z, 0.5, groups=groups)


RNG = np.random.default_rng(5)
FRAME = pd.DataFrame({"x": RNG.normal(size=600), "site": RNG.integers(0, 3, size=600)})
Y = FRAME["x"].to_numpy() + RNG.normal(size=600) * (1 + 2 * FRAME["site"].to_numpy())
TRAIN, CAL, NEW = slice(0, 200), slice(200, 500), slice(500, 600)
MODEL = LinearRegression().fit(FRAME[TRAIN], Y[TRAIN])


def calibrated(groups, **options):
    method = ConformalRegressor(MODEL, options.pop("calibrator", None), random_state=0, **options)
    return method.calibrate(
        FRAME[CAL], Y[CAL], X_train=FRAME[TRAIN], y_train=Y[TRAIN], groups=groups
    )


@pytest.mark.parametrize("score", [None, SignedError()], ids=repr)
def test_values_a_column_and_a_function_are_the_same_groups(score):
    site, new = FRAME["site"], FRAME[NEW]
    how = {"coverage": [0.5, 0.9], "bounds": (-12, 12)}
    by_values = calibrated(site[CAL], score_function=score)
    expected = by_values.predict_interval(new, groups=site[NEW].to_numpy(), **how)
    for given in ("site", lambda X: X["site"]):
        method = calibrated(given, score_function=score)
        found = method.predict_interval(new, **how)
        np.testing.assert_array_equal(found.lower, expected.lower)
        np.testing.assert_array_equal(found.upper, expected.upper)
        assert (found.to_frame().index == new.index).all()
    assert "by FullRescaled in each of the 3 groups" in repr(by_values)
    words = by_values.guarantee(0.9).describe()
    assert "in each of the 3 groups" in words and "This holds if within each group" in words
    assert (
        "within each group: an average over its inputs and" in words and "all inputs" not in words
    )
    copied = pickle.loads(pickle.dumps(calibrated("site", score_function=score)))
    np.testing.assert_array_equal(copied.predict_interval(new, **how).upper, expected.upper)
    copied = pickle.loads(pickle.dumps(by_values))
    with pytest.raises(CalliperError, match="pass groups= for the new rows"):
        copied.predict_interval(new)
    proved = [c.n_calibration_ for c in by_values.calibrators_[0].calibrators_.values()]
    if score is None:
        assert by_values.guaranteed_coverage(0.9) == min(conformal_coverage(0.9, n) for n in proved)


def test_fit_takes_a_calibrator_that_knows_its_groups():
    method = ConformalRegressor(
        LinearRegression(), Grouped(Split(), groups="site"), random_state=0
    ).fit(FRAME, Y)
    width = method.predict_interval(FRAME[NEW]).width
    by_site = [width[FRAME["site"][NEW] == site] for site in range(3)]
    assert all(np.ptp(part) < 1e-9 for part in by_site)
    assert by_site[0][0] < by_site[1][0] < by_site[2][0]
    again = clone(method)
    assert again.calibrator.groups == "site" and again.calibrator is not method.calibrator


def test_groups_must_be_given_at_both_ends():
    with pytest.raises(CalliperError, match="also pass groups= for the new rows"):
        calibrated(FRAME["site"][CAL]).predict_interval(FRAME[NEW])
    with pytest.raises(CalliperError, match="not for calibration: also pass groups= to calibrate"):
        calibrated(None).predict_interval(FRAME[NEW], groups="site")
    with pytest.raises(
        CalliperError, match=r"must name a column of X; its columns are \['x', 'site'\]"
    ):
        calibrated("town")
    with pytest.raises(CalliperError, match="needs the group of each row"):
        calibrated(None, calibrator=Grouped(Split()))


def test_jackknife_promises_its_own_in_each_group():
    method = calibrated("site", calibrator=JackknifeRescaled())
    sizes = [own.n_calibration_ for own in method.calibrator_.calibrators_.values()]
    assert method.guaranteed_coverage(0.9) == min(jackknife_coverage(0.9, n) for n in sizes)


def test_groups_are_needed_and_what_the_method_needs():
    assert Grouped(Split()).uses.needs == ("groups",)
    assert Grouped(MADSplit()).uses.needs == ("groups", *MADSplit().uses.needs)


def test_a_length_scale_for_the_points_that_there_are_now():
    rng = np.random.default_rng(0)
    Z, scores, groups = rng.normal(size=(80, 2)), rng.exponential(size=80), np.arange(80) % 2
    made = Grouped(FullRescaled()).fit(Z[:60], scores[:60], groups=groups[:60], length_scale=2.0)
    assert made.extend(Z[60:], scores[60:], groups=groups[60:], length_scale=0.5) is made
    anew = Grouped(FullRescaled()).fit(Z, scores, groups=groups, length_scale=0.5)
    wide = Grouped(FullRescaled()).fit(Z, scores, groups=groups, length_scale=2.0)
    radii = [each.predict_radius(Z, 0.8, groups=groups) for each in (made, anew, wide)]
    np.testing.assert_array_equal(radii[0], radii[1])
    assert (radii[0] != radii[2]).any()


def test_a_calibrator_that_says_little_of_itself():
    """One that is no ``Calibrator`` is taken to judge nearness, to need nothing, to have no law."""

    class Largest(BaseEstimator):
        weights_ = None

        def fit(self, Z, scores):
            self.largest_, self.n_calibration_ = np.max(scores), len(scores)
            return self

        def predict_radius(self, Z, coverage):
            assert len(coverage)  # nobody asks where no level is in reach
            return np.full((len(Z), len(coverage)), self.largest_)

    method = Grouped(Largest())
    assert (
        method.judges_nearness and not method.has_distribution and method.uses.needs == ("groups",)
    )
    group = np.repeat(["a", "b"], 20)
    method.fit(np.zeros((40, 1)), np.arange(40.0), groups=group)
    assert method.predict_radius(np.zeros((2, 1)), groups=["a", "b"]).tolist() == [19.0, 39.0]
    with pytest.warns(SmallCalibrationWarning, match=r"'a' has 20 \(19 more needed"):
        assert np.isinf(method.predict_radius(np.zeros((1, 1)), 0.975, groups=["a"])).all()
    with pytest.raises(CalliperError, match="not support predictive distributions"):
        method.predict_distribution(np.zeros((2, 1)), np.zeros(2), groups=["a", "b"])
    with pytest.raises(CalliperError, match="not support predictive distributions"):
        refuse_distribution(as_calibrator(Largest()))


def test_with_weights_a_group_of_few_rows_may_be_enough():
    """New rows that are rare count for little: five rows of others reach 0.9."""
    scores, ones = np.arange(10.0), np.ones(10)
    group = np.repeat(["a", "b"], 5)
    method = Grouped(Split()).fit(np.zeros((10, 1)), scores, groups=group, weights=ones)
    light = {"groups": ["a", "b"], "weights": np.array([0.1, 0.1])}
    assert method.predict_radius(np.zeros((2, 1)), 0.9, **light).tolist() == [4.0, 9.0]
    leaves = Grouped(LoCart(max_leaves=1)).fit(
        np.zeros((10, 1)), scores, groups=group, training=(np.zeros((9, 1)), ones[:9])
    )
    assert leaves.predict_radius(np.zeros((1, 1)), 0.8, groups=["b"]) == 9.0


def test_a_promise_counts_the_groups_without_finite_intervals():
    sizes = [30, 40, 3, 4, 3, 3, 3, 3]
    for n_groups, words in [
        (3, r"infinite, with too few rows, in 1: 2\)"),
        (4, r"rows, in 2: 2, 3\)"),
        (7, r"rows, in 5: 2, 3, 4, 5, 6\)"),
        (8, r"rows, in 6: 2, 3, 4, 5, 6, …\)"),
    ]:
        group = np.repeat(np.arange(n_groups), sizes[:n_groups])
        method = Grouped(Split()).fit(np.zeros((len(group), 1)), group * 1.0, groups=group)
        assert re.search(words, method.guarantee(0.9).method)
        assert "want of points" not in method.guarantee(0.5).method
        assert "want of points" not in method.guarantee(0.99).method


@pytest.mark.parametrize(
    ("n_groups", "rest"),
    [(5, "(7 more needed): intervals"), (7, "2 more groups have too few: intervals")],
)
def test_of_many_groups_that_lack_rows_the_first_are_named(n_groups, rest):
    group = np.repeat(np.arange(n_groups), 2)
    method = Grouped(Split()).fit(np.zeros((len(group), 1)), group * 1.0, groups=group)
    with pytest.warns(SmallCalibrationWarning, match=re.escape(rest)) as caught:
        method.predict_radius(np.zeros((len(group), 1)), 0.9, groups=group)
    assert str(caught[0].message).count("has 2") == 5


def test_a_group_of_just_enough_rows_has_finite_intervals():
    group = np.repeat(["few", "enough"], [8, 9])
    method = Grouped(Split()).fit(np.zeros((17, 1)), np.arange(17.0), groups=group)
    with pytest.warns(SmallCalibrationWarning, match=r"'few' has 8 \(1 more needed"):
        radius = method.predict_radius(np.zeros((2, 1)), 0.9, groups=["few", "enough"])
    assert radius.tolist() == [np.inf, 16.0]


@pytest.mark.parametrize("scores", [{"a": 1.0, "b": 2.0}, "ab", None, csr_matrix(np.ones((2, 1)))])
def test_scores_that_have_no_rows_are_refused(scores):
    with pytest.raises((CalliperError, TypeError), match=r"scores (must |is sparse)"):
        Grouped(Split()).fit(np.zeros((2, 1)), scores, groups=["a", "a"])


def test_rows_and_what_is_known_of_them_are_as_many():
    """More scores or weights than rows would be cut off at the last row of a group."""
    Z, scores, group = np.zeros((20, 1)), np.arange(20.0), np.repeat(["a", "b"], 10)
    method = Grouped(Split()).fit(Z, scores, groups=group, weights=np.ones(20))
    for more in ({"scores": np.arange(21.0)}, {"weights": np.ones(21)}, {"scores": scores[:19]}):
        given = {"scores": scores, "groups": group, "weights": np.ones(20)} | more
        for act in (clone(method).fit, method.extend):
            with pytest.raises(ValueError, match=r"(scores|weights) must .* got \d+ values"):
                act(Z, **given)
    assert method.n_calibration_ == 20
