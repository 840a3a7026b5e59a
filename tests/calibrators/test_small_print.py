"""What calibrators do by default, at the ends of ranges and in rare branches: by definition."""

import inspect
import math
import re
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from calliper import (
    KNN,
    CalliperError,
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    Split,
    calibrators,
    kernels,
    scores,
)
from calliper._kept import Number
from calliper.calibrators import (
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    Grouped,
    LoCart,
    NormalizedKNN,
    _calibrator,
    _learnt_scales,
)
from calliper.calibrators._calibrator import as_calibrator, methods
from calliper.calibrators._full_rescaled import locality_rule, search_locality
from calliper.calibrators._local_quantiles import widening_factor
from calliper.declarations import About
from calliper.exceptions import ShiftWarning, SmallCalibrationWarning
from calliper.guarantees import confident_rank
from calliper.kernels import TunedRBF, learn_metric
from calliper.lab.bounds import _excess, plug_in_local_coverage
from calliper.quantile import Shares, conformal_rank, exponent, row_thresholds
from calliper.rows import Rows

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def draw(n, d=1, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.exponential(size=n)


def test_levels_and_settings_that_nobody_gives_are_those_documented():
    Z, scores = draw(40)
    weights, new = np.linspace(1, 2, 40), np.ones(3)
    method = Split().fit(Z, scores, weights=weights)
    assert method.shift_report(new) == method.shift_report(new, 0.9)
    assert method.guaranteed_coverage() == method.guaranteed_coverage(0.9)
    grouped = Grouped(Split()).fit(Z, scores, groups=np.arange(40) % 2)
    assert grouped.guarantee() == grouped.guarantee(0.9)
    learnt = inspect.signature(learn_metric).parameters
    for name in ("n_directions", "smoothing", "max_iter"):
        assert LVD().get_params()[name] == learnt[name].default
    trained = {"training": (Z[20:], None, scores[20:])}
    kind = {"n_neighbors": 3, "difficulty": "distance+labels", "form": "exp"}
    usual, said = NormalizedKNN(**kind), NormalizedKNN(**kind, rho=0.5)
    radii = [each.fit(Z[:20], scores[:20], **trained).predict_radius(Z) for each in (usual, said)]
    np.testing.assert_array_equal(*radii)
    found = plug_in_local_coverage(Z, scores, 0.9, 0.5, random_state=0)
    assert found.mutual_information.n_neighbors == 10


def test_wrong_weights_of_further_points_are_told_by_their_own_places():
    Z, scores = draw(20)
    method = Split().fit(Z, scores, weights=np.ones(20))
    with pytest.raises(CalliperError, match=r"1 of 3 values is negative \(-2.0 at position 1\)\."):
        method.extend(Z[:3], scores[:3], weights=[1.0, -2.0, 1.0])


def test_further_points_may_all_be_of_no_weight():
    Z, scores = draw(20)
    weights = np.linspace(1, 2, 20)
    method = Split().fit(Z, scores, weights=weights)
    expected = method.predict_radius(Z[:1], 0.5, weights=[1.0])
    method.extend(Z[:3], scores[:3], weights=np.zeros(3))
    assert method.n_calibration_ == 23
    assert method.predict_radius(Z[:1], 0.5, weights=[1.0]) == expected


def test_poor_weights_are_judged_by_the_highest_level():
    """Thirty-nine of one weight suffice for 0.9, and not for 0.99."""
    Z, scores = draw(40)
    method = Split().fit(Z, scores, weights=np.append(np.ones(39), 1.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShiftWarning)
        method.predict_radius(Z, [0.5, 0.9], weights=np.ones(40))
    with pytest.warns(ShiftWarning, match="Intervals are valid but uninformative"):
        method.predict_radius(Z, [0.5, 0.99], weights=np.ones(40))


def test_levels_that_were_asked_for_are_known_and_rows_that_are_counted_are_not_kept():
    Z, scores = draw(40)
    method = Split().fit(Z, scores)
    method.predict_radius(Z, [0.5, 0.9])
    method.predict_radius(Z, 0.8)
    assert method.levels_asked_ == {0.5, 0.8, 0.9} and method._rows.Z.shape == (0, 1)
    assert method.fit(Z, scores).levels_asked_ == set()


def test_a_negative_threshold_is_rounded_towards_zero():
    """A tie must be covered: the radius is not below the score that it comes from."""
    scores = -draw(50)[1]
    method = ConditionalCalibration(basis=lambda Z: np.ones((len(Z), 1))).fit(
        np.zeros((50, 1)), scores
    )
    for level in (0.2, 0.5, 0.9):
        tied = np.sort(scores)[conformal_rank(level, 50) - 1]
        assert tied <= method.predict_radius([[0.0]], level)[0] <= tied + 1e-9


def test_the_basis_is_asked_with_the_frame_that_was_passed():
    Z, scores = draw(60, 2)
    frame = pd.DataFrame({"x": Z[:, 0], "group": np.where(Z[:, 1] > 0, "north", "south")})
    model = FunctionTransformer(lambda rows: rows[["x"]])
    model = make_pipeline(model, LinearRegression()).fit(frame[:20], scores[:20])
    north = ConditionalCalibration(basis=lambda rows: (rows[["group"]] == "north").to_numpy())
    method = ConformalRegressor(model, calibrator=north).calibrate(frame[20:], scores[20:])
    interval = method.predict_interval(frame, 0.5)
    error = np.abs(scores - model.predict(frame))[20:]
    alone = north.fit(frame[20:], error).predict_radius(frame, 0.5)
    np.testing.assert_allclose(interval.upper - interval.lower, 2 * alone, rtol=1e-9)


def test_with_a_confidence_the_smallest_group_with_finite_intervals_is_the_worst():
    Z, scores = draw(300)
    grouped = Grouped(Split()).fit(Z, scores, groups=np.repeat(["a", "b"], [100, 200]))
    assert grouped.guarantee(0.8, 0.9).n_calibration == 100


def test_groups_that_lack_most_are_named_first():
    Z, scores = draw(8)
    groups = np.repeat(["a", "b"], [5, 3])
    grouped = Grouped(Split()).fit(Z, scores, groups=groups)
    with pytest.warns(SmallCalibrationWarning, match=r"'b' has 3 .*'a' has 5"):
        grouped.predict_radius(Z, 0.9, groups=groups)


@pytest.mark.parametrize(("n", "searched"), [(3, 0), (4, 70), (5, 70)])
def test_errors_are_searched_as_soon_as_a_bag_reaches_a_level(n, searched):
    """Of N + 1 members N calibrate: 4 of them reach 0.8, and 3 do not."""
    Z, errors = draw(70, 2)
    rule = locality_rule(n, None, None, statistic="mean", dimensions=2)
    rng = np.random.RandomState(0)
    found = search_locality(rule, Rows(Z, errors), n, free=True, offset=0.0, rng=rng)
    assert found.n_errors == searched


def test_interval_scores_are_averaged_over_three_levels():
    Z, errors = draw(60)
    rule = locality_rule(60, None, 0.25, statistic="mean", dimensions=1)
    found = search_locality(
        rule, Rows(Z, errors), 60, free=False, offset=0.0, rng=np.random.RandomState(0)
    )
    distance = np.abs(Z - Z.T) + np.diag(np.full(60, np.inf))
    near = np.argsort(distance, axis=1)[:, : found.kernel.n_neighbors]
    scale = 0.75 * errors[near].mean(axis=1) + 0.25 * np.sort(errors)[29]

    def score(scale, level):
        total = 0.0
        for i in range(60):
            ratio = np.sort(np.delete(errors / scale, i))
            radius = scale[i] * ratio[conformal_rank(level, 59) - 1]
            total += radius + max(errors[i] - radius, 0.0) / (1 - level)
        return total

    ratios = [score(scale, level) / score(np.ones(60), level) for level in (0.8, 0.9, 0.95)]
    assert found.against_split == pytest.approx(np.mean(ratios), rel=1e-9)


@pytest.mark.parametrize(("before", "now", "same"), [(98, 99, False), (99, 100, True)])
def test_a_search_stays_only_if_its_bags_do(before, now, same):
    """Bags have N + 1 members, or all 100 left-out errors."""
    Z, scores = draw(now, 2, seed=0)
    method = FullRescaled(random_state=0)
    method.fit(Z[:before], scores[:before], left_out=draw(100, 2, seed=1))
    assert method._stays(Rows(Z, scores), method) is same


@pytest.mark.parametrize("n", [6, 7, 8, 9])
@pytest.mark.parametrize("level", [0.3, 0.5, 0.7])
def test_the_global_scale_is_the_lower_median_of_the_bag(n, level):
    Z, scores = draw(n, 2, seed=n)
    new = draw(8, 2, seed=100)[0]
    method = FullRescaled(KNN(2), shrinkage=0.5).fit(Z, scores)
    for z, radius in zip(new, method.predict_radius(new, level), strict=True):
        bag = np.vstack([Z, z])
        distance = np.square(bag[:, None] - bag).sum(axis=2) + np.diag(np.full(n + 1, np.inf))
        near = np.argsort(distance, axis=1)[:, :2]

        def kept(t, near=near):
            sizes = np.append(scores, t)
            middle = np.sort(sizes)[math.ceil((n + 1) / 2) - 1]
            ratio = sizes / (sizes[near].mean(axis=1) + middle)
            return np.sum(ratio[:-1] < ratio[-1]) < conformal_rank(level, n)

        assert kept(radius * (1 - 1e-9)) and not kept(radius * (1 + 1e-9))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_tree_takes_the_largest_number_of_single_precision(sign):
    Z, scores = draw(60)
    Z[7] = sign * np.finfo(np.float32).max
    method = LoCart().fit(Z, scores, training=(Z, scores))
    assert method.predict_radius(Z[7:8], 0.5) > 0
    Z[7] *= 1.001
    with pytest.raises(CalliperError, match="Divide the features"):
        method.predict_radius(Z[7:8], 0.5)


def test_points_all_as_far_apart_count_in_full():
    """Of 21 such points each has 20 others of one weight, as many as a level of 0.9 takes."""
    assert widening_factor(np.eye(21), 0.9) == 1.0
    assert widening_factor(np.eye(20), 0.9) == 0.0


def test_local_quantiles_in_many_dimensions_are_those_of_the_definition():
    """Distances are taken by products there, up to a constant of the row."""
    Z, scores = draw(80, 12)
    metric = learn_metric(Z, scores, n_directions=12, max_iter=3, random_state=0)
    method = LVD(metric=metric).fit(Z[:60], scores[:60], training=(Z, None, scores))
    radius = method.predict_radius(Z[60:], 0.6)
    points, order = metric.transform(Z), np.argsort(scores[:60])
    expected = []
    for x in points[60:]:
        weight = np.exp(-np.square(points[:60] - x).sum(axis=1))[order]
        enough = np.flatnonzero(np.cumsum(weight) >= 0.6 * (weight.sum() + 1))
        expected.append(scores[order][enough[0]] if len(enough) else np.inf)
    np.testing.assert_array_equal(radius, expected)
    assert 0 < np.isfinite(radius).sum() < 20


def test_one_row_with_tied_neighbours_among_others_without():
    """At 1 the training rows 0 and 2 are as near, and share the place."""
    train, errors = np.array([[0.0], [2.0], [10.0], [13.0]]), np.array([1.0, 3.0, 5.0, 7.0])
    method = NormalizedKNN(1, difficulty="residuals", gamma=1.0)
    Z, scores = draw(30)
    method.fit(Z, scores, training=(train, errors))
    tied, alone = method.predict_radius([[1.0], [9.0]])
    unit = np.median([3.0, 1.0, 7.0, 5.0])  # of each training row's nearest other
    assert tied / alone == pytest.approx((1 + 2 / unit) / (1 + 5 / unit), rel=1e-9)


def test_weights_near_the_centre_may_reach_what_ranks_do_not():
    """Of 5 points none has rank ⌈0.85 · 6⌉; a centre among them, far from the row, weighs them."""
    Z, scores = draw(5, 2)
    method = RLCP(1.0, random_state=0).fit(Z, scores)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        radius = method.predict_radius(draw(200, 2, seed=1)[0] * 2, 0.85)
    assert 0 < np.isfinite(radius).sum() < 200


@pytest.mark.parametrize("x", [0.1, -0.1, 0.09, -0.09, 0.11, -0.11])
def test_both_forms_of_the_excess_meet(x):
    expected = math.fsum((-x) ** k / (k * (k - 1)) for k in range(2, 60))
    np.testing.assert_allclose(_excess(np.array([x])), [expected], rtol=1e-12)


def test_a_promise_with_weights_says_what_wrong_weights_cost():
    Z, scores = draw(40)
    weighted = Split().fit(Z, scores, weights=np.linspace(1, 2, 40)).guarantee(0.8).describe()
    plain = Split().fit(Z, scores).guarantee(0.8).describe()
    said = "Weights ŵ that are estimated lower it by at most half the mean of |ŵ/mean ŵ − w|."
    assert said in weighted and said not in plain


def test_the_least_confidence_takes_the_first_rank():
    assert confident_rank(0.5, 5, 1e-300) == 1


def test_a_sample_of_columns_that_tells_wrong_costs_no_answer():
    """Every eighth column is far above the others, and these alone are looked at first."""
    values = np.zeros((1, 1024))
    values[0] = np.linspace(0, 1, 1024)
    values[0, ::8] += 1000
    shares = Shares(np.linspace(0.5, 1.0, 1024), np.ones(1))
    for level in (0.05, 0.5, 0.9, 0.95, 0.98):
        order = np.argsort(values[0])
        reached = np.cumsum(shares.calibration[order])
        place = np.searchsorted(reached, level * (reached[-1] + 1))
        assert row_thresholds(values, [level], shares) == values[0, order[place]]


def test_the_exponent_is_that_of_the_largest_size():
    assert exponent(np.array([-3.0, 1.0])) == exponent(np.array([3.0, -1.0])) == 2


def test_a_class_of_ones_own_has_its_name_and_its_file(monkeypatch):
    monkeypatch.setattr(_calibrator, "_METHODS", methods())

    class Own(Split):
        about = About(cli="own", width="")
        learns = {"found_": Number()}  # noqa: RUF012

    class Kept(Own):
        keeps = {"other_": Number()}  # noqa: RUF012

    assert methods()["own"] is Own
    assert (*Own.keeps,) == (*_calibrator.ROWS, "found_")
    assert (*Kept.keeps,) == ("other_",)
    with pytest.raises(TypeError, match="keyword"):
        type("Wrong", (Split,), {}, word=1)


class Foreign(BaseEstimator):
    """A calibrator of another library."""

    def fit(self, Z, scores):
        self.radius_ = max(scores)
        return self

    def predict_radius(self, Z, coverage):
        return np.full((len(Z), len(coverage)), self.radius_)


@pytest.mark.parametrize("method", [Split(), Foreign()], ids=["own", "foreign"])
@pytest.mark.parametrize("name", ["groups", "weights"])
def test_what_a_method_does_not_use_is_refused_wherever_it_is_given(method, name):
    Z, scores = draw(20)
    given, method = {name: np.ones(20)}, as_calibrator(method)
    if name == "weights" and isinstance(method, Split):
        given = {"magnitudes": scores}
    word = f"does not support {next(iter(given))}"
    with pytest.raises(TypeError, match=word):
        method.fit(Z, scores, **given)
    method.fit(Z, scores)
    with pytest.raises(TypeError, match=word):
        method.extend(Z, scores, **given)
    if "magnitudes" not in given:
        with pytest.raises(TypeError, match=word):
            method.predict_radius(Z, **given)
        with pytest.raises((TypeError, CalliperError), match=f"{word}|distributions"):
            method.predict_distribution(Z, scores, **given)


@pytest.mark.parametrize("wrong", [Split, Foreign, 5, "split"])
def test_what_is_no_method_is_refused(wrong):
    with pytest.raises(
        TypeError, match=r"must be a calibration method such as FullRescaled\(\) or Split\(\)"
    ):
        as_calibrator(wrong)


def test_parameters_are_checked_again_when_points_are_added():
    Z, scores = draw(20)
    method = FullRescaled(KNN(5)).fit(Z, scores)
    before = method.predict_radius(Z, 0.5)
    with pytest.raises(ValueError, match="shrinkage must be"):
        method.set_params(shrinkage=2.0).extend(Z, scores)
    np.testing.assert_array_equal(method.predict_radius(Z, 0.5), before)


def test_so_many_levels_are_remembered(monkeypatch):
    monkeypatch.setattr(_calibrator, "MOST_LEVELS", 3)
    method = Split().fit(*draw(20))
    for level in (0.1, 0.2, 0.3, 0.4):
        method.predict_radius([[0.0]], level)
    assert method.levels_asked_ == {0.1, 0.2, 0.3}


def test_a_new_row_of_no_weight_is_refused():
    method = Split().fit(*draw(20), weights=np.ones(20))
    with pytest.raises(CalliperError, match="weights must be positive, but 1 of 2"):
        method.predict_radius([[0.0], [1.0]], weights=[1.0, 0.0])


@pytest.mark.parametrize("name", ["groups", "weights"])
def test_labels_of_new_rows_are_those_of_what_is_given_for_them(name):
    Z, scores = draw(20)
    new = pd.DataFrame({"x": [0.0, 1.0]}, index=["a", "b"])
    method = Split().fit(Z, scores, weights=np.ones(20))
    if name == "groups":
        method = Grouped(Split()).fit(Z, scores, groups=np.ones(20))
    with pytest.raises(CalliperError, match=f"{name} have the same row labels in different orders"):
        method.predict_radius(new, 0.5, **{name: pd.Series([1.0, 1.0], index=["b", "a"])})


def test_left_out_errors_are_checked():
    Z, scores = draw(20)
    with pytest.raises(CalliperError, match="scores of left_out"):
        FullRescaled().fit(Z, scores, left_out=(Z, scores - 9))


def test_the_share_below_a_score_counts_no_equal_ones():
    method = Split().fit(np.zeros((3, 1)), [1.0, 2.0, 3.0])
    assert method.share_below(np.zeros((2, 1)), np.array([2.0, 2.5])).tolist() == [0.25, 0.5]


FIVE = np.arange(5.0)


@pytest.mark.parametrize(
    ("known", "new", "n"),
    [
        (FIVE, FIVE, 5),  # the least, the largest and nought among them
        (FIVE, FIVE[1:], 0),
        (-1 - FIVE, -1 - FIVE, 5),
        (FIVE + 1, (FIVE + 1) * (1 + 9e-10), 5),
        (np.append(FIVE + 1, (FIVE + 1) * (1 - 1.5e-9)), FIVE + 1, 5),
        ((FIVE + 1) * (1 + 1.5e-9), FIVE + 1, 0),
        (FIVE / 1e3, FIVE / 1e3 * (1 + 1e-5), 0),
        (FIVE, FIVE + 10, 0),
        (FIVE, np.full(5, 2.0), 0),
        (np.append(np.arange(9.0), 0.0), FIVE, 5),  # one in ten is there twice
        (np.append(np.arange(8.0), (0.0, 1.0)), FIVE, 0),
        (FIVE, np.append(np.arange(10.0, 205.0), FIVE), 5),
        (FIVE, np.append(np.arange(10.0, 506.0), FIVE), 5),  # however many are new
        (np.arange(100.0) % 85, np.arange(85.0), 0),  # most of them, but they often coincide
        (np.arange(100.0) % 92, np.arange(72.0, 172.0), 0),  # twice as many as chance explains
        (np.arange(100.0) % 92, np.arange(71.0, 171.0), 21),
        (np.arange(4e4), np.arange(4e4) + 39994, 0),  # so many pairs that some are close
        (np.arange(4e4), np.arange(4e4) + 39993, 7),
    ],
)
def test_rows_with_the_errors_of_five_known_ones_are_pointed_out(known, new, n):
    method = Split().fit(np.zeros((len(known), 1)), known)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        method.warn_if_known(new)
    words = [f"{n} of the {len(new):,} new rows have the same errors"] * (n > 0)
    assert [str(each.message)[: len(words[0])] for each in said] == words


@dataclass
class Promise(Foreign):
    """A foreign calibrator that says what it promises."""

    def guaranteed_coverage(self, coverage):
        return coverage - 0.05

    def guarantee(self, coverage):
        return f"at least {coverage - 0.05:.2f}"


def test_a_foreign_calibrator_promises_what_it_says():
    Z, scores = draw(20)
    foreign, plain = (as_calibrator(each).fit(Z, scores) for each in (Promise(), Foreign()))
    assert (foreign.promises, plain.promises, Split().promises) == (True, False, True)
    assert foreign.guaranteed_coverage(0.8) == pytest.approx(0.75)
    assert (foreign.guarantee(), foreign.guarantee(0.8)) == ("at least 0.85", "at least 0.75")
    np.testing.assert_array_equal(plain.predict_radius(Z, 0.9), np.full(20, scores.max()))
    assert plain.share_below(Z, scores) is None
    for ask in (plain.predict_radius, foreign.predict_radius):
        with pytest.raises(CalliperError, match="ForeignCalibrator does not support confidence"):
            ask(Z, 0.9, confidence=0.9)
    for method in (foreign, plain):
        with pytest.raises(CalliperError, match="ForeignCalibrator does not support confidence"):
            method.guarantee(0.9, confidence=0.9)


def test_a_foreign_calibrator_without_a_guarantee_says_so():
    class Stated(Foreign):
        def guaranteed_coverage(self, coverage):
            return coverage - 0.05

    for kind, proved, said in ((Foreign, 0, "no guarantee is known"), (Stated, 0.85, "0.85")):
        made = ConformalRegressor(lambda rows: rows[:, 0], kind()).calibrate(*draw(20))
        promise = made.guarantee(0.9)
        assert promise.method == kind.__name__ and promise.proved == pytest.approx(proved)
        assert said in promise.describe() and "infinite" not in made.guarantee(0.99).describe()
        assert f"guaranteed coverage at level 0.9: {proved}" in repr(made)


@pytest.mark.parametrize(("takes", "said"), [("training", True), ("left_out", False)])
def test_a_foreign_calibrator_uses_what_its_fit_takes(takes, said):
    class Other(Foreign):
        pass

    Other.fit = eval(f"lambda self, Z, scores, *, {takes}=None: self")
    uses = as_calibrator(Other()).uses
    assert ("training" in uses, "errors" in uses, "targets" in uses) == (said,) * 3
    assert ("left_out" in uses) == (not said)


def test_one_point_and_scales_of_each_level():
    """Of one point all is plain split; where scales differ by level, no share is known."""
    one = FullRescaled(KNN(1)).fit([[0.0]], [2.0])
    assert one.share_below(np.zeros((3, 1)), np.array([1.0, 2.0, 3.0])).tolist() == [0, 0, 0.5]
    Z, scores = draw(20)
    local = SLCP(KNN(5)).fit(Z, scores, training=(Z, scores))
    assert local.share_below(Z, scores) is None


DEFAULT = re.compile(r"^    (\w+(?:, \w+)*) : .*, default (\S+)$", re.MULTILINE)


@pytest.mark.parametrize("module", [calibrators, kernels, scores])
def test_defaults_are_those_of_the_documentation(module):
    found = 0
    for kind in (getattr(module, name) for name in module.__all__):
        if not isinstance(kind, type):
            continue
        taken = inspect.signature(kind).parameters
        for names, value in DEFAULT.findall(kind.__doc__ or ""):
            if value[0] in "0123456789":
                found += 1
                said = [taken[name].default for name in names.split(", ") if name in taken]
                assert all(float(value) == each for each in said), (kind, names)
        if any(each.default is inspect.Parameter.empty for each in taken.values()):
            continue
        if module is kernels:  # what is made without a word is accepted
            kind().resolved(draw(30)[0], np.random.RandomState(0))
        elif module is calibrators:
            kind()._check_parameters()
    assert found >= {calibrators: 6, kernels: 10, scores: 3}[module]


def test_groups_that_are_all_infinite_are_not_counted():
    Z, scores = draw(12)
    for sizes, said in (([2, 10], True), ([2, 2], False)):
        groups = np.repeat([0, 1], sizes)
        n = len(groups)
        made = Grouped(Split()).fit(Z[:n], scores[:n], groups=groups)
        assert ("infinite, with too few rows, in 1" in made.guarantee(0.85).method) == said
        assert ("too few" in made.guarantee(0.85).method) == said


def test_without_a_seed_draws_are_those_of_seed_nought():
    Z, scores = draw(60, 2)
    known = {"training": (Z[30:], scores[30:])}
    chosen = []
    for seed in (None, 0, 1):
        method = FullRescaled(TunedRBF(n_scan=5, n_sample=3), random_state=seed)
        chosen.append(method.fit(Z[:30], scores[:30], **known).kernel_.length_scale)
    assert chosen[0] == chosen[1] != chosen[2]


def test_plain_split_keeps_no_neighbours_of_the_fit_before():
    method = FullRescaled(KNN(5)).fit(*draw(20))
    assert method.for_file()["near_"] is not None
    assert method.set_params(shrinkage=1.0).fit(*draw(20)).for_file()["near_"] is None


def test_as_many_points_in_another_unit_are_chosen_for_anew():
    Z, scores = draw(80, 2)
    grown = FullRescaled().fit(Z[:60], scores[:60], length_scale=5.0)
    grown.extend(Z[60:], scores[60:], window=60, length_scale=0.05)
    fresh = FullRescaled().fit(Z[20:], scores[20:], length_scale=0.05)
    assert repr(grown.locality_) == repr(fresh.locality_)
    np.testing.assert_array_equal(grown.predict_radius(Z), fresh.predict_radius(Z))


def test_the_first_level_out_of_reach_is_named():
    """Of two groups one has ten points, so that a higher level is out of reach there."""
    Z = np.repeat([[1.0, 0.0], [0.0, 1.0]], [10, 60], axis=0)
    method = ConditionalCalibration(basis=np.asarray).fit(Z, draw(70)[1])
    with pytest.warns(
        SmallCalibrationWarning, match=r"At 1 of 2 new rows .* coverage 0\.95 over 2"
    ):
        radius = method.predict_radius([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.95])
    assert np.isinf(radius).tolist() == [[False, True], [False, False]]


def test_training_errors_that_are_not_used_are_not_checked():
    Z, scores = draw(30)
    known = [(Z, each, scores) for each in (None, np.full(30, np.nan))]
    radii = [LVD().fit(Z, scores, training=each).predict_radius(Z) for each in known]
    np.testing.assert_array_equal(*radii)


def test_the_rule_of_quantiles_in_a_space_with_a_unit_and_of_few_dimensions():
    assert locality_rule(100, 0.5, None, statistic="quantile").shrinkage == 0
    plane = locality_rule(100, None, None, statistic=None, dimensions=2)
    assert repr(locality_rule(100, None, None, statistic=None)) == repr(plane)


def test_a_basis_is_there_again_after_a_file():
    Z, scores = draw(60, 2)
    made = ConditionalCalibration(basis=np.abs).fit(Z, scores)
    again = ConditionalCalibration(basis=np.abs)
    again.restore(made.for_file())
    assert again.basis is np.abs
    np.testing.assert_array_equal(again.predict_radius(-Z, 0.8), made.predict_radius(Z, 0.8))


@pytest.mark.parametrize("difficulty", ["labels", "distance+labels"])
def test_a_unit_is_the_mean_where_most_difficulties_are_nought(difficulty):
    """Labels that hardly differ: the median of their spreads is 0, and their mean is not."""
    Z, scores = draw(40)
    labels = np.where(np.arange(40) == Z[:, 0].argmax(), 9.0, 0.0)
    method = NormalizedKNN(3, difficulty=difficulty).fit(Z, scores, training=(Z, None, labels))
    assert (method.units_ > 0).all() and np.isfinite(method.predict_radius(Z, 0.5)).all()


@pytest.mark.parametrize("method", [SLCP(KNN(5)), RCP(kernel=KNN(5))], ids=["slcp", "rcp"])
def test_thresholds_by_weight_are_not_remembered_for_equal_weights(method):
    Z, scores = draw(60)
    method.fit(Z[:40], scores[:40], weights=np.ones(40), training=(Z[40:], scores[40:]))
    before = method.predict_radius(Z[:9], 0.6, weights=np.ones(9))
    method.predict_radius(Z[:9], 0.7, weights=np.arange(1.0, 10.0))
    both = method.predict_radius(Z[:9], [0.6, 0.7], weights=np.ones(9))
    np.testing.assert_array_equal(both[:, 0], before)
    fresh = method.fit(Z[:40], scores[:40], weights=np.ones(40), training=(Z[40:], scores[40:]))
    np.testing.assert_array_equal(fresh.predict_radius(Z[:9], 0.7, weights=np.ones(9)), both[:, 1])


def test_trees_of_quantiles_have_eight_leaves():
    assert RCP()._chosen_model().get_params()["max_leaf_nodes"] == 8


def test_a_metric_is_learnt_as_by_itself():
    (Z, scores), (X, y) = draw(20), draw(30, seed=1)
    made = LVD(random_state=0).fit(Z, scores, training=(X, None, y))
    alone = learn_metric(X, y, random_state=np.random.RandomState(0))
    np.testing.assert_array_equal(made.metric_.matrix, alone.matrix)
    asked = inspect.signature(learn_metric).parameters
    for name in ("n_directions", "smoothing", "max_iter"):
        assert getattr(made, name) == asked[name].default


def test_neighbours_that_fill_a_block_are_searched_row_by_row(monkeypatch):
    (Z, scores), (X, errors) = draw(20), draw(90, seed=1)
    method = NormalizedKNN(70).fit(Z, scores, training=(X, errors))
    expected = method.predict_radius(Z, 0.5)
    monkeypatch.setattr(_learnt_scales, "CHUNK_ROWS", 1)
    np.testing.assert_array_equal(method.predict_radius(Z, 0.5), expected)


def test_too_few_points_to_tune_on_have_the_smoothest_candidate():
    Z, scores = draw(2)
    method = JackknifeRescaled(TunedRBF(length_scales=[0.1, 0.3, 4.0]), random_state=0)
    with pytest.warns(SmallCalibrationWarning, match="smoothest candidate, 4, is used for all"):
        assert (method.fit(Z, scores).scale_.chosen == 4.0).all()
