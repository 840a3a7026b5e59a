"""Split conformal on scores that training data transform: SLCP, NormalizedKNN, RCP, LoCart."""

import pickle
import warnings

import numpy as np
import pytest
import split_oracles
from problems import small_problem
from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor

from calliper import (
    KNN,
    RBF,
    CalliperError,
    SmallCalibrationWarning,
    Split,
    TunedKNN,
    ZeroScaleWarning,
    guarantees,
)
from calliper.calibrators._locart import LoCart
from calliper.calibrators._normalized_knn import DIFFICULTIES, NormalizedKNN
from calliper.calibrators._rcp import RCP
from calliper.calibrators._slcp import SLCP

quiet = pytest.mark.filterwarnings("ignore::UserWarning")

rng = np.random.default_rng(0)
Z, SCORES, NEW = rng.normal(size=(50, 2)), rng.exponential(size=50), rng.normal(size=(7, 2))
Z_TRAIN, Y_TRAIN = rng.normal(size=(80, 2)), rng.normal(size=80)
TRAIN = {"Z_train": Z_TRAIN, "scores_train": np.abs(Y_TRAIN)}
LEVELS = [0.1, 0.5, 0.8, 0.9]
SPLIT = Split().fit(Z, SCORES).predict_radius(NEW, LEVELS)

METHODS = [
    SLCP(random_state=0),
    SLCP(RBF(0.7)),
    SLCP(RBF("median")),
    *(NormalizedKNN(difficulty=d, random_state=0) for d in DIFFICULTIES),
    NormalizedKNN(difficulty="distance+labels", form="exp"),
    RCP(kernel=KNN(10), random_state=0),
    RCP(QuantileRegressor(alpha=0.0)),
    LoCart(random_state=0),
]
each_method = pytest.mark.parametrize("method", METHODS, ids=repr)


def fit(method, Z=Z, scores=SCORES, train=TRAIN, y_train=Y_TRAIN):
    labels = {"y_train": y_train} if isinstance(method, NormalizedKNN) else {}
    return method.fit(Z, scores, **train, **labels)


def training_part(seed, dimension, smallest=2):
    """Training points for a small problem: more ties, zeros and duplicates."""
    train, rng = small_problem(seed + 5000, smallest=smallest), np.random.default_rng(seed)
    n = len(train.scores)
    lattice = rng.integers(0, 4, (n, dimension)) * 1.0
    features = lattice if train.discrete else rng.normal(size=(n, dimension))
    labels = rng.integers(0, 3, n) * 1.0 if rng.random() < 0.5 else rng.normal(size=n)
    return features, train.scores, labels, train.priorities(n)


# Equality with the definitions


@quiet
@pytest.mark.parametrize("batch", range(6))
def test_slcp_knn_equals_the_definition(batch):
    for seed in range(60 * batch, 60 * batch + 60):
        p = small_problem(seed)
        features, errors, _, _ = training_part(seed, p.Z.shape[1], smallest=1)
        shift = 0.0 if seed % 3 else 1.0  # also scores below 0
        method = SLCP(KNN(p.n_neighbors), random_state=seed)
        method.fit(p.Z, p.scores - shift, Z_train=features, scores_train=errors)
        kernel, priorities = ("knn", float(p.n_neighbors)), p.priorities(len(features))
        expected = [
            split_oracles.slcp_radius(
                p.Z, p.scores - shift, z, features, errors, kernel, priorities, p.coverage
            )
            for z in p.new
        ]
        largest = 1e-12 * max(p.scores.max(), errors.max(), 1)
        radius = method.predict_radius(p.new, p.level)
        np.testing.assert_allclose(radius, expected, rtol=1e-12, atol=largest, err_msg=f"{seed}")


