"""Points at the same distance share the last place: equal to exact arithmetic, and valid.

The oracle recomputes every quantity from its definition in rational numbers. The laws are asked
*given* a seed: whoever fixes one must be covered as often as promised over draws of the data.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone

from calliper import KNN, RBF, FullRescaled, JackknifeRescaled
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    JackknifeMinmaxRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
)
from calliper.kernels import Mahalanobis, NeighborSearch, TunedKNN, TunedRBF, _nearest
from oracles import shared_ties as oracle

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
PLACES = {
    "alike": lambda rng, n, d: np.full((n, d), 7.0),
    "zero": lambda rng, n, d: np.zeros((n, d)),
    "two": lambda rng, n, d: rng.integers(2, size=(n, d)) * 1.0,
    "four": lambda rng, n, d: rng.integers(4, size=(n, d)) * 1.0,
    "grid": lambda rng, n, d: rng.integers(n, size=(n, d)) * 1.0,
    "half zero": lambda rng, n, d: rng.integers(99, size=(n, d)) * (rng.random((n, 1)) < 0.5) * 1.0,
    "different": lambda rng, n, d: rng.integers(10**6, size=(n, d)) * 1.0,
}
SCORES = [
    lambda rng, n: rng.integers(4, size=n) * 1.0,
    lambda rng, n: np.zeros(n),
    lambda rng, n: np.full(n, 5.0),
    lambda rng, n: rng.integers(10**6, size=n) * 1.0,
    lambda rng, n: rng.integers(1, 50, size=n) * (rng.random(n) < 0.4) * 1.0,
]


def world(seed):
    """A small problem full of ties: rows, scores, and a new row."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 9)), int(rng.choice([1, 1, 2, 3, 40]))
    Z = PLACES[[*PLACES][seed % len(PLACES)]](rng, n + 1, d)
    return rng, Z[:n], SCORES[rng.integers(len(SCORES))](rng, n), Z[n:]


@pytest.fixture(params=["candidates", "places"])
def way(request, monkeypatch):
    """Both ways to gather who is tied; small problems would take the first where there is one."""
    if request.param == "places":
        none = lambda self, rows, n, left_out=None: (  # noqa: E731
            np.zeros((len(rows), n), dtype=np.intp),
            np.zeros((len(rows), n)),
            np.zeros(len(rows), dtype=bool),
        )
        monkeypatch.setattr(NeighborSearch, "shell", none)


@pytest.mark.parametrize("batch", range(3))
def test_jackknife_and_minmax_equal_exact_arithmetic(batch, way):
    for seed in range(50 * batch, 50 * batch + 50):
        rng, Z, scores, new = world(seed)
        k, offset = int(rng.integers(1, len(Z))), float(rng.choice([0, 0.5]))
        for method, exact in (
            (JackknifeRescaled(KNN(k), offset=offset), oracle.jackknife_radius),
            (JackknifeMinmaxRescaled(KNN(k), offset=offset), oracle.minmax_radius),
        ):
            radius = method.fit(Z, scores).predict_radius(new, 0.6)
            expected = float(exact(Z, scores, new[0], k, 0.6, offset))
            np.testing.assert_allclose(radius, [expected], rtol=1e-10, err_msg=f"seed {seed}")


@pytest.mark.parametrize("statistic", ["mean", "rms", "quantile"])
@pytest.mark.parametrize("batch", range(2))
def test_full_ends_where_the_exact_p_value_falls(batch, statistic, way):
    for seed in range(50 * batch, 50 * batch + 50):
        rng, Z, scores, new = world(seed)
        n, k, level = len(Z), int(rng.integers(1, len(Z) + 1)), float(rng.choice([0.5, 0.7, 0.8]))
        offset, m = float(rng.choice([0, 0, 0.5])), float(rng.choice([0, 0, 0.25, 0.5]))
        method = FullRescaled(KNN(k), statistic=statistic, offset=offset, shrinkage=m)
        radius = float(method.fit(Z, scores).predict_radius(new, level)[0])

        def kept(t, Z=Z, scores=scores, new=new, k=k, level=level, offset=offset, m=m):
            options = k, statistic, level, offset, Fraction(m)
            p = oracle.full_p_value(Z, scores, new[0], t, *options)
            return oracle.accepted(p, len(Z), level)

        if math.isinf(radius):
            assert kept(10**12), seed
            continue
        assert radius == 0 or kept(radius * (1 - 1e-9)), seed
        assert not kept(radius * (1 + 1e-9) + 1e-12 * (radius == 0)), (seed, n)


