"""Sites stand for their points: the same thresholds as from all pairs, found among few."""

import numpy as np
import pytest

from calliper import RBF, FullRescaled
from calliper._blocks import distinct
from calliper.kernels import _rbf
from calliper.kernels._rbf import BagOfSites, Radial, Window
from calliper.kernels._weighted import BagWeighted
from calliper.quantile import Shares, conformal_rank

LEVELS = (0.01, 0.1, 0.5, 0.9, 0.97, 0.999)


def scores_of(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    scores = np.abs(rng.standard_t(2, size=n))
    if kind == "tied":
        return np.round(scores)
    if kind == "one":
        return np.eye(1, n)[0]
    if kind == "spanning":
        return scores * 10.0 ** rng.integers(-60, 60, size=n)
    if kind == "outlier":
        return np.append(np.ones(n - 1), 1e14)
    return scores if kind == "plain" else np.zeros(n)


@pytest.mark.parametrize("kind", ["plain", "tied", "one", "spanning", "outlier", "zero"])
@pytest.mark.parametrize(("delta", "exceptions"), [(0.02, 0.05), (0.3, 0.3), (0.001, 0.9)])
def test_the_same_as_from_all_pairs(kind, delta, exceptions, monkeypatch):
    """BagWeighted computes every threshold from every pair of points."""
    monkeypatch.setattr(_rbf, "DELTA", delta)
    monkeypatch.setattr(_rbf, "EXCEPTIONS", exceptions)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(2, 400)), int(rng.integers(1, 4))
        Z, scores, offset = rng.normal(size=(n, d)), scores_of(kind, n, rng), 0.3 * (seed % 2)
        new = np.vstack([rng.normal(size=(30, d)) * 3, Z[:4], 1e9 * np.ones((1, d))])
        radial = Radial(Z, 0.6, "euclidean", 0.8, smoothing=1.0)
        slow = BagWeighted(radial, scores, scores, offset)
        levels = [level for level in LEVELS if conformal_rank(level, n) <= n]
        expected = slow.order_statistics(new, levels)
        close = {"rtol": 1e-11, "atol": 0}
        for many in (0, 10**9):  # searched for, and selected from all
            monkeypatch.setattr(_rbf, "MANY", many)
            bag = BagOfSites(radial, scores, scores, offset)
            found = bag.order_statistics(new, levels)
            assert ("_window" in vars(bag)) == (many == 0)
            np.testing.assert_allclose(found, expected, **close)
            np.testing.assert_array_equal(found, BagWeighted.order_statistics(bag, new, levels))
            one_by_one = [bag.order_statistics(row[None], levels) for row in new]
            np.testing.assert_array_equal(found, np.concatenate(one_by_one))
        np.testing.assert_allclose(bag.thresholds(new), slow.thresholds(new), **close)
        signs, ranks = np.sign(rng.normal(size=n)), [1, n]
        both = [each.order_statistics(new, ranks, signs=signs) for each in (bag, slow)]
        np.testing.assert_allclose(*both, **close)
        often = np.repeat(new, 3, axis=0)
        shares = Shares(rng.uniform(0.1, 1, size=n), rng.uniform(size=len(often)))
        both = [each.order_statistics(often, levels, shares) for each in (bag, slow)]
        np.testing.assert_allclose(*both, **close)


def test_rows_between_crowds_of_very_different_errors(monkeypatch):
    """Two crowds whose errors differ by a factor of a million, and a row between them."""
    monkeypatch.setattr(_rbf, "MANY", 0)
    rng = np.random.default_rng(0)
    Z = np.repeat([[0.0], [5.0]], 300, axis=0)
    scores = rng.exponential(size=600) * np.repeat([1.0, 1e6], 300)
    radial = Radial(Z, 1.0, "euclidean", 0.5, smoothing=1.0)
    bag = BagOfSites(radial, scores, scores, 0.0)
    new, levels = np.linspace(-3, 9, 40)[:, None], [0.05, 0.5, 0.51, 0.95]
    found = bag.order_statistics(new, levels)
    np.testing.assert_array_equal(found, BagWeighted.order_statistics(bag, new, levels))


def test_sites_are_told_apart_and_the_order_of_points_does_not_matter():
    rng = np.random.default_rng(1)
    sites = np.round(rng.normal(size=(200, 3)))
    first, site = distinct(sites)
    np.testing.assert_array_equal(sites[first][site], sites)
    assert len(np.unique(sites + 0.0, axis=0)) == len(first)
    scores, new, order = rng.exponential(size=200), sites[:9] + 0.1, rng.permutation(200)
    kernel = RBF(1.0, smoothing=1.0, step=1.0)
    radii = [
        FullRescaled(kernel).fit(sites[rows], scores[rows]).predict_radius(new, 0.9)
        for rows in (np.arange(200), order)
    ]
    np.testing.assert_allclose(*radii, rtol=1e-12)