@quiet
@pytest.mark.parametrize("log10", [-0.5, 0.0, 0.5, 3.0])
@pytest.mark.parametrize("batch", range(4))
def test_slcp_rbf_equals_the_definition(batch, log10):
    for seed in range(20 * batch, 20 * batch + 20):
        p = small_problem(seed, largest=10)
        features, errors, _, _ = training_part(seed, p.Z.shape[1], smallest=1)
        method = SLCP(RBF(10.0**log10)).fit(p.Z, p.scores, Z_train=features, scores_train=errors)
        expected = [
            split_oracles.slcp_radius(
                p.Z, p.scores, z, features, errors, ("rbf", 10.0**log10), None, p.coverage
            )
            for z in p.new
        ]
        largest = 1e-12 * max(p.scores.max(), errors.max(), 1)
        radius = method.predict_radius(p.new, p.level)
        np.testing.assert_allclose(radius, expected, rtol=1e-12, atol=largest, err_msg=f"{seed}")


@quiet
@pytest.mark.parametrize("form", ["sum", "exp"])
@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_normalized_knn_equals_the_definition(difficulty, form):
    for seed in range(45):
        p = small_problem(seed)
        features, errors, labels, _ = training_part(seed, p.Z.shape[1])
        gamma, rho = 0.3 + 0.1 * (seed % 3), 0.2 * (seed % 4)
        method = NormalizedKNN(
            p.n_neighbors, difficulty=difficulty, form=form, gamma=gamma, rho=rho, random_state=seed
        )
        method.fit(p.Z, p.scores, Z_train=features, y_train=labels, scores_train=errors)
        scale = {
            "Z_train": features,
            "y_train": labels,
            "scores_train": errors,
            "K": p.n_neighbors,
            "priorities": p.priorities(len(features)),
            "difficulty": difficulty,
            "form": form,
            "gamma": gamma,
            "rho": rho,
        }
        with np.errstate(over="ignore"):
            radius = method.predict_radius(p.new, p.level)
        try:
            expected = [
                split_oracles.normalized_radius(p.Z, p.scores, z, p.coverage, **scale)
                for z in p.new
            ]
        except OverflowError:  # pareto residuals in an exponential: the scale is capped
            assert form == "exp" and not np.isnan(radius).any()
            continue
        np.testing.assert_allclose(radius, expected, rtol=1e-9, err_msg=f"seed {seed}")


@quiet
@pytest.mark.parametrize("batch", range(6))
def test_rcp_knn_equals_the_definition(batch):
    for seed in range(60 * batch, 60 * batch + 60):
        p = small_problem(seed)
        features, errors, _, _ = training_part(seed, p.Z.shape[1], smallest=1)
        method = RCP(kernel=KNN(p.n_neighbors), offset=p.offset, random_state=seed)
        method.fit(p.Z, p.scores, Z_train=features, scores_train=errors)
        priorities = p.priorities(len(features))
        expected = [
            split_oracles.rcp_knn_radius(
                p.Z, p.scores, z, features, errors, p.n_neighbors, priorities, p.coverage, p.offset
            )
            for z in p.new
        ]
        radius = method.predict_radius(p.new, p.level)
        np.testing.assert_allclose(radius, expected, rtol=1e-12, err_msg=f"seed {seed}")


@quiet
@pytest.mark.parametrize("seed", range(30))
def test_rcp_with_a_regressor_equals_the_definition(seed):
    p = small_problem(seed)
    features, errors, _, _ = training_part(seed, p.Z.shape[1])
    regressor = QuantileRegressor(alpha=0.01)
    method = RCP(regressor, offset=p.offset)
    method.fit(p.Z, p.scores, Z_train=features, scores_train=errors)
    model = clone(regressor).set_params(quantile=p.level).fit(features, errors)

    def scales(rows):
        return [max(float(model.predict(z[None])[0]), 0.0) + p.offset for z in rows]

    expected = [
        split_oracles.mad_split_radius(p.scores, scales(p.Z), scale, p.coverage)
        for scale in scales(p.new)
    ]
    np.testing.assert_allclose(method.predict_radius(p.new, p.level), expected, rtol=1e-9)