@pytest.mark.parametrize("metric", ["cityblock", "chebyshev"])
def test_any_metric_shares(metric):
    """On a line all of them are alike."""
    rng = np.random.default_rng(0)
    Z, scores, new = rng.integers(5, size=(40, 1)), rng.exponential(size=40), [[1], [2.5], [9]]
    for kind in (FullRescaled, JackknifeRescaled, JackknifeMinmaxRescaled):
        expected = kind(KNN(6)).fit(Z, scores).predict_radius(new)
        found = kind(KNN(6, metric=metric)).fit(Z, scores).predict_radius(new)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_leaving_each_out_never_subtracts_what_dominates():
    part = np.array([[1e200, 1.0, 0.0, 2.0], [5.0, 0.0, 0.0, 0.0]])
    expected = [[3.0, 1e200, 1e200, 1e200], [0.0, 5.0, 5.0, 5.0]]
    np.testing.assert_array_equal(_nearest.sums_without(part.copy()), expected)


def test_copies_by_thousands_stay_small():
    """One column of four values: every point has thousands that are just as far."""
    rng = np.random.default_rng(0)
    Z, scores = rng.integers(4, size=(20_000, 1)) * 1.0, rng.exponential(size=20_000)
    for statistic, n in (("mean", 20_000), ("quantile", 2000)):
        method = FullRescaled(KNN(10), statistic=statistic).fit(Z[:n], scores[:n])
        assert len(set(method.predict_radius(Z[:5000]))) == 4
    search = NeighborSearch(Z, "euclidean")
    assert search.nearest(Z[:3], 10)[1].all()


# ------------------------------------------------------------------ laws of coverage given a seed
def assert_covers(method, draw, n, *, draws, proved=0.9, train=False):
    """New scores are covered as often as is proved, over draws of data, the method as given."""
    share = []
    for number in range(draws):
        rng = np.random.default_rng(number)
        Z = draw(rng, n + 80)
        scores = np.abs(rng.normal(size=len(Z))) * (1 + np.abs(Z[:, 0]))
        errors = scores[n + 40 :]
        rest = Z[n + 40 :], errors, errors * rng.choice([-1, 1], 40)
        fitted = clone(method).fit(Z[:n], scores[:n], training=rest if train else None)
        share.append(np.mean(scores[n : n + 40] <= fitted.predict_radius(Z[n : n + 40])))
    assert np.mean(share) >= proved - 3.5 * np.std(share) / math.sqrt(draws)


DISCRETE = [PLACES[name] for name in ("alike", "two", "four")]


@pytest.mark.parametrize("kernel", [KNN(1), KNN(3), None], ids=repr)
@pytest.mark.parametrize("place", DISCRETE, ids=["alike", "two", "four"])
def test_full_covers_given_a_seed(kernel, place):
    method = FullRescaled(kernel, random_state=2)
    assert_covers(method, lambda rng, m: place(rng, m, 1), 9, draws=70)