def test_another_offset_has_another_window(monkeypatch):
    monkeypatch.setattr(_rbf, "MANY", 0)
    rng = np.random.default_rng(0)
    Z, scores, new = rng.normal(size=(200, 1)), rng.exponential(size=200), np.zeros((1, 1))
    radial = Radial(Z, 0.6, "euclidean", 0.8, smoothing=1.0)
    plain, moved = (BagOfSites(radial, scores, scores, offset) for offset in (0.0, 5.0))
    assert plain.order_statistics(new, [0.5]) != moved.order_statistics(new, [0.5])
    assert plain.with_offset(5.0).order_statistics(new, [0.5]) == moved.order_statistics(new, [0.5])


def test_the_others_of_a_giant_in_its_place_are_summed_without_it():
    scores = np.array([1e20, 1.0, 2.0])
    bag = BagOfSites(Radial(np.zeros((3, 1)), 1.0, "euclidean", 1.0, 3.0), scores, scores, 0.0)
    np.testing.assert_allclose(bag.total, [6.0, 2e20, 2e20])  # each weighs 1 + b/N = 2


@pytest.mark.parametrize("delta", [0.02, 0.4])
def test_few_places_of_very_different_errors_at_every_rank(delta, monkeypatch):
    """New rows far from all sites, near one, and in one, with and without an offset."""
    for name, value in {"MANY": 0, "DELTA": delta, "EXCEPTIONS": 0.95}.items():
        monkeypatch.setattr(_rbf, name, value)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, sites = int(rng.integers(5, 40)), int(rng.integers(2, 12))
        at = rng.integers(sites, size=n)
        Z = 1.0 * at[:, None] + 3.0 * (at[:, None] > sites // 2)
        scores = rng.exponential(size=n) * 10.0 ** rng.integers(-2, 3, size=sites)[at]
        radial = Radial(Z, float(rng.choice([0.3, 1.0])), "euclidean", 0.5, smoothing=0.05)
        bag = BagOfSites(radial, scores, scores, 0.2 * (seed % 2))
        new = np.append(np.linspace(-1, sites + 4, 7), 99.0)[:, None]
        levels = [(rank - 0.5) / (n + 1) for rank in range(1, n + 1)]
        expected = BagWeighted.order_statistics(bag, new, levels)
        np.testing.assert_array_equal(bag.order_statistics(new, levels), expected)
        one_by_one = [bag.order_statistics(row[None], levels)[0] for row in new]
        np.testing.assert_array_equal(one_by_one, expected)


def test_points_whose_thresholds_leave_the_order_of_their_ratios_are_solved(monkeypatch):
    """Sums at the brink of what moves a threshold by δ: of loud points little, of quiet ones much.

    The smaller of two ratios has the larger threshold if it is pushed up and the other down.
    """
    monkeypatch.setattr(_rbf, "EXCEPTIONS", 0.95)
    for seed in range(600):
        rng = np.random.default_rng(seed)
        delta, n = float(rng.choice([0.02, 0.2])), int(rng.integers(2, 6))
        monkeypatch.setattr(_rbf, "DELTA", delta)
        own = 10.0 ** rng.choice([-2, -1, 0, 1, 2], size=n)  # scales without the row
        ratio = 1 + delta * rng.uniform(-4, 4, size=n)
        offset, loud = float(rng.choice([0, 0, 1, 0.5])) * own.min(), rng.choice([1.0, 1.9, 0.1])
        unit, loud = 1e-4 ** (seed % 2), loud * 1e-3 ** (seed % 5 == 0)
        share = delta * rng.uniform(0.3, 2.2, size=n) / np.maximum(1, (1 + offset) / own)
        radial = Radial(np.arange(n)[:, None] * 1.0, 1.0, "euclidean", 0.5, smoothing=1.0)
        bag = BagOfSites(radial, unit * own * ratio, unit * own * ratio, unit * offset)
        bag.weight = loud * (1 - share) / share
        bag.total = unit * (own - offset) * bag.weight
        row = np.full((1, n), loud), np.full(1, unit)
        every = bag.solved(row[0], bag.total, bag.weight, bag.scores, row[1][:, None])
        monkeypatch.setattr(bag, "thresholds", lambda Z, every=every: every)
        found = [Window(bag).ranked(None, *row, rank)[0] for rank in range(1, n + 1)]
        np.testing.assert_array_equal(found, np.sort(every[0]))
