"""What signed left-out errors teach: a centre, units of each side; and what they cannot break."""

import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calliper import CalliperError, ConformalRegressor, ErrorModel, FullRescaled, SignedError, Split
from calliper.kernels import KNN
from calliper.scores import AbsoluteError, ScaledError
from calliper.space import _error_model
from cases.problems import small_problem
from cases.trees import FEW, with_trees
from oracles import rescaled as oracles

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(500, 3))
#: A line misses the bend; noise is one-sided where the second input is large.
Y = X[:, 0] + 2 * (X[:, 0] > 0.3) + RNG.exponential(size=500) * (0.1 + (X[:, 1] > 0))
TRAIN, CAL, NEW = slice(0, 250), slice(250, 380), slice(380, 500)


def ridge(**settings):
    model = ConformalRegressor(Ridge(), random_state=0, refits=3, **settings)
    fitted = Ridge().fit(X[TRAIN], Y[TRAIN])
    model.set_params(estimator=fitted)
    return model.calibrate(X[CAL], Y[CAL], X_train=X[TRAIN], y_train=Y[TRAIN])


@pytest.fixture(scope="module", autouse=True)
def fewer_trees():
    """Enough to see what is learnt, in less than half of the time."""
    with pytest.MonkeyPatch.context() as patch:
        with_trees(patch, (60, 120), 15)
        yield


@pytest.fixture(scope="module")
def learnt():
    return ridge()


def test_it_finds_bias_and_sides():
    errors = Y - X[:, 0] - 1
    model = ErrorModel().fit(X, errors)
    said = model.predict([[-0.5, -0.5, 0], [0.7, -0.5, 0], [-0.5, 0.5, 0]])
    assert said.shift[1] - said.shift[0] > 1 and 0 < model.shift_share_ <= 1
    assert model.units_kept_ and said.up[2] > 1.2 * said.up[0] and said.size[2] > said.size[0]
    again = ErrorModel().fit(X, errors).predict(X)
    np.testing.assert_array_equal(again.shift, model.predict(X).shift)
    assert "centred on the prediction plus" in model.describe()
    assert "below and above the centre (learnt from 500 held-out errors)" in model.describe()


def test_noise_teaches_no_shift_and_left_out_rows_are_unseen():
    kept, found = 0, []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows, noise = rng.normal(size=(150, 3)), rng.normal(size=150)
        model = ErrorModel(random_state=seed).fit(rows, noise)
        kept += model.shift_share_ > 0.5
        found.append(np.corrcoef(model.left_out_.size, np.abs(noise))[0, 1])
        assert np.corrcoef(model.predict(rows).size, np.abs(noise))[0, 1] > 0.3
        if model.shift_share_:
            assert np.mean((noise - model.left_out_.shift) ** 2) < np.mean(noise**2)
    assert kept <= 1 and np.mean(found) < 3 / np.sqrt(4 * 150)


#: The average unit's part in every unit, at least.
LEAST_UNIT = 1 - _error_model.BOOSTED_SHARE - _error_model.FOREST_SHARE
ODD = {
    "half are zero": np.where(RNG.random(300) < 0.5, 0.0, RNG.normal(size=300)),
    "nearly all are zero": np.where(RNG.random(300) < 0.98, 0.0, 1.0),
    "all alike": np.full(300, 2.0),
    "one side": RNG.exponential(size=300),
    "one is huge": np.r_[1e9, RNG.normal(size=299)],
    "tiny": 1e-200 * RNG.normal(size=300),
}


@pytest.mark.parametrize("name", ODD)
def test_units_do_not_collapse_and_shifts_stay_within_errors_seen(name):
    errors, rows = ODD[name], X[:300]
    model = ErrorModel().fit(rows, errors)
    for said in (model.left_out_, *map(model.predict, (rows, rows * 1e6, -rows * 1e30))):
        assert (np.minimum(said.down, said.up) >= LEAST_UNIT).all()
        assert (said.shift >= errors.min()).all() and (said.shift <= errors.max()).all()
        assert (said.size >= 0).all() and np.isfinite([said.down, said.up, said.size]).all()