TRAINED = True
DRAWING = [
    (FullRescaled(TunedKNN(n_neighbors=(2, 5))), TRAINED),
    (FullRescaled(Mahalanobis(KNN(3), max_iter=5)), TRAINED),
    (FullRescaled(RBF(0.5)), False),
    (JackknifeMinmaxRescaled(KNN(3)), False),
    (MADSplit(KNN(3)), TRAINED),
    (SLCP(KNN(5)), TRAINED),
    (RCP(kernel=KNN(5)), TRAINED),
    (NormalizedKNN(5, difficulty="labels"), TRAINED),
    (LCP("neighbors", bandwidth=4), False),
    (LCP("neighbors"), TRAINED),
    (LCP("exponential", bandwidth=0.5), False),
    (RLCP(0.7), False),
    (LVD(n_directions=1, max_iter=5), TRAINED),
    (LoCart(), TRAINED),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("method", "train"), DRAWING, ids=lambda value: repr(value)[:60])
def test_every_method_covers_what_it_promises_given_a_seed(method, train):
    if "random_state" in method.get_params():
        method = clone(method).set_params(random_state=3)

    def draw(rng, m):
        return rng.integers(2, size=(m, 1)) * 1.0

    assert_covers(method, draw, 19, draws=45, train=train)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_tuned_jackknife_covers_given_a_seed(seed):
    """Mutual information of tied features breaks ties at random: anew for every data set."""
    for kernel in (TunedKNN("mi", n_neighbors=(2, 5)), TunedRBF("mi", length_scales=[0.3, 1, 3])):
        method = JackknifeRescaled(kernel, random_state=seed)
        assert_covers(method, lambda rng, m: PLACES["two"](rng, m, 1), 19, draws=30, proved=0.85)


def test_equal_rows_have_centres_of_their_own():
    """Given the seed, the draws of a new row are new for copies of it and for other data."""
    rng = np.random.default_rng(0)
    Z, scores = rng.normal(size=(200, 1)), rng.exponential(size=200)
    method = RLCP(0.3, random_state=0).fit(Z, scores)
    copies = method.predict_radius(np.zeros((50, 1)))
    assert len(set(copies)) > 5
    assert copies[0] == method.predict_radius([[0.0]])[0]
    other = RLCP(0.3, random_state=0).fit(Z[::-1], scores[::-1]).predict_radius(np.zeros((50, 1)))
    np.testing.assert_array_equal(copies, other)
    fewer = RLCP(0.3, random_state=0).fit(Z[1:], scores[1:]).predict_radius(np.zeros((50, 1)))
    assert (copies != fewer).mean() > 0.3


# ------------------------------------------------------------------ features at a zero centre
CENTRED = {
    "all zero": lambda rng, m: np.zeros((m, 2)),
    "half zero": lambda rng, m: rng.normal(size=(m, 2)) * (rng.random((m, 1)) < 0.5),
    "factorial": lambda rng, m: rng.choice([-1.0, 0.0, 0.0, 1.0], size=(m, 2)),
    "1e-200": lambda rng, m: 1e-200 * rng.choice([-1.0, 0.0, 1.0], size=(m, 2)),
    "1e-200, wide": lambda rng, m: 1e-200 * rng.choice([-1.0, 0.0, 1.0], size=(m, 40)),
}


@pytest.mark.parametrize("draw", CENTRED.values(), ids=CENTRED)
def test_full_covers_at_a_zero_centre(draw):
    """Doubtful pairs are those within rounding error of the edge, zero error included."""
    assert_covers(FullRescaled(KNN(1), random_state=0), draw, 9, draws=100)


@pytest.mark.parametrize("d", [1, 2, 40])
@pytest.mark.parametrize("unit", [1e-200, 1e-130, 1e120])
def test_features_of_any_size_are_as_near_as_their_unit_says(unit, d):
    rng = np.random.default_rng(0)
    Z, scores, new = rng.normal(size=(1200, d)), rng.exponential(size=1200), rng.normal(size=(9, d))
    two = 2.0 ** round(math.log2(unit))  # exact, so that nothing else differs
    for kind in (FullRescaled, JackknifeRescaled):
        expected = kind(KNN(5)).fit(Z, scores).predict_radius(new)
        found = kind(KNN(5)).fit(Z * two, scores).predict_radius(new * two)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
