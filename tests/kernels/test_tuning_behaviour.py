"""What a user meets: grids, warnings, errors, the full method, and coverage."""

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.linear_model import LinearRegression

from calliper import (
    KNN,
    RBF,
    CalliperError,
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    guarantees,
)
from calliper.calibrators import MADSplit
from calliper.exceptions import SmallCalibrationWarning
from calliper.kernels import TunedKNN, TunedRBF, _tuned
from calliper.kernels._tuned import _neighbor_distance, _pair_distances
from calliper.lab.datasets import one_dimensional
from calliper.rows import Rows

rng = np.random.default_rng(0)
Z, SCORES, NEW, TRAIN = (
    rng.normal(size=(80, 2)),
    rng.exponential(size=80),
    rng.normal(size=(9, 2)),
    rng.normal(size=(200, 2)),
)
ERRORS = rng.exponential(size=200)


def test_grid_spans_the_distances_of_training_pairs():
    from scipy.spatial.distance import pdist

    every = pdist(TRAIN)
    for grid, low in (("paper", every.min()), ("guarded", 0.41 * 0.707)):
        kernel = TunedRBF(grid=grid, n_sample=20000, n_scan=12)
        found = JackknifeRescaled(kernel, random_state=0).fit(Z, SCORES, training=TRAIN).kernel_
        scales = found.length_scales
        assert len(scales) == 12 and np.allclose(np.diff(np.log(scales), 2), 0, atol=1e-9)
        assert scales[0] == pytest.approx(low, rel=0.6) and scales[-1] == pytest.approx(every.max())
    wide = JackknifeRescaled(TunedRBF(grid="paper", expand=3.0, n_sample=20000), random_state=0)
    assert wide.fit(Z, SCORES, training=TRAIN).kernel_.length_scales[-1] > 2.9 * every.max()


def test_guarded_grid_starts_where_ten_points_speak():
    line = np.linspace(0, 1, 501)[:, None]
    for criterion, low in (("mi", 0.01 * 2 / np.sqrt(2 * np.pi)), ("mse", 0.002)):
        kernel = TunedRBF(criterion, n_sample=20000)
        method = JackknifeRescaled(kernel, random_state=0).fit(Z[:, :1], SCORES, training=line)
        assert method.kernel_.length_scales[0] == pytest.approx(low, rel=0.05)


def test_copies_of_inputs_do_not_shrink_the_grid():
    doubled = np.repeat(TRAIN, 5, axis=0)
    kernel = JackknifeRescaled(TunedRBF(grid="paper"), random_state=0)
    assert kernel.fit(Z, SCORES, training=doubled).kernel_.length_scales[0] > 1e-3


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        (TunedRBF(), CalliperError, "pass training=Z .* or the grid itself as length_scales"),
        (TunedRBF("mad", length_scales=[1]), ValueError, "one of .*'mse', 'deviance', 'mi'"),
        (TunedRBF(n_scan=0), ValueError, "n_scan must be an integer of at least 1; got 0"),
        (TunedRBF(n_sample=0), ValueError, "n_sample must be an integer of at least 1"),
        (TunedRBF(expand=0.5), ValueError, "expand must be a number from 1 to 1e.30; got 0.5"),
        (TunedRBF(grid="fine"), ValueError, "'auto', 'guarded' or 'paper'; got 'fine'"),
        (TunedRBF(n_folds=1), ValueError, "n_folds must be an integer of at least 2"),
        (TunedRBF(length_scales=[1.0, -1.0]), ValueError, "positive, finite number; got -1.0"),
        (
            TunedRBF(chosen=[1.0, 2.0]),
            CalliperError,
            "there are 2 chosen length scales for 80 points",
        ),
        (TunedRBF("mi", length_scales=[1.0], n_components=1), CalliperError, "influence its own"),
        (TunedKNN(n_neighbors=[0, 3]), ValueError, "integer of at least 1; got 0"),
        (TunedKNN("x"), ValueError, "criterion must be one of"),
    ],
)
def test_bad_parameters(kernel, error, message):
    with pytest.raises(error, match=message):
        JackknifeRescaled(kernel).fit(Z, SCORES)


def test_more_components_than_features():
    kernel = TunedRBF("mi", length_scales=[1.0], n_components=3)
    with pytest.raises(CalliperError, match="between 1 and 2"):
        JackknifeRescaled(kernel).fit(Z, SCORES, training=TRAIN)


def test_identical_training_inputs():
    with pytest.raises(CalliperError, match="all 30 training inputs are the same"):
        JackknifeRescaled(TunedRBF()).fit(Z, SCORES, training=np.ones((30, 2)))