def test_parts_can_be_switched_off():
    errors = Y - X[:, 0] - 1
    still = ErrorModel(recentre=False).fit(X, errors)
    assert not still.predict(X).shift.any() and not still.left_out_.shift.any()
    alike = ErrorModel(units=False).fit(X, errors).predict(X)
    assert alike.shift.any() and (alike.up == 1).all() and (alike.down == 1).all()
    neither = ErrorModel(recentre=False, units=False).fit(X, errors)
    assert neither.describe() == "" and not neither.adjusts


def test_too_few_errors_and_wrong_rows_are_refused():
    with pytest.raises(CalliperError, match=r"at least 40 held-out errors.*got 39, 39 of them not"):
        ErrorModel().fit(X[:39], Y[:39])
    with pytest.raises(CalliperError, match="got 50, 0 of them not 0"):
        ErrorModel().fit(X[:50], np.zeros(50))
    fitted = ErrorModel().fit(X[:60], Y[:60])
    with pytest.raises(CalliperError, match="2 columns, but had 3 in fit"):
        fitted.predict(X[:, :2])


@pytest.mark.parametrize("statistic", ["mean", "rms"])
def test_full_intervals_are_the_literal_p_values(statistic):
    """Ties and zeros; centre and units drawn at random, as any model might say them."""
    power = 2 if statistic == "rms" else 1
    rng = np.random.default_rng(3)
    for _ in range(15):
        n, level = int(rng.integers(6, 14)), Fraction(7, 10)
        Z = rng.integers(0, 3, size=(n + 1, 1)).astype(float)
        said = np.c_[rng.integers(-1, 2, n + 1), rng.choice([0.5, 1, 2], size=(n + 1, 2))]
        y = said[:, 0] + rng.integers(-2, 3, size=n + 1)
        scores = ScaledError().measure(y[:n], said[:n])
        full = FullRescaled(KNN(n), statistic=statistic).fit(Z[:n], scores)
        radius = full.predict_radius(Z[n:], float(level))
        lower, upper = (end[0] for end in ScaledError().invert(said[n:], radius))
        for target in said[n, 0] + np.arange(-6, 6.5, 0.25):
            t = float(ScaledError().measure(np.array([target]), said[n:])[0])
            bag = [Fraction(float(s)) ** power for s in [*scores, t]]
            rest = [sum(bag) - s for s in bag]
            ratio = [s / r if r else (None if s else 0) for s, r in zip(bag, rest, strict=True)]
            if None in ratio:  # the only error that is not zero: its ratio is infinite
                continue
            p = Fraction(sum(r >= ratio[-1] for r in ratio), n + 1)
            assert (p > 1 - level) == (lower <= target <= upper)


@pytest.mark.parametrize("score", [ScaledError(), ScaledError(lowest=0, highest=0.5, beyond=9)])
def test_a_wildly_wrong_model_covers_over_draws(score):
    """Whatever is said of centre, units and ends, calibration and new rows are treated alike."""
    hits, level, n, draws, m = [], 0.8, 24, 150, 20
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        rows = rng.normal(size=(n + m, 2))
        y = rows[:, 0] + rng.normal(size=n + m)
        shift = 50 * np.sin(7 * rows[:, 0]) ** 3
        said = np.c_[rows[:, 0] + shift, 0.6 + np.exp(3 * rows[:, 1]), np.full(n + m, 0.6)]
        full = FullRescaled(random_state=0)
        full.fit(rows[:n], score.measure(y[:n], said[:n]), length_scale=1.0)
        lower, upper = score.invert(said[n:], full.predict_radius(rows[n:], level))
        hits.append(np.mean((lower <= y[n:]) & (y[n:] <= upper)))
    error = np.std(hits) / np.sqrt(draws)
    assert level - 3 * error <= np.mean(hits) <= level + 1 / (n + 1) + 3 * error


def test_bags_are_covered_with_shifted_scores():
    """Every bag: of its members, as many as promised lie in the interval from the others."""
    for seed in range(10):
        p = small_problem(seed, smallest=8)
        rng = np.random.default_rng(seed)
        n = len(p.magnitudes)
        said = np.c_[rng.normal(size=n) * 5, rng.uniform(0.6, 9, size=(n, 2))]
        scores = ScaledError().measure(p.magnitudes, said)

        def radius(Z, s, z, coverage):
            full = FullRescaled(random_state=0).fit(Z, s, length_scale=0.7)
            return full.predict_radius([z], float(coverage))[0]

        assert oracles.bag_coverage(p.Z, scores, radius, p.coverage) >= Fraction(p.coverage)


