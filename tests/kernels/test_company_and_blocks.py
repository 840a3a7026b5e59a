"""What a row is told depends neither on its company nor on how many are worked on at a time."""

import numpy as np
import pytest

from calliper import KNN, RBF, _blocks
from calliper.kernels import _knn, _nearest, _search
from calliper.kernels._nearest import Nearest, Shells
from calliper.kernels._search import NeighborSearch
from calliper.quantile import Shares
from calliper.rows import Rows
from calliper.scale import Cells, _cells

LEVELS = [0.1, 0.35, 0.5, 0.8, 0.9]


def crowded(seed=0, n=90):
    """On a line, places with a point or two, and two with more copies than are looked at first."""
    draw = np.random.default_rng(seed)
    Z = draw.integers(25, size=(n, 1)) * 1.0
    Z[: n // 3], Z[n // 3 : n * 2 // 3] = 29.0, 33.0
    order = draw.permutation(n)
    return Z[order], draw.integers(1, 50, size=n) * 1.0, np.arange(2.0, 36.0, 1.5)[:, None]


def shared(k):
    """The K nearest of points with crowds and of points with a few ties."""
    Z, scores, _ = crowded()
    return Nearest(NeighborSearch(Z, "euclidean"), scores, k)


def told(row, points, values, k):
    """By definition the sum over the K nearest of a row, and each of their order statistics."""
    distance = ((points - row) ** 2).sum(axis=1)
    reach = np.sort(distance)[k - 1]
    near, tied = distance < reach, distance == reach
    seats, size = k - near.sum(), tied.sum()
    order = np.argsort(values)
    weight = np.cumsum((near * size + tied * seats)[order])  # times the size: whole numbers
    ordered = [values[order][np.argmax(weight >= size * rank)] for rank in range(1, k + 1)]
    return values[near].sum() + seats / size * values[tied].sum(), ordered


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_new_rows_with_ties_are_told_by_definition_in_any_company(k):
    nearest, new = shared(k), crowded()[2]
    points, scores = nearest.search.points, nearest.magnitudes
    few = nearest.search.shell(new, k)[2]
    assert few.any() and not few.all()
    means, quantiles = nearest.means_of_tied(new), nearest.quantiles_of_tied(new, range(1, k + 1))
    for row, mean, values in zip(new, means, quantiles, strict=True):
        total, ordered = told(row, points, scores, k)
        assert mean == pytest.approx(total / k, rel=1e-14)
        np.testing.assert_array_equal(values, ordered)


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_points_with_ties_are_told_by_definition_in_any_company(k):
    """Also with a new point that is nearer than their K-th, as near, or farther."""
    nearest = shared(k)
    points, n, magnitudes = nearest.search.points, len(nearest.magnitudes), nearest.magnitudes
    sums = nearest.sums_of_others(np.arange(n))
    without = (
        KNN(k).leave_two_out(Rows(points, magnitudes=magnitudes), offset=0.0, rng=None).without_one
    )
    clamps = np.stack([nearest.clamps(np.arange(n), rank).T for rank in range(1, k + 1)], axis=2)
    for i in range(n):
        others, values = np.delete(points, i, axis=0), np.delete(magnitudes, i)
        total, ordered = told(points[i], others, values, k)
        assert sums.total[i] == pytest.approx(total, rel=1e-14)
        assert without[i] == pytest.approx(total / k, rel=1e-14)
        reach = np.sort(np.abs(others - points[i])[:, 0])[k - 1]
        for case in (0, 2) if reach else (2,):  # where the K-th is a copy nobody is nearer
            joint = np.vstack([others, points[i] + reach * (case + 2) / 4])
            for end, t in enumerate((0.0, np.inf)):
                expected = told(points[i], joint, np.append(values, t), k)[1]
                np.testing.assert_array_equal(clamps[case + end, i], expected)
        np.testing.assert_array_equal(clamps[4, i], ordered)


def test_the_kth_of_distances_in_any_order():
    draw = np.random.default_rng(0)
    distance = draw.permuted(np.tile(np.arange(600.0), (20, 1)), axis=1)
    for k in (1, 2, 17, 599, 600):
        shells = Shells.of_points(distance, k)
        np.testing.assert_array_equal(shells.reach, k - 1)
        np.testing.assert_array_equal(np.append(shells.seats, shells.size), 1)


@pytest.mark.parametrize("statistic", ["mean", "quantile"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_thresholds_are_where_rescaled_scores_are_equal(statistic, k):
    """Of points with one K-th neighbour, of which a new row is nearer, just as far, or farther."""
    draw = np.random.default_rng(k)
    Z, scores = draw.choice(70, 25, replace=False)[:, None] * 1.0, draw.integers(1, 90, 25) / 64
    new = draw.integers(70, size=(25, 1)) * 1.0
    bag = KNN(k).bag(Rows(Z, scores, scores), statistic=statistic, offset=0.0)
    assert bag.search.around(new, k, bag.reach)[1][2].sum() > 3  # just as far

    def scale(row, points, values, rank):
        total, ordered = told(row, points, values, k)
        return total / k if statistic == "mean" else ordered[rank - 1]

    for rank in range(1, k + 1) if statistic == "quantile" else [1]:
        for row, found in zip(new, bag.thresholds(new, (rank - 0.5) / k), strict=True):
            there, joint = scale(row, Z, scores, rank), np.vstack([Z, row])
            for i, t in enumerate(found):
                others, values = np.delete(joint, i, axis=0), np.delete(np.append(scores, t), i)
                here = scale(Z[i], others, values, rank)
                assert here * t == pytest.approx(scores[i] * there, rel=1e-9)


def of_bag(kernel, statistic="mean", apart=0.0):
    """All that a bag is asked, of rows with ties and without."""
    Z, scores, new = crowded()
    Z += apart * np.sqrt(np.arange(90.0))[:, None]
    if getattr(kernel, "cells", None) is not None:
        Z, new = np.tile(Z, 4), np.tile(new, 4)
    bag = kernel.bag(Rows(Z, scores, scores), statistic=statistic, offset=0.5)
    signs, shares = np.where(scores > 20, 1.0, -1.0), Shares(scores / 50, scores[: len(new)] / 25)
    yield bag.order_statistics(new, LEVELS)
    yield bag.order_statistics(new, LEVELS, shares)
    yield bag.order_statistics(new, [0.8], slope=0.3)
    if statistic == "mean":
        yield bag.order_statistics(new, [3, 20, 80], signs=signs)


def of_two_left_out():
    Z, scores, new = crowded()
    scales, shares = (
        KNN(3).leave_two_out(Rows(Z, magnitudes=scores), offset=0.5, rng=None),
        Shares(scores, scores),
    )
    scales.prepare(scores)
    yield scales.order_statistics(new, [3, 20, 80])
    yield scales.order_statistics(new, LEVELS, shares.of_rows(slice(0, len(new))))
    yield scales.largest(new)


ASKED = {
    "mean": lambda: of_bag(KNN(3)),
    "no ties": lambda: of_bag(KNN(3), apart=1e-3),
    "quantile": lambda: of_bag(KNN(3), "quantile"),
    "cells": lambda: of_bag(KNN(3, cells=Cells(5, n_probes=2, random_state=0))),
    "weights": lambda: of_bag(RBF(1.0, smoothing=1.0)),
    "places": lambda: of_bag(RBF(1.0, smoothing=1.0, step=0.5)),
    "two left out": of_two_left_out,
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_what_is_found_of_rows_a_few_at_a_time_is_what_is_found_of_all(asked, monkeypatch):
    """As where there are so many points that a block has room for one row or two."""
    expected = list(asked())
    for room in (3, 60):
        for module in (_blocks, _knn, _nearest, _search, _cells):
            for name in ("BLOCK_FLOATS", "CHUNK_ROWS", "MOST_PAIRS", "ROUND_ROWS", "SEARCHED"):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, room)
        with _blocks.one_core():
            for some, every in zip(asked(), expected, strict=True):
                np.testing.assert_array_equal(some, every)