def test_identical_calibration_inputs_and_equal_scores_choose_the_smoothest():
    grid = [0.1, 1.0, 10.0]
    same = JackknifeRescaled(TunedRBF(length_scales=grid)).fit(np.ones((30, 1)), SCORES[:30])
    assert (same.scale_.chosen == 10.0).all()
    equal = JackknifeRescaled(TunedRBF(length_scales=grid)).fit(Z, np.full(80, 2.0))
    assert (equal.scale_.chosen == 10.0).all()
    np.testing.assert_allclose(equal.predict_radius(NEW), 2.0)


@pytest.mark.parametrize("n", [2, 3])
def test_too_few_points_to_tune(n):
    for kernel in (TunedRBF(length_scales=[0.1, 5.0]), TunedKNN()):
        with pytest.warns(SmallCalibrationWarning, match=f"{n} calibration rows are too few"):
            method = JackknifeRescaled(kernel).fit(Z[:n], SCORES[:n])
        assert np.isfinite(method.predict_radius(NEW, 0.3)).all()
    with pytest.warns(SmallCalibrationWarning, match="too few to tune"):
        JackknifeRescaled(TunedRBF("mi", length_scales=[0.1, 5.0])).fit(Z[:6], SCORES[:6])


def test_progress_is_told_and_may_stop():
    told = []
    kernel = TunedRBF(length_scales=[0.1, 1.0, 10.0], progress=told.append)
    JackknifeRescaled(kernel).fit(Z, SCORES)
    assert told == pytest.approx([1 / 3, 2 / 3, 1])

    def stop(fraction):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        JackknifeRescaled(TunedRBF(length_scales=[1.0], progress=stop)).fit(Z, SCORES)


def test_scales_chosen_before_can_be_used_again():
    first = JackknifeRescaled(TunedRBF(), random_state=0).fit(Z, SCORES, training=TRAIN)
    again = JackknifeRescaled(TunedRBF(chosen=first.scale_.chosen)).fit(Z, SCORES)
    np.testing.assert_array_equal(again.predict_radius(NEW), first.predict_radius(NEW))


@pytest.mark.parametrize("kernel", [TunedRBF(), TunedRBF("mi"), TunedKNN(), TunedKNN("deviance")])
def test_the_full_method_tunes_on_training_errors_alone(kernel):
    with pytest.raises(CalliperError, match=r"tune it on training errors .* JackknifeRescaled"):
        FullRescaled(kernel).fit(Z, SCORES, training=TRAIN)
    method = FullRescaled(kernel, random_state=0)
    method.fit(Z, SCORES, training=(TRAIN, ERRORS))
    other = FullRescaled(kernel, random_state=0)
    other.fit(Z, SCORES[::-1].copy(), training=(TRAIN, ERRORS))
    assert isinstance(method.kernel_, KNN | RBF)
    assert repr(method.kernel_) == repr(other.kernel_)
    np.testing.assert_array_equal(
        method.predict_radius(NEW),
        FullRescaled(method.kernel_, random_state=0).fit(Z, SCORES).predict_radius(NEW),
    )
    assert method.guaranteed_coverage(0.9) >= 0.9


def test_tuned_kernels_everywhere():
    X, y = one_dimensional(400, random_state=0).X, one_dimensional(400, random_state=0).y
    for calibrator in (
        JackknifeRescaled(TunedRBF()),
        JackknifeRescaled(TunedKNN()),
        FullRescaled(TunedRBF()),
        FullRescaled(TunedKNN(), statistic="rms"),
        MADSplit(TunedRBF()),
    ):
        model = ConformalRegressor(LinearRegression(), calibrator, random_state=0).fit(X, y)
        assert np.isfinite(model.predict_interval(X[:5]).width).all()


def test_folds_have_the_guarantee_of_cv_plus():
    method = JackknifeRescaled(TunedRBF(length_scales=[0.5, 2.0], n_folds=8)).fit(Z, SCORES)
    assert method.guaranteed_coverage(0.9) == guarantees.fold_coverage(0.9, 80, 8)
    assert method.guaranteed_coverage(0.9) < 0.8
    one_by_one = JackknifeRescaled(TunedRBF(length_scales=[0.5, 2.0])).fit(Z, SCORES)
    assert one_by_one.guaranteed_coverage(0.9) == guarantees.jackknife_coverage(0.9, 80)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("n", [30, 100])