@quiet
@pytest.mark.parametrize("batch", range(4))
def test_locart_equals_the_definition(batch):
    for seed in range(100 * batch, 100 * batch + 100):
        p = small_problem(seed, largest=40)
        features, errors, _, _ = training_part(seed, p.Z.shape[1])
        method = LoCart(min_leaf=1 + seed % 4, max_leaves=None if seed % 2 else 3, random_state=0)
        method.fit(p.Z, p.scores, Z_train=features, scores_train=errors)
        tree = method.tree_.tree_
        expected = [split_oracles.locart_radius(p.Z, p.scores, z, tree, p.coverage) for z in p.new]
        np.testing.assert_array_equal(method.predict_radius(p.new, p.level), expected, f"{seed}")
        leaves = [node for node in range(tree.node_count) if tree.children_left[node] == -1]
        inside = [split_oracles.leaf_of(tree, z) for z in p.Z]
        assert method.leaf_sizes_.tolist() == [inside.count(leaf) for leaf in leaves]
        assert min(tree.n_node_samples[leaves]) >= min(1 + seed % 4, len(errors))


# Coverage as a law


def draw(rng, n):
    Z = rng.uniform(size=(n, 1))
    y = rng.normal(size=n) * (0.05 + np.abs(np.sin(6 * Z[:, 0])))
    return Z, y


LAWS = [
    SLCP(KNN(15)),
    SLCP(RBF(0.1)),
    NormalizedKNN(5),
    NormalizedKNN(5, difficulty="distance+labels", form="exp"),
    NormalizedKNN(5, difficulty="residuals"),
    RCP(kernel=KNN(15)),
    RCP(QuantileRegressor(alpha=0.0)),
]


@quiet
@pytest.mark.parametrize("n", [20, 60])
@pytest.mark.parametrize("method", LAWS, ids=repr)
def test_marginal_coverage_is_what_is_proved(method, n):
    """Without ties, neither below nor above."""
    draws, levels, repetitions = np.random.default_rng(n), [0.5, 0.9], 500
    if isinstance(method.get_params().get("quantile_regressor"), QuantileRegressor):
        levels = [0.9]
    covered = np.empty((repetitions, len(levels)))
    for repetition in range(repetitions):
        (features, labels), (z, y) = draw(draws, 40), draw(draws, n + 50)
        s = np.abs(y)
        train = {"Z_train": features, "scores_train": np.abs(labels)}
        fit(method, z[:n], s[:n], train, labels)
        covered[repetition] = (s[n:, None] <= method.predict_radius(z[n:], levels)).mean(axis=0)
    mean, error = covered.mean(axis=0), covered.std(axis=0) / np.sqrt(repetitions)
    proved = method.guaranteed_coverage(levels)
    np.testing.assert_allclose(proved, [guarantees.conformal_coverage(c, n) for c in levels])
    np.testing.assert_array_less(np.abs(mean - proved), 4 * error)


@quiet
@pytest.mark.parametrize("n", [20, 60])
def test_locart_covers_in_every_leaf(n):
    """One tree, many calibration sets: given its leaf, a new point is covered often enough."""
    draws, levels, repetitions = np.random.default_rng(n), [0.5, 0.8, 0.9], 600
    features, labels = draw(draws, 200)
    train = {"Z_train": features, "scores_train": np.abs(labels)}
    hits, proved, counts = [], [], []
    for _ in range(repetitions):
        z, y = draw(draws, n + 60)
        s = np.abs(y)
        method = LoCart(max_leaves=4, min_leaf=20, random_state=0).fit(z[:n], s[:n], **train)
        covered = s[n:, None] <= method.predict_radius(z[n:], levels)
        leaf = np.searchsorted(np.unique(method.tree_.apply(features)), method.tree_.apply(z[n:]))
        in_leaf = (leaf == np.arange(len(method.leaf_sizes_))[:, None]) * 1.0
        hits.append(in_leaf @ covered)
        counts.append(in_leaf.sum(axis=1))
        proved.append(
            [[guarantees.conformal_coverage(c, int(m)) for c in levels] for m in method.leaf_sizes_]
        )
        smallest = np.min(proved[-1], axis=0)
        np.testing.assert_allclose(method.guaranteed_coverage(levels), smallest)
        assert (smallest >= np.array(levels) - 1e-12).all()
    hits, counts, proved = np.array(hits), np.array(counts)[..., None], np.array(proved)
    assert hits.shape[1] == 4
    # Given the sizes of the leaves, the mean is Q/(N_A+1) exactly: test the excess, leaf by leaf.
    excess = hits - counts * proved
    error = excess.std(axis=0) / np.sqrt(repetitions)
    np.testing.assert_array_less(np.abs(excess.mean(axis=0)), 4 * error + 1e-12)


