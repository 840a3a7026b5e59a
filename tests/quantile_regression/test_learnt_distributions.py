"""How models of distributions err, learnt from a part of the calibration rows."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm
from sklearn.linear_model import QuantileRegressor

from calliper import (
    ConformalRegressor,
    DistributionError,
    ErrorModel,
    Split,
    load,
    save,
)
from calliper.exceptions import (
    QuantileCrossingWarning,
    SmallCalibrationWarning,
    ZeroScaleWarning,
)
from calliper.scores import ScaledError
from calliper.space import n_teaching, teaching_distributions

P = (0.05, 0.25, 0.5, 0.75, 0.95)
FEW = ErrorModel(shift_trees=(20,), side_trees=10)
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(900, 3))
#: Noise grows with the second input, half of the targets are an atom at 0.
Y = np.where(X[:, 2] < 0.5, 0.0, 1 + X[:, 0] + (0.1 + X[:, 1]) * RNG.normal(size=900))
CAL, NEW = slice(0, 500), slice(500, 900)


def atoms(X):
    """Quantiles, (m, 5): all of them 0 where targets are, else of noise that is half too small."""
    spread = 0.5 * (0.1 + X[:, 1])
    found = (1 + X[:, 0])[:, None] + spread[:, None] * ndtri(P)
    return np.where(X[:, 2:] < 0.5, 0.0, found)


def front(model=atoms, **settings):
    settings = {"score_function": DistributionError(P), "error_model": FEW, **settings}
    return ConformalRegressor(model, **settings)


@pytest.fixture(scope="module")
def learnt():
    return front().calibrate(X[CAL], Y[CAL])


def test_the_part_that_teaches_has_the_predicted_spread_as_a_voice(learnt):
    assert isinstance(learnt.score_, ScaledError) and learnt.calibrator_.n_calibration_ == 200
    assert learnt.error_model_.shares_[2] > 0.5  # the spread is right but for its size
    found = learnt.predict_interval(X[NEW], [0.5, 0.8, 0.9])
    assert np.mean((found.lower[:, 2] <= Y[NEW]) & (Y[NEW] <= found.upper[:, 2])) > 0.85
    assert (np.diff(found.lower, axis=1) <= 0).all() and (np.diff(found.upper, axis=1) >= 0).all()
    width, zero = found.at(0.9).width, X[NEW][:, 2] < 0.5
    assert width[zero].mean() < 0.2 * width[~zero].mean()
    assert np.corrcoef(width[~zero], X[NEW][~zero, 1])[0, 1] > 0.9
    np.testing.assert_allclose(learnt.predict(X[NEW]), atoms(X[NEW])[:, 2])  # the median, as before
    assert "prediction, its spread and expected error" in repr(learnt)


def test_a_spread_that_says_nothing_has_no_part():
    rng = np.random.default_rng(1)
    rows, errors = rng.normal(size=(400, 2)), rng.normal(size=400)
    own = np.exp(3 * rng.normal(size=(2, 400)))
    wrong = ErrorModel().fit(rows, errors * np.exp(rows[:, 0]), own)
    assert wrong.shares_[2] < 0.05 < wrong.shares_[0]
    spread = np.exp(3 * rng.normal(size=400))
    right = ErrorModel().fit(rows, errors * spread, np.stack([spread, spread]))
    assert right.shares_[2] > 0.8
    moved = right.predict(rows[:1], np.array([[1.0], [3.0]]))
    assert moved.up[0] > moved.down[0]


def test_means_and_ends_are_those_of_the_distribution():
    spread = RNG.uniform(size=(50, 1))
    q = 3 + spread * ndtri(P)
    mean, low, high = DistributionError(P).mean_and_ends(q)
    np.testing.assert_allclose(mean, 3)
    np.testing.assert_allclose([low, high], 3 + ndtri([[0.05], [0.95]]) * spread[:, 0])
    shuffled = DistributionError(P[::-1]).mean_and_ends(q[:, ::-1])
    np.testing.assert_array_equal(shuffled, [mean, low, high])
    fine = np.linspace(0.0005, 0.9995, 1000)
    skewed = np.exp(ndtri(fine))[None]
    assert DistributionError(fine).mean_and_ends(skewed)[0, 0] == pytest.approx(
        np.exp(0.5), rel=0.02
    )
    huge = DistributionError(P).mean_and_ends(np.array([[-1.7e308, -1e308, 0, 1e308, 1.7e308]]))
    assert np.isfinite(huge).all()


def test_means_are_the_same_whatever_rows_come_with_them():
    q, score = np.sort(RNG.normal(size=(200, len(P))), axis=1), DistributionError(P)
    alone = np.concatenate([score.mean_and_ends(q[[row]]) for row in range(len(q))], axis=1)
    np.testing.assert_array_equal(score.mean_and_ends(q), alone)


@pytest.mark.parametrize(
    ("n", "taught"), [(99, 0), (100, 40), (200, 80), (250, 130), (300, 180), (400, 240)]
)
def test_a_part_teaches_from_100_rows_on(n, taught):
    """At least 120 rows are kept, or 60 % of fewer than 200; from 300 on 40 %."""
    made = front().calibrate(X[:n], Y[:n]).calibration_
    assert made.n_taught == taught
    assert made.calibrators[0].n_calibration_ == n - taught


def test_many_rows_are_dealt_as_for_other_models():
    for n in (500, 600, 5_000, 20_000, 100_000):
        assert teaching_distributions(n) == n_teaching(n, "auto")


def test_methods_and_parameters_that_learn_nothing_keep_all_rows():
    for how in ({"calibrator": Split()}, {"learning_part": None}, {"error_model": None}):
        with pytest.warns(ZeroScaleWarning):
            made = front(**how).calibrate(X[CAL] * [1, 1, 0.9], Y[CAL])
        assert isinstance(made.score_, DistributionError) and made.calibration_.n_taught == 0


def test_kept_rows_have_no_part_in_what_is_learnt(learnt):
    kept = np.setdiff1d(np.arange(500), _taught())
    other = Y[CAL].copy()
    other[kept] = RNG.normal(size=len(kept))
    again = front().calibrate(X[CAL], other)
    for one, two in zip(
        learnt.embedding_.predict_and_transform(X[NEW]),
        again.embedding_.predict_and_transform(X[NEW]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


def _taught():
    from calliper.space import deal

    return deal(500, "auto")[0]


@pytest.mark.parametrize("asked", ["function", "models"])
@pytest.mark.filterwarnings("ignore::calliper.exceptions.QuantileCrossingWarning")
def test_files_more_rows_and_high_levels(tmp_path, asked):
    model, how = atoms, {}
    if asked == "models":
        low, high = X[NEW], Y[NEW]
        model = {p: QuantileRegressor(quantile=p, alpha=0).fit(low, high) for p in (0.1, 0.5, 0.9)}
        how = {"score_function": None}
    made = front(model, **how).calibrate(X[CAL], Y[CAL])
    save(made, tmp_path / "m.calliper")
    again = load(tmp_path / "m.calliper", model)
    for each in (made, again):
        each.extend(X[:20], Y[:20] + 1e-3)
        assert each.calibrator_.n_calibration_ == 220 and each.calibration_.n_taught == 300
    np.testing.assert_array_equal(made.predict(X[NEW]), again.predict(X[NEW]))
    with pytest.warns(SmallCalibrationWarning, match="Split on all 520 rows"):
        found, expected = (each.predict_interval(X[NEW], [0.9, 0.998]) for each in (again, made))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    assert np.isfinite(found.width).all() and (np.diff(found.width, axis=1) >= 0).all()


ODD = {
    "constant": lambda X: np.zeros((len(X), 5)),
    "mostly one value": lambda X: np.where(X[:, :1] < 0.9, 2.0, atoms(X)),
    "huge": lambda X: 1e100 * atoms(X),
    "tiny": lambda X: 1e-200 * atoms(X),
    "wrong way": lambda X: -5 * atoms(X) + 100,
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_whatever_is_predicted_intervals_hold_their_share(name):
    found = front(ODD[name]).calibrate(X[CAL], Y[CAL]).predict_interval(X[NEW], 0.9)
    assert found.contains(Y[NEW]).mean() > 0.82


@pytest.mark.parametrize("seed", range(2))
def test_every_bag_is_covered_atoms_and_ties_included(seed):
    """The first rows teach. Each of the others is new in turn, among copies and equal targets."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 3, size=(72, 3)) / 2
    y = np.where(rows[:, 2] < 0.5, 0.0, rng.integers(0, 4, size=72))
    taught, bag, level = np.arange(60), np.arange(60, 72), 0.75
    few = ErrorModel(shift_trees=(5,), side_trees=5)
    model = front(learning_part=60, shuffle=False, error_model=few)
    inside = 0
    for new in bag:
        known = np.r_[taught, bag[bag != new]]
        model.calibrate(rows[known], y[known])
        inside += model.predict_interval(rows[[new]], level).contains(y[[new]])[0]
    assert model.calibrator_.n_calibration_ == 11 and inside >= level * 12


@pytest.mark.long
def test_coverage_over_draws():
    """1 − α through dealing, learning and calibrating, with an atom, and a spread that is wrong."""
    rng, inside, n_draws = np.random.default_rng(1), [], 150
    model = front(lambda X: norm(1, 0.1 + X[:, :1] ** 3).ppf(np.array(P)), learning_part=60)
    for _ in range(n_draws):
        rows = rng.uniform(size=(80, 3))
        y = np.where(rows[:, 2] < 0.3, 0.0, 1 + rng.normal(size=80) * rows[:, 1])
        model.calibrate(rows[:79], y[:79])  # 19 rows are kept
        inside.append(model.predict_interval(rows[79:], 0.9).contains(y[79:]).mean())
    assert np.mean(inside) > 0.9 - 3 * np.sqrt(0.9 * 0.1 / n_draws)


def test_crossing_quantiles_are_said_where_rows_teach():
    with pytest.warns(QuantileCrossingWarning, match=r"cross at \d+ of 300 rows"):
        front(lambda rows: atoms(rows)[:, ::-1]).calibrate(X[CAL], Y[CAL])