@pytest.mark.parametrize(
    "kernel",
    [
        TunedRBF("mse", length_scales=np.geomspace(0.01, 1, 8)),
        TunedRBF("deviance", length_scales=np.geomspace(0.01, 1, 8)),
        TunedRBF("mi", length_scales=np.geomspace(0.01, 1, 5)),
        TunedRBF("mse", length_scales=np.geomspace(0.01, 1, 8), n_folds=5),
        TunedKNN("mse", n_neighbors=(2, 5, 10, 20)),
    ],
    ids=["mse", "deviance", "mi", "folds", "knn"],
)
@pytest.mark.long
def test_coverage_of_tuned_methods(kernel, n):
    """At least what is proved; on such ordinary data in fact close to the level."""
    draws, level = 120, 0.9
    rng = np.random.default_rng(n)
    covered = np.empty(draws)
    for repetition in range(draws):
        Z, new = rng.uniform(size=(n, 1)), rng.uniform(size=(80, 1))
        scores, truth = (
            np.abs(rng.normal(size=len(x))) * (0.05 + np.abs(np.sin(6 * x[:, 0]))) for x in (Z, new)
        )
        method = JackknifeRescaled(kernel).fit(Z, scores)
        covered[repetition] = (truth <= method.predict_radius(new, level)).mean()
    mean, error = covered.mean(), covered.std() / np.sqrt(draws)
    assert mean > method.guaranteed_coverage(level) - 4 * error
    assert abs(mean - level) < 0.02 + 4 * error


@pytest.mark.long
def test_tuning_narrows_the_intervals_at_equal_coverage():
    ratios = []
    for seed in range(3):
        data = one_dimensional(4000, random_state=seed)
        errors = np.abs(data.y - data.mean(data.X))
        Z, scores, new = data.X[:2000], errors[:2000], data.X[3000:]
        tuned = JackknifeRescaled(TunedRBF(n_scan=12), random_state=0)
        tuned.fit(Z, scores, training=data.X[2000:3000])
        plain = JackknifeRescaled(KNN(10)).fit(Z, scores)
        radii = tuned.predict_radius(new), plain.predict_radius(new)
        ratios.append(radii[0].mean() / radii[1].mean())
        covered = [(errors[3000:] <= radius).mean() for radius in radii]
        assert covered == pytest.approx([0.9, 0.9], abs=0.035)
    assert np.mean(ratios) < 0.95


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (TunedKNN(mi_neighbors=0), "mi_neighbors must be an integer of at least 1; got 0"),
        (TunedKNN(mi_neighbors=1.5), "mi_neighbors must be an integer of at least 1; got 1.5"),
        (TunedKNN(n_neighbors=[]), "n_neighbors must hold at least one value"),
        (TunedRBF(length_scales=[]), "length_scales must hold at least one value"),
        (TunedRBF(chosen=[1.0], n_folds=2), "scales are chosen for points, not for folds"),
        (TunedRBF(expand=np.inf), "expand must be a number from 1 to 1e.30; got inf"),
        (RBF(1.0, metric="as the crow flies"), "metric must be a name that .* as the crow flies"),
        (TunedKNN(metric="as the crow flies"), "metric must be a name that .* as the crow flies"),
        (TunedRBF(length_scales=[1.0], metric="seuclidean"), "would take its scale from whatever"),
        (RBF(0.0), "length_scale must be a positive, finite number; got 0.0"),
        (RBF(np.inf), "length_scale must be a positive, finite number; got inf"),
    ],
)
def test_parameters_that_cannot_be(kernel, message):
    with pytest.raises(ValueError, match=message):
        kernel.resolved(TRAIN)


def test_training_rows_may_be_too_few_or_more_than_are_used():
    """With 3 neighbours for the information, 7 are enough; of more than 2,000 some are drawn."""
    kernel, state = TunedKNN(n_neighbors=[2, 4]).resolved(), np.random.RandomState
    with pytest.raises(CalliperError, match="6 training rows are too few to tune TunedKNN on"):
        kernel.fixed(TRAIN[:6], ERRORS[:6], state(0))
    assert kernel.fixed(TRAIN[:7], ERRORS[:7], state(0)).n_neighbors in (2, 4)
    many, errors = rng.normal(size=(2001, 1)), rng.exponential(size=2001)
    drawn = state(0).choice(2001, 2000, replace=False)
    found = TunedRBF(length_scales=[0.1, 1.0], criterion="mse").resolved()
    expected = found.fixed(many[drawn], errors[drawn], state(1))
    assert found.fixed(many, errors, state(0)).length_scale == expected.length_scale


def test_a_grid_of_one_scale_is_the_middle_of_the_distances():
    line = np.array([[0.0], [1.0], [4.0]])
    grid = TunedRBF(n_scan=1, grid="paper").resolved(line).length_scales
    np.testing.assert_allclose(grid, [2.0])  # √(1 · 4)
    grid = TunedRBF(n_scan=2, grid="paper", expand=2.0, metric="cityblock").resolved(line)
    np.testing.assert_allclose(grid.length_scales, [0.5, 8.0])


def test_inputs_that_are_nearly_all_the_same_span_what_they_can():
    same = np.zeros((400, 1))
    same[0] = 3.0
    grid = TunedRBF(n_scan=2, n_sample=50, grid="paper").resolved(same).length_scales
    np.testing.assert_allclose(grid, [3.0, 3.0])


