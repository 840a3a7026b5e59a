"""Local scales mixed with the median of the bag: equal to the definition, and valid."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from calliper import KNN, RBF, FullRescaled, Split
from calliper.kernels import GradedKNN
from cases.problems import small_problem
from oracles import rescaled as oracles

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
LEVELS = [0.1, 0.5, 0.8, 0.9]
SHRINKAGES = [0.05, 0.25, 0.5, 0.75, 0.95]


def p_value(t, p, z, method, m, statistic="mean"):
    """The literal p(t), with the median of the bag counted out and mixed into every scale."""
    name = method[0]
    n, power = len(p.Z), 2 if statistic == "rms" else 1
    number = oracles.MP.mpf if name == "rbf" else Fraction
    bag = np.vstack([p.Z, z])
    sizes = [number(float(v)) ** power for v in [*p.magnitudes, t]]
    scores = [number(float(v)) ** power for v in [*p.scores, t]]
    m, offset = number(float(m)), number(float(p.offset)) ** power
    middle = sorted(sizes)[-(-(n + 1) // 2) - 1]

    def scale(i):
        others = [k for k in range(n + 1) if k != i]
        weights = oracles.kernel_weights(bag, bag[i], others, method)
        if statistic == "quantile":
            local = oracles.weighted_rank(weights, sizes, Fraction(p.coverage))
        else:
            local = oracles.weighted_mean(weights, sizes)
        return (1 - m) * local + m * middle + offset

    new = scale(n)
    slack = number(10) ** -40 if name == "rbf" else 0
    wins = sum(scores[i] * new >= scores[n] * scale(i) * (1 - slack) for i in range(n))
    return Fraction(1 + wins, n + 1)


def assert_literal(p, method, m, statistic="mean"):
    kernel = {"knn": KNN, "graded": GradedKNN, "rbf": RBF}[method[0]](method[1])
    full = FullRescaled(kernel, shrinkage=m, statistic=statistic, offset=p.offset).fit(
        p.Z, p.scores, magnitudes=p.magnitudes
    )
    alpha = 1 - Fraction(p.coverage)
    radii = full.predict_radius(p.new, p.level)
    for z, radius in zip(p.new, radii, strict=True):
        if np.isinf(radius):
            assert p_value(1e30, p, z, method, m, statistic) > alpha, p.seed
            continue
        assert p_value(radius * (1 - 1e-9), p, z, method, m, statistic) > alpha, p.seed
        above = radius * (1 + 1e-9) + 1e-300
        assert p_value(above, p, z, method, m, statistic) <= alpha, p.seed
    return full, radii


@pytest.mark.parametrize("statistic", ["mean", "rms", "quantile"])
@pytest.mark.parametrize("batch", range(3))
def test_knn_is_where_the_literal_p_value_falls(batch, statistic):
    for seed in range(50 * batch, 50 * batch + 50):
        p = small_problem(seed)
        assert_literal(p, ("knn", p.n_neighbors), SHRINKAGES[seed % 5], statistic)


@pytest.mark.parametrize("statistic", ["mean", "rms"])
@pytest.mark.parametrize("batch", range(3))
def test_graded_neighbours_are_where_the_literal_p_value_falls(batch, statistic):
    """Ties, zeros and copies; the new point among the K nearest, the 4K nearest, and neither."""
    for seed in range(30 * batch, 30 * batch + 30):
        p = small_problem(seed, smallest=2)
        k = 1 if seed % 3 else max(1, len(p.Z) // 4)
        assert_literal(p, ("graded", k), [0.0, *SHRINKAGES][seed % 6], statistic)


def test_all_three_regions_of_the_median_occur():
    """The oracle above would prove little if answers never fell between the two middle scores."""
    regions = set()
    for seed in range(200):
        p = small_problem(seed, smallest=2)
        full = FullRescaled(KNN(p.n_neighbors), shrinkage=0.5, random_state=seed)
        full.fit(p.Z, p.scores, magnitudes=p.magnitudes)
        low, high = (np.ldexp(end, -full.shift_) for end in (full.bag_.low, full.bag_.high))
        for radius in full.predict_radius(p.new, p.level):
            regions.add("below" if radius < low else "above" if radius > high else "between")
            if low < radius * (1 - 1e-9) and radius * (1 + 1e-9) < high:
                regions.add("strictly between")
    assert regions == {"below", "between", "above", "strictly between"}


def test_a_lower_middle_of_zero_does_not_settle_the_answer():
    """With no error near by, R_a = 0 although κt > 0 is added for every t > 0."""
    p = dataclasses.replace(
        small_problem(0),
        Z=np.array([[-1.0], [1.0], [5.0], [5.1]]),
        new=np.array([[0.0]]),
        magnitudes=np.array([0.0, 0.0, 1.0, 1.0]),
        scores=np.array([0.0, 0.0, 1.0, 1.0]),
        offset=0.0,
        coverage="0.6",
    )
    _, radius = assert_literal(p, ("knn", 2), 2 / 3)
    np.testing.assert_allclose(radius, 0.75)


@pytest.mark.parametrize("log10", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("seed", range(12))
def test_rbf_is_where_the_literal_p_value_falls(seed, log10):
    p = small_problem(seed, smallest=2, largest=9)
    # As for the plain method, a vanishing weight times a zero has no exact float value.
    log10 = max(log10, -0.5 if p.discrete else log10)
    positive = p.magnitudes + 0.01
    p = dataclasses.replace(
        p, magnitudes=positive, scores=np.where(p.scores > 0, positive, 0.0), new=p.new[:1]
    )
    assert_literal(p, ("rbf", 10.0**log10), SHRINKAGES[seed % 5], ["mean", "rms"][seed % 2])


@pytest.mark.parametrize("kernel", [KNN(3), RBF(0.3)], ids=repr)
@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_full_shrinkage_is_split_to_the_last_digit(n, kernel):
    rng = np.random.default_rng(n)
    Z, new, scores = rng.normal(size=(n, 2)), rng.normal(size=(5, 2)), rng.integers(0, 9, n) / 7
    radius = FullRescaled(kernel, shrinkage=1).fit(Z, scores).predict_radius(new, LEVELS)
    np.testing.assert_array_equal(radius, Split().fit(Z, scores).predict_radius(new, LEVELS))


@pytest.mark.parametrize("kernel", [KNN(5), RBF(0.3)], ids=repr)
def test_it_runs_from_local_to_split_without_a_jump(kernel):
    rng = np.random.default_rng(0)
    Z, new, scores = rng.normal(size=(60, 2)), rng.normal(size=(9, 2)), rng.exponential(size=60)

    def radius(m):
        return FullRescaled(kernel, shrinkage=m, random_state=0).fit(Z, scores).predict_radius(new)

    local = FullRescaled(kernel, random_state=0).fit(Z, scores).predict_radius(new)
    np.testing.assert_array_equal(radius(0.0), local)
    np.testing.assert_allclose(radius(1e-13), local, rtol=1e-9)
    np.testing.assert_allclose(radius(1 - 1e-13), radius(1.0), rtol=1e-9)
    path = np.stack([radius(m) for m in np.linspace(0, 1, 301)])
    assert np.abs(np.diff(np.log(path), axis=0)).max() < 0.1


@pytest.mark.parametrize("statistic", ["mean", "rms"])
@pytest.mark.parametrize("kernel", [KNN(5), RBF(0.3)], ids=repr)
def test_large_n_equals_solving_for_every_point(kernel, statistic):
    """Hundreds of points and all levels, so that each region and its window are used."""
    rng = np.random.default_rng(1)
    n, m, power = 200, 0.3, 2 if statistic == "rms" else 1
    Z, new = rng.normal(size=(n, 2)), rng.normal(size=(60, 2))
    scores = np.round(rng.exponential(size=n) * np.exp(Z[:, 0]), 1)
    full = FullRescaled(kernel, shrinkage=m, statistic=statistic, random_state=0).fit(Z, scores)
    levels = np.linspace(0.05, 0.95, 19).tolist()
    radius = full.predict_radius(new, levels)
    sizes = scores**power
    ordered = np.sort(sizes)
    below, above = ordered[n // 2 - 1], ordered[n // 2]

    def weights_among(bag):
        squared = ((bag[:, None] - bag) ** 2).sum(-1)
        np.fill_diagonal(squared, np.inf)
        if isinstance(kernel, RBF):
            return np.exp(-squared / 2 / kernel.length_scale**2)
        return squared <= np.sort(squared, axis=1)[:, [kernel.n_neighbors - 1]]

    for z, row in zip(new, radius, strict=True):
        w = weights_among(np.vstack([Z, z])).astype(float)
        w /= w.sum(axis=1, keepdims=True)

        def wins(t, w=w):
            scale = (1 - m) * (w @ [*sizes, t]) + m * np.clip(t, below, above)
            return int((sizes * scale[-1] >= t * scale[:-1]).sum())

        for level, r in zip(levels, row, strict=True):
            needed = n + 1 - int(np.ceil(level * (n + 1) - 1e-9))
            assert wins((r * (1 - 1e-8)) ** power) >= needed
            assert wins((r * (1 + 1e-8) + 1e-100) ** power) < needed


def test_adversarial_bags_are_covered(adversarial_bags):
    for (_, coverage, k), (Z, scores) in adversarial_bags.items():
        if len(scores) > 60:
            continue
        for m in SHRINKAGES:

            def radius(Z, s, z, coverage, k=k, m=m):
                full = FullRescaled(KNN(k), shrinkage=m, random_state=0).fit(Z, s)
                return full.predict_radius([z], float(coverage))[0]

            assert oracles.bag_coverage(Z, scores, radius, coverage) >= Fraction(coverage)


@pytest.mark.parametrize("seed", range(30))
def test_bags_with_ties_and_zeros_are_covered(seed):
    p = small_problem(seed, smallest=4)

    def radius(Z, s, z, coverage):
        full = FullRescaled(RBF(0.7), shrinkage=SHRINKAGES[seed % 5]).fit(Z, s)
        return full.predict_radius([z], float(coverage))[0]

    assert oracles.bag_coverage(p.Z, p.magnitudes, radius, p.coverage) >= Fraction(p.coverage)


@pytest.mark.parametrize("kernel", [KNN(3), RBF(0.7)], ids=repr)
@pytest.mark.parametrize("statistic", ["mean", "rms"])
def test_units_and_order_of_rows_do_not_matter(kernel, statistic):
    rng = np.random.default_rng(0)
    Z, new, scores = rng.normal(size=(31, 2)), rng.normal(size=(9, 2)), rng.exponential(size=31)

    def radius(Z, scores):
        full = FullRescaled(kernel, shrinkage=0.4, statistic=statistic, random_state=0)
        return full.fit(Z, scores).predict_radius(new, LEVELS)

    plain, order = radius(Z, scores), rng.permutation(31)
    np.testing.assert_allclose(radius(Z[order], scores[order]), plain, rtol=1e-10)
    np.testing.assert_allclose(radius(Z, 1e-120 * scores), 1e-120 * plain, rtol=1e-10)
    np.testing.assert_allclose(radius(Z, 1e120 * scores), 1e120 * plain, rtol=1e-10)


@pytest.mark.parametrize("n", [5, 8, 9])
@pytest.mark.parametrize("zeros", [0, 2, 4])
def test_all_thresholds_in_order_are_those_of_each_rank(n, zeros):
    """Of either sign, and where the lower of the middle scores is zero."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        Z, new = rng.normal(size=(n, 2)), rng.normal(size=(4, 2))
        scores = np.append(np.zeros(zeros), rng.exponential(size=n - zeros))
        for statistic in ("mean", "rms"):
            full = FullRescaled(KNN(2), shrinkage=0.5, statistic=statistic)
            full.fit(Z, scores, signs=np.sign(scores) * rng.choice([-1.0, 1.0], size=n))
            every = np.sort(full.signed_thresholds(new), axis=1)
            found = full.signed_thresholds(new, [*range(1, n + 1)])
            np.testing.assert_allclose(found, every, rtol=1e-9, atol=1e-12)
            sizes = np.sort(full._in_unit(full.bag_.thresholds(new)), axis=1)
            levels = [rank / (n + 1) for rank in range(1, n + 1)]
            radius = full.predict_radius(new, levels)
            np.testing.assert_allclose(radius, sizes, rtol=1e-9, atol=1e-12)


def test_a_positive_median_leaves_no_zero_scale():
    rng = np.random.default_rng(0)
    Z, scores = np.sort(rng.uniform(size=(50, 1)), axis=0), rng.exponential(size=50)
    scores[:20] = 0.0
    new = [[0.0], [1.0]]
    assert np.isinf(FullRescaled(KNN(3)).fit(Z, scores).predict_radius(new, 0.9)).any()
    shrunk = FullRescaled(KNN(3), shrinkage=0.2).fit(Z, scores)
    assert (shrunk.bag_.calibration_scale(0.9) > 0).all()
    assert np.isfinite(shrunk.predict_radius(new, 0.9)).all()


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan, "half"])
def test_bad_shrinkage_is_refused(bad):
    with pytest.raises(ValueError, match="number from 0 to 1; got"):
        FullRescaled(KNN(3), shrinkage=bad).fit([[0.0], [1.0]], [1.0, 2.0])