# Limits


@pytest.mark.parametrize(
    "method",
    [
        SLCP(KNN(80)),
        SLCP(RBF(1e8)),
        NormalizedKNN(gamma=1e12),
        NormalizedKNN(form="exp", gamma=0.0),
        NormalizedKNN(difficulty="distance+labels", form="exp", gamma=0, rho=0),
        NormalizedKNN(79, difficulty="residuals", gamma=1e-9),
        RCP(kernel=KNN(80)),
        RCP(DummyRegressor(strategy="quantile")),
        RCP(kernel=KNN(5), offset=1e12),
        LoCart(max_leaves=1),
        LoCart(min_leaf=80),
        LoCart(min_leaf=10**6),
    ],
    ids=repr,
)
def test_nothing_local_is_split(method):
    """Flat weights, a constant difficulty, one leaf."""
    constant = {"Z_train": Z_TRAIN, "scores_train": TRAIN["scores_train"]}
    if method.get_params().get("difficulty") == "residuals":
        constant["scores_train"] = np.full(80, 3.0)
    radius = fit(method, train=constant).predict_radius(NEW, LEVELS)
    np.testing.assert_allclose(radius, SPLIT, rtol=1e-9)


def test_constant_labels_duplicates_and_one_neighbour_have_no_spread():
    for labels, k in ((np.full(80, 0.1), 3), (Y_TRAIN, 1)):
        method = NormalizedKNN(k, difficulty="labels")
        method.fit(Z, SCORES, Z_train=Z_TRAIN, y_train=labels)
        assert method.units_.tolist() == [1.0]
        np.testing.assert_allclose(method.predict_radius(NEW, LEVELS), SPLIT)
    repeated = np.repeat(Z_TRAIN[:20], 4, axis=0)
    repeated[-3:] += [[1.0], [2.0], [3.0]]
    method = NormalizedKNN(2).fit(Z, SCORES, Z_train=repeated)
    assert method.units_[0] > 0  # the median is 0, so the mean is the unit
    assert np.isfinite(method.predict_radius(NEW, LEVELS)).all()


def test_a_vanishing_length_scale_is_the_nearest_neighbour():
    radial, nearest = SLCP(RBF(1e-4)), SLCP(KNN(1))
    np.testing.assert_array_equal(
        fit(radial).predict_radius(NEW, LEVELS), fit(nearest).predict_radius(NEW, LEVELS)
    )


def test_slcp_radius_is_never_an_empty_interval():
    train = {"Z_train": np.linspace(0, 1, 80)[:, None], "scores_train": np.r_[[0.0] * 40, [9] * 40]}
    z, s = np.r_[np.full(5, 0.1), np.full(45, 0.9)][:, None], np.full(50, 1.0)
    method = SLCP(KNN(5)).fit(z, s, **train)
    np.testing.assert_array_equal(method.predict_radius([[0.1], [0.9]], 0.5), [0.0, 1.0])
    below = SLCP(KNN(5)).fit(z, s - 2, **train)  # a score that can be negative: so can the radius
    np.testing.assert_array_equal(below.predict_radius([[0.1], [0.9]], 0.5), [-10.0, -1.0])


# Levels, memory, reuse


@each_method
@quiet
def test_several_levels_equal_one_at_a_time_in_any_order(method):
    seeded = clone(method).set_params(random_state=0)
    several = fit(seeded).predict_radius(NEW, LEVELS)
    assert several.shape == (7, 4)
    again = fit(clone(seeded))
    for column in (3, 0, 2, 1):
        one = again.predict_radius(NEW, LEVELS[column])
        np.testing.assert_allclose(one, several[:, column], rtol=1e-12)