def test_the_guard_of_many_points_is_that_of_a_sample():
    """Two thousand of them have gaps as much wider as they are fewer."""
    line = np.linspace(0, 1, 8001)[:, None]
    low = TunedRBF(grid="guarded", n_sample=20000).resolved(line).length_scales[0]
    assert low == pytest.approx(10 / 2000 / 2 * 2 / np.sqrt(2 * np.pi), rel=0.15)


def test_two_folds_are_the_fewest():
    kernel = TunedRBF(length_scales=[1.0], n_folds=2)
    assert kernel.resolved(TRAIN).n_folds == 2
    with pytest.raises(ValueError, match="n_folds must be an integer of at least 2; got 1"):
        kernel.set_params(n_folds=1).resolved(TRAIN)


def test_the_grid_follows_its_parameters():
    by = {"n_sample": 500, "n_scan": 5}
    plain, wide = (
        TunedRBF(grid="paper", expand=expand, **by).resolved(TRAIN, np.random.RandomState(0))
        for expand in (1.0, 2.0)
    )
    for place, factor in ((0, 0.5), (-1, 2.0)):
        expected = factor * plain.length_scales[place]
        assert wide.length_scales[place] == pytest.approx(expected, rel=1e-12)
    guarded = TunedRBF(grid="guarded", **by)
    one, other = (
        guarded.resolved(unit * TRAIN, np.random.RandomState(0)).length_scales / unit
        for unit in (1.0, 2.0**400)  # whose squares are not numbers in that unit
    )
    np.testing.assert_allclose(other, one, rtol=1e-12)
    assert TunedRBF(length_scales=[1.0], n_folds=2).resolved().n_folds == 2


def test_four_points_are_enough_to_tune_on():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = TunedRBF(length_scales=[0.3, 1.0]).resolved()
        scale = kernel.leave_two_out(
            Rows(Z[:4], magnitudes=SCORES[:4]), offset=0.0, rng=np.random.RandomState(0)
        )
    assert scale.criteria.shape == (2, 4)


def test_what_kernels_need_to_be_tuned():
    """Inputs to find components in, if these are used, or to span a grid that is not given."""
    given, components = {"length_scales": [1.0]}, {"n_components": 1}
    assert TunedKNN("mi").needs == TunedKNN("mse", **components).needs == ()
    assert TunedKNN("mi", **components).needs == ("training",)
    assert TunedRBF("mi", **given).needs == TunedRBF(**given, **components).needs == ()
    assert TunedRBF("mi", **given, **components).needs == TunedRBF().needs == ("training",)


def test_grids_span_distances_in_their_own_metric():
    grid = TunedRBF(n_scan=2, grid="paper", metric="cityblock").resolved(np.eye(4)).length_scales
    np.testing.assert_allclose(grid, [2.0, 2.0])


def test_so_many_pairs_are_looked_at_and_no_more():
    """Also if the first draw has copies among its pairs, and others are drawn for them."""
    line, state = np.repeat(np.arange(3.0), 20)[:, None], np.random.RandomState(0)
    assert len(_pair_distances(TunedRBF(n_sample=40), line, state)) == 40


@pytest.mark.parametrize("n", [5, 61])
@pytest.mark.parametrize(("d", "ball"), [(1, 2.0), (2, np.pi), (3, 4 / 3 * np.pi)])
def test_the_guard_weighs_what_the_ball_of_ten_neighbours_holds(d, ball, n):
    inputs = np.random.default_rng(d).normal(size=(n, d))
    distance = np.sort(cdist(inputs, inputs), axis=1)[:, min(10, n - 1)]
    found = _neighbor_distance(TunedRBF(), inputs, np.random.RandomState(0))
    assert (2 * np.pi) ** (d / 2) * found**d == pytest.approx(ball * np.median(distance) ** d)


def test_the_guard_looks_at_so_many_inputs_and_at_none_twice(monkeypatch):
    monkeypatch.setattr(_tuned, "GUARD_POINTS", 60)
    drawn = np.random.RandomState(0).choice(200, 60, replace=False)
    found, expected = (
        _neighbor_distance(TunedRBF(), inputs, np.random.RandomState(0))
        for inputs in (TRAIN, TRAIN[np.sort(drawn)])
    )
    assert found == pytest.approx(expected, rel=1e-12)


def test_no_more_is_drawn_for_length_scales_than_is_needed(monkeypatch):
    """What is drawn afterwards, such as folds, depends on it."""
    inputs, (used, same) = np.arange(1000.0)[:, None], map(np.random.RandomState, (0, 0))
    assert (same.randint(1000, size=5) != same.randint(1000, size=5)).all()
    _pair_distances(TunedRBF(n_sample=5), inputs, used)
    monkeypatch.setattr(_tuned, "GUARD_POINTS", 1000)
    _neighbor_distance(TunedRBF(), inputs, used)
    assert used.randint(10**9) == same.randint(10**9)