def test_nothing_of_calibration_rows_enters(learnt):
    again = ConformalRegressor(learnt.estimator_, random_state=0, refits=3)
    known = {"X_train": X[TRAIN], "y_train": Y[TRAIN]}
    again.calibrate(X[CAL][::-1] + 1, 100 - Y[CAL], **known)
    for one, other in zip(
        learnt.embedding_.predict_and_transform(X[NEW]),
        again.embedding_.predict_and_transform(X[NEW]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_the_regressor_says_where_its_intervals_lie(learnt):
    ends = learnt.predict_interval(X[NEW], [0.8, 0.9])
    said, _ = learnt.embedding_.predict_and_transform(X[NEW])
    np.testing.assert_allclose(learnt.predict(X[NEW]), learnt.estimator_.predict(X[NEW]))
    np.testing.assert_array_equal(ends.centre, said[:, 0])
    assert np.abs(ends.centre - learnt.predict(X[NEW])).max() > 0.3
    assert ends.at(0.9).centre is ends.centre
    bounded = learnt.predict_interval(X[NEW], 0.9, bounds=(-1e3, None))
    np.testing.assert_array_equal(bounded.centre, ends.centre)
    below, above = ends.centre - ends.at(0.9).lower, ends.at(0.9).upper - ends.centre
    np.testing.assert_allclose(below / said[:, 1], above / said[:, 2], rtol=1e-9)
    words = learnt.error_model_.describe()
    assert words and words in repr(learnt) and words in learnt.guarantee().describe()
    assert isinstance(learnt.score_, ScaledError) and learnt.guaranteed_coverage(0.9) >= 0.9
    again = pickle.loads(pickle.dumps(learnt)).predict_interval(X[NEW], 0.9)
    np.testing.assert_array_equal(again.lower, ends.at(0.9).lower)


def cut_off(lowest, highest, **settings):
    """A regressor that learnt from training targets cut off at both ends."""
    y = np.clip(Y[TRAIN], lowest, highest)
    model = ConformalRegressor(Ridge().fit(X[TRAIN], y), random_state=0, refits=3, **settings)
    return model.calibrate(X[CAL], np.clip(Y[CAL], lowest, highest), X_train=X[TRAIN], y_train=y)


def test_intervals_stop_where_targets_end():
    both = cut_off(0.0, 2.0)
    assert (both.score_.lowest, both.score_.highest) == (0.0, 2.0)
    ends = both.predict_interval(X[NEW], [0.5, 0.9])
    assert ends.lower.min() == 0 and ends.upper.max() == 2 and (ends.width > 0).all()
    assert ends.centre.min() >= 0 and ends.centre.max() <= 2
    drawn = both.predict_distribution(X[NEW]).quantile([0.05, 0.95])
    assert drawn.min() == 0 and drawn.max() == 2
    words = "cut off at 0 and 2, where targets end, except at very high levels"
    assert words in repr(both) and words in both.guarantee().describe()
    one = cut_off(-np.inf, 2.0)
    assert (one.score_.lowest, one.score_.highest) == (-np.inf, 2.0)
    assert cut_off(-np.inf, np.inf).score_.highest == np.inf
    few = np.sort(Y[TRAIN])[3]  # four targets are equal to the smallest
    assert cut_off(few, np.inf).score_.lowest == -np.inf
    inside = cut_off(0.0, 2.0, error_model=ErrorModel(recentre=False))
    assert inside.score_.lowest == -np.inf


def test_the_regressor_without(learnt):
    plain = ridge(error_model=None)
    ends = plain.predict_interval(X[NEW])
    np.testing.assert_allclose(ends.centre, plain.predict(X[NEW]))
    np.testing.assert_allclose((ends.lower + ends.upper) / 2, ends.centre)
    assert isinstance(plain.score_, AbsoluteError) and "prediction plus" not in repr(plain)
    assert "In these intervals" not in plain.guarantee().describe()
    still = ridge(error_model=ErrorModel(recentre=False))
    inside = still.predict_interval(X[NEW], [0.05, 0.5, 0.9])
    assert inside.contains(still.predict(X[NEW])).all()


KINDS = {
    "fit": (RandomForestRegressor(20, random_state=0), None),
    "out of bag": (RandomForestRegressor(20, random_state=0), 0),
    "refits": (HistGradientBoostingRegressor(max_iter=20, random_state=0), 2),
    "pipeline": (make_pipeline(StandardScaler(), Ridge()), 2),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["usual", "half zero", "constant", "counts"])
def test_ways_to_left_out_errors_and_odd_targets(kind, target, monkeypatch):
    with_trees(monkeypatch, *FEW)
    model, folds = KINDS[kind]
    y = {
        "usual": Y,
        "half zero": np.where(X[:, 2] < 0, 0.0, Y),
        "constant": np.full(500, 3.0),
        "counts": np.round(Y),
    }[target]
    fitted = ConformalRegressor(clone(model), random_state=0, refits=folds)
    if kind == "fit":
        fitted.fit(X[:380], y[:380], sample_weight=np.ones(380))
    else:
        fitted.set_params(estimator=clone(model).fit(X[TRAIN], y[TRAIN]))
        fitted.calibrate(X[CAL], y[CAL], X_train=X[TRAIN], y_train=y[TRAIN])
    ends = fitted.predict_interval(X[NEW])
    assert ends.contains(y[NEW]).mean() > 0.75  # one draw: 3.5 of its deviations, .043
    assert target == "constant" or np.isfinite(ends.width).all()
    assert (fitted.error_model_ is None) == (target == "constant")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("n", [20, 39, 45])
def test_few_training_rows(n, monkeypatch):
    with_trees(monkeypatch, *FEW)
    model = ConformalRegressor(Ridge().fit(X[:n], Y[:n]), refits=3, random_state=0)
    model.calibrate(X[CAL], Y[CAL], X_train=X[:n], y_train=Y[:n])
    assert (model.error_model_ is None) == (n < 40)
    assert model.predict_interval(X[NEW]).contains(Y[NEW]).mean() > 0.75


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_frames_with_categories(monkeypatch):
    with_trees(monkeypatch, *FEW)
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["town"] = pd.Categorical(np.where(X[:, 2] > 0, "Bern", "Basel"))
    model = HistGradientBoostingRegressor(max_iter=20, categorical_features="from_dtype")
    y = Y + 3 * (X[:, 2] > 0)
    fitted = ConformalRegressor(model, random_state=0).fit(frame[:380], y[:380])
    ends = fitted.predict_interval(frame[380:])
    assert fitted.error_model_ is not None and ends.contains(y[380:]).mean() > 0.75


def test_explicit_models_and_what_is_refused():
    split = ridge(calibrator=Split(), error_model=ErrorModel())
    assert split.error_model_.shift_share_ > 0
    assert ridge(calibrator=Split()).error_model_ is None
    given = ErrorModel(units=False, random_state=3)
    model = ridge(error_model=given)
    assert model.error_model_ is not given and not hasattr(given, "shift_share_")
    assert clone(model).get_params()["error_model__random_state"] == 3
    with pytest.raises(CalliperError, match=r"score_function is SignedError\(\)"):
        ridge(calibrator=Split(), score_function=SignedError(), error_model=given)
    assert ridge(calibrator=Split(), score_function=SignedError()).error_model_ is None
    for wrong in ("never", Ridge(), True):
        with pytest.raises(TypeError, match="must be 'auto', None or an ErrorModel; got"):
            ridge(error_model=wrong)


def test_many_errors_are_learnt_from_a_part():
    errors = Y - X[:, 0] - 1
    model = ErrorModel(max_errors=200).fit(X, errors, np.ones((2, 500)))
    assert model.n_errors_ == 200 and all(part.shape == (500,) for part in model.left_out_)
    told = model.predict(X, np.ones((2, 500)))
    seen = np.stack(told) != np.stack(model.left_out_)
    assert 0 < seen.any(axis=0).sum() <= 200  # the others are new to all trees
    noise = RNG.normal(size=500)
    said = ErrorModel(max_errors=200).fit(X, noise).left_out_
    assert abs(np.corrcoef(said.size, np.abs(noise))[0, 1]) < 0.2