@each_method
@quiet
def test_fitting_again_forgets(method):
    seeded = clone(method).set_params(random_state=0)
    fit(seeded).predict_radius(NEW, LEVELS)
    other = {"Z_train": Z_TRAIN[:40, :1], "scores_train": TRAIN["scores_train"][40:]}
    again = fit(seeded, Z[:30, :1], SCORES[:30], other, Y_TRAIN[:40])
    fresh = fit(clone(seeded), Z[:30, :1], SCORES[:30], other, Y_TRAIN[:40])
    np.testing.assert_array_equal(
        again.predict_radius(NEW[:, :1], LEVELS), fresh.predict_radius(NEW[:, :1], LEVELS)
    )


@each_method
@quiet
def test_clone_and_pickle(method):
    fitted = fit(method)
    radius = fitted.predict_radius(NEW, LEVELS)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_radius(NEW, LEVELS), radius)
    assert repr(clone(fitted)) == repr(method)
    assert not hasattr(clone(fitted), "n_calibration_")


@each_method
@quiet
def test_words(method):
    words = fit(method).guarantee(0.8).describe()
    assert type(method).__name__ in words and "at least 0.8" in words
    if isinstance(method, LoCart):
        assert "each of the" in words and "leaves alone" in words
    else:
        assert "nine cases of ten" in words


def test_many_rows_are_worked_through_in_blocks():
    new = rng.normal(size=(30000, 2))
    for method in (SLCP(RBF(0.7)), SLCP(KNN(5)), NormalizedKNN(5), RCP(kernel=KNN(5))):
        radius = fit(method).predict_radius(new, LEVELS)
        np.testing.assert_allclose(radius[-7:], method.predict_radius(new[-7:], LEVELS), rtol=1e-9)


def test_default_regressor_and_its_seed():
    method = RCP(random_state=0)
    radius = fit(method).predict_radius(NEW, [0.5, 0.9])
    assert np.isfinite(radius).all() and isinstance(
        method.models_[0.9], HistGradientBoostingRegressor
    )
    assert method.models_[0.9].quantile == 0.9 and method.models_[0.5].quantile == 0.5
    model = method.models_[0.9]
    method.predict_radius(NEW, 0.9)
    assert method.models_[0.9] is model  # fitted once


def test_tuned_kernel_is_tuned_on_training_errors():
    method = fit(SLCP(TunedKNN()))
    assert isinstance(method.kernel_, KNN)


# Awkward input


@each_method
@quiet
def test_training_data_is_required(method):
    with pytest.raises(CalliperError, match=r"pass Z_train.*ConformalRegressor\.calibrate"):
        method.fit(Z, SCORES)


@pytest.mark.parametrize(
    ("difficulty", "given"),
    [("labels", "scores_train"), ("residuals", "y_train"), ("distance+labels", "scores_train")],
)
def test_each_difficulty_says_what_it_needs(difficulty, given):
    method = NormalizedKNN(difficulty=difficulty)
    with pytest.raises(CalliperError, match="with y_train for labels and scores_train for resid"):
        method.fit(Z, SCORES, Z_train=Z_TRAIN, **{given: np.abs(Y_TRAIN)})
    NormalizedKNN().fit(Z, SCORES, Z_train=Z_TRAIN)  # distances need inputs alone


@each_method
@quiet
@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"Z_train": Z_TRAIN[:, :1]}, "Z_train has 1 columns, Z has 2"),
        ({"Z_train": np.where(Z_TRAIN == Z_TRAIN[3, 1], np.nan, Z_TRAIN)}, "contains NaN"),
        ({"Z_train": Z_TRAIN[:, 0]}, "Expected 2D array"),
    ],
)
def test_bad_training_inputs(method, train, message):
    with pytest.raises(ValueError, match=message):
        fit(method, train={**TRAIN, **train})


@pytest.mark.parametrize(
    "method",
    [SLCP(), RCP(kernel=KNN(5)), LoCart(), NormalizedKNN(difficulty="residuals")],
    ids=repr,
)
def test_bad_training_errors(method):
    with pytest.raises(CalliperError, match="scores_train has 79 values for 80 rows"):
        fit(method, train={**TRAIN, "scores_train": TRAIN["scores_train"][:-1]})
    with pytest.raises(CalliperError, match="scores_train must be finite"):
        fit(method, train={**TRAIN, "scores_train": np.full(80, np.nan)})


@each_method
@quiet
def test_bad_calibration_data_and_new_rows(method):
    with pytest.raises(CalliperError, match=r"NaN or infinite, the first .nan. at position 49"):
        fit(method, scores=np.r_[SCORES[:-1], np.nan])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fit(method, scores=SCORES[:-1])
    with pytest.raises(ValueError, match="2 features"):
        fit(method).predict_radius(NEW[:, :1])
    with pytest.raises(ValueError, match="contains NaN"):
        fit(method).predict_radius(np.full((1, 2), np.nan))
    with pytest.raises(CalliperError, match="Divide by 100"):
        fit(method).predict_radius(NEW, 90)
    if isinstance(method, (RCP, NormalizedKNN)):
        with pytest.raises(CalliperError, match="Negative values in scores"):
            fit(method, scores=SCORES - 5)
    else:
        assert np.isfinite(fit(method, scores=SCORES - 5).predict_radius(NEW, 0.5)).all()


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        (SLCP("knn"), TypeError, "kernel must be KNN"),
        (SLCP(RBF(0.0)), ValueError, "positive, finite number; got 0.0"),
        (SLCP(KNN(0)), ValueError, "integer >= 1; got 0"),
        (NormalizedKNN(0), ValueError, "integer >= 1; got 0"),
        (NormalizedKNN(difficulty="hard"), ValueError, "difficulty must be one of"),
        (NormalizedKNN(form="product"), ValueError, "'sum' or 'exp'; got 'product'"),
        (NormalizedKNN(gamma=-1), ValueError, "finite numbers >= 0; got -1"),
        (NormalizedKNN(rho=np.inf), ValueError, "finite numbers >= 0; got inf"),
        (NormalizedKNN(gamma=0), ValueError, "gamma must be > 0 in the sum"),
        (RCP(LinearRegression()), TypeError, "parameter quantile names"),
        (RCP(HistGradientBoostingRegressor()), TypeError, "loss='quantile'"),
        (RCP(print), TypeError, "parameter quantile names"),
        (RCP(QuantileRegressor(), kernel=KNN(5)), ValueError, "not both"),
        (RCP(kernel=RBF(1.0)), TypeError, "kernel must be KNN"),
        (RCP(offset=-1), ValueError, "offset must be"),
        (LoCart(min_leaf=0), ValueError, "min_leaf must be an integer >= 1 or None; got 0"),
        (LoCart(max_leaves=2.5), ValueError, "max_leaves must be an integer >= 1 or None"),
    ],
    ids=repr,
)
def test_bad_parameters(method, error, message):
    with pytest.raises(error, match=message):
        fit(method)


def test_too_few_training_points():
    few = {"Z_train": Z_TRAIN[:3], "scores_train": TRAIN["scores_train"][:3]}
    for method in (SLCP(KNN(5)), RCP(kernel=KNN(5)), NormalizedKNN(5)):
        with pytest.warns(SmallCalibrationWarning, match="5 neighbours were asked for"):
            fit(method, train=few, y_train=Y_TRAIN[:3])
        assert np.isfinite(method.predict_radius(NEW)).all()
    with pytest.raises(CalliperError, match="at least 2 training points; got 1"):
        NormalizedKNN(1).fit(Z, SCORES, Z_train=Z_TRAIN[:1])


@pytest.mark.parametrize("method", [SLCP(), NormalizedKNN(), RCP(kernel=KNN(5))], ids=repr)
def test_too_few_calibration_points_give_infinity_and_one_warning(method):
    fitted = fit(method, Z[:18], SCORES[:18])
    with pytest.warns(SmallCalibrationWarning, match="18 calibration points") as caught:
        radius = fitted.predict_radius(NEW, [0.5, 0.95, 0.99])
    assert len(caught) == 1
    assert np.isfinite(radius[:, 0]).all() and np.isinf(radius[:, 1:]).all()
    assert fitted.guaranteed_coverage(0.95) == 1.0


def test_a_leaf_too_small_for_the_level():
    z_train = np.linspace(0, 1, 100)[:, None]
    train = {"Z_train": z_train, "scores_train": np.where(z_train[:, 0] < 0.5, 1.0, 5.0)}
    z = np.r_[np.full(4, 0.2), np.full(30, 0.8)][:, None]
    method = LoCart(min_leaf=30).fit(z, np.arange(34.0), **train)
    assert method.leaf_sizes_.tolist() == [4, 30]
    with pytest.warns(
        SmallCalibrationWarning, match="1 of 2 leaves hold fewer than the 9"
    ) as caught:
        radius = method.predict_radius([[0.1], [0.9]], [0.5, 0.9])
    assert len(caught) == 1
    np.testing.assert_array_equal(radius, [[2.0, np.inf], [19.0, 31.0]])
    assert method.guaranteed_coverage(0.9) == pytest.approx(28 / 31)
    assert method.guaranteed_coverage([0.5, 0.9]) == pytest.approx([16 / 31, 28 / 31])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.predict_radius([[0.1], [0.9]], [0.5, 0.8])


def test_default_leaves_expect_enough_calibration_points():
    z_train, z = rng.uniform(size=(2000, 1)), rng.uniform(size=(500, 1))
    train = {"Z_train": z_train, "scores_train": z_train[:, 0] * rng.exponential(size=2000)}
    sizes = [LoCart().fit(z, z[:, 0], **train).leaf_sizes_ for _ in range(3)]
    assert all(len(size) > 3 and size.min() >= 19 for size in sizes)
    method = fit(LoCart())  # 50 calibration points are too few to cut: one leaf
    np.testing.assert_array_equal(method.predict_radius(NEW, LEVELS), SPLIT)


class Steep(BaseEstimator):
    """A quantile regressor that follows one feature below 0."""

    def __init__(self, quantile=0.5, slope=5.0):
        self.quantile, self.slope = quantile, slope

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.slope * X[:, 0]


def test_a_quantile_regressor_that_predicts_negative_values():
    n_zero = np.count_nonzero(Z[:, 0] <= 0)
    method = fit(RCP(Steep()))
    with pytest.warns(ZeroScaleWarning, match=f"zero at {n_zero} of 50 calibration points"):
        radius = method.predict_radius(NEW, [0.1, 0.9])
    assert (radius[NEW[:, 0] < 0, 0] == 0).all() and (radius[NEW[:, 0] > 0, 0] > 0).all()
    assert np.isinf(radius[:, 1]).all()  # more than a tenth of the calibration points
    moved = fit(RCP(Steep(), offset=0.5)).predict_radius(NEW, [0.1, 0.9])
    assert np.isfinite(moved).all() and (moved > 0).all()
    with pytest.raises(CalliperError, match="predicted quantiles must be finite"):
        fit(RCP(Steep(slope=np.nan))).predict_radius(NEW)


def test_far_away_points_never_give_nan():
    far = np.array([[1e140, 0.0], [0.0, 0.0]])
    for form in ("sum", "exp"):
        method = NormalizedKNN(difficulty="distance", form=form)
        radius = method.fit(Z, np.where(SCORES < 1, 0.0, SCORES), Z_train=Z_TRAIN)
        assert not np.isnan(radius.predict_radius(far, LEVELS)).any()
        with_far = method.fit(np.vstack([Z, far]), np.r_[SCORES, 1.0, 1.0], Z_train=Z_TRAIN)
        assert not np.isnan(with_far.predict_radius(far, LEVELS)).any()
