"""Radial weights at their limits: exceptions, faint sums, other metrics, other roots."""

from itertools import product

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone

from calliper import RBF, FullRescaled, JackknifeRescaled
from calliper.kernels import _arithmetic, _rbf
from calliper.rows import Rows
from calliper.scale._device import device_rows


def ranked(bag, new):
    """All thresholds of a row in order, sorted and selected."""
    n = len(bag.scores)
    levels = [rank / (n + 1) for rank in range(1, n + 1)]
    return np.sort(bag.thresholds(new), axis=1), bag.order_statistics(new, levels)


def test_quiet_points_fall_behind_when_a_new_point_is_louder():
    """Few loud points that the new one raises by a 32nd, and many quiet ones that it lowers.

    Neither is an exception by weight; the quiet ones are by balance, or the order is wrong.
    """
    far, quiet = np.sqrt(-2 * np.log(0.0938)), 3.435e-4
    for high in np.linspace(1.146, 1.154, 9):
        low = 1 - 0.3 * (high - 1) / 0.7
        scores = np.repeat([1.0, low * quiet, high * quiet], [4, 70, 30])
        Z = np.repeat([-far, far], [4, 100])[:, None]
        bag = RBF(1.0).bag(Rows(Z, scores, scores), statistic="mean", offset=0.0)
        expected, found = ranked(bag, np.zeros((1, 1)))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_few_loud_points_rise_when_a_new_point_joins_them():
    """By more than a window has room for: they are exceptions by weight, though not by balance."""
    far = np.sqrt(-2 * np.log(0.2))
    scores = np.append([1.0, 1.0], 0.01 * np.linspace(0.5, 1.5, 150))
    Z = np.repeat([-far, far], [2, 150])[:, None]
    bag = RBF(1.0).bag(Rows(Z, scores, scores), statistic="mean", offset=0.0)
    expected, found = ranked(bag, np.zeros((1, 1)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_giant_far_away_is_left_out_of_the_sum_when_ranks_are_selected():
    Z, scores = np.array([[0.0], [0.1], [0.3], [5.0]]), np.array([1.0, 2.0, 3.0, 1e22])
    two = RBF(1.0).leave_two_out(Rows(Z, magnitudes=scores), offset=0.0, rng=None)
    two.prepare(scores)
    expected = np.sort(two.without_each(Z[:1])[0] * two.rescaled)
    np.testing.assert_allclose(two.order_statistics(Z[:1], [1, 2, 3, 4])[0], expected, rtol=1e-9)
    weight = np.exp(-np.square(Z[:3, 0]) / 2)
    without = weight @ scores[:3] / weight.sum()
    np.testing.assert_allclose(two.without_each(Z[:1])[0, 3], without, rtol=1e-9)


@pytest.mark.parametrize("d", [3, 10])
def test_other_metrics_are_meant_whatever_the_number_of_features(d):
    draw = np.random.default_rng(0)
    Z, new, scores = draw.normal(size=(30, d)), draw.normal(size=(7, d)), draw.exponential(size=30)
    weight = np.exp(-(cdist(new, Z, "cityblock") ** 2) / (2 * 4.0**2))
    found = RBF(4.0, metric="cityblock").mean(Z, scores).predict(new)
    np.testing.assert_allclose(found, weight @ scores / weight.sum(axis=1), rtol=1e-12)


def test_what_is_just_faint_is_summed_anew(monkeypatch):
    """Were a sum exactly as small as what counts as faint, its mean would be the same."""
    Z, scores = np.array([[0.0], [1.0], [1.0], [30.0]]), np.array([5.0, 2.0, 4.0, 7.0])
    without = _rbf.RadialMeans(_rbf.Radial(Z, 1.0, "euclidean"), scores).to
    expected = without(Z[:1])
    monkeypatch.setattr(_rbf, "FAINT", 2 * float(np.exp([-0.5])[0]))
    np.testing.assert_allclose(without(Z[:1]), expected, rtol=1e-12)
    np.testing.assert_allclose(expected[0, 0], 3.0, rtol=1e-12)


def test_without_the_only_one_near_those_that_are_next_speak():
    """Two of them alike, however far they are."""
    Z, scores = np.array([[0.0], [90.0], [90.0], [200.0]]), np.array([5.0, 2.0, 4.0, 7.0])
    two = RBF(1.0).leave_two_out(Rows(Z, magnitudes=scores), offset=0.0, rng=None)
    np.testing.assert_allclose(two.without_each(Z[:1])[0], [3.0, 5.0, 5.0, 5.0], rtol=1e-12)
    without_two = two.means.among()
    np.testing.assert_allclose(without_two[0], [3.0, 4.0, 2.0, 3.0], rtol=1e-12)
    two.prepare(scores)
    expected = np.sort(two.without_each(Z[:1])[0] * two.rescaled)
    np.testing.assert_allclose(two.order_statistics(Z[:1], [1, 2, 3, 4])[0], expected, rtol=1e-12)


def test_exponents_of_a_row_have_the_same_bits_in_any_batch():
    draw = np.random.default_rng(0)
    Z, rows = draw.normal(size=(40, 20)), draw.normal(size=(100, 20))
    for length in np.geomspace(0.05, 2.0, 15):
        exponents = _rbf.Radial(Z, length, "euclidean").exponents
        together = exponents(rows)
        for place in (0, 60):
            np.testing.assert_array_equal(exponents(rows[[place]])[0], together[place])


def test_roots_on_a_device_are_those_of_main_memory():
    torch = pytest.importorskip("torch")
    from calliper.scale import _torch

    few = (0.0, 0.25, 1.0, 3.0)
    given = np.array(list(product(few[1:], (-2.0, -0.5, *few), few))).T
    there = _torch.signed_root(*map(torch.tensor, given)).numpy()
    np.testing.assert_allclose(there, _arithmetic.signed_root(*given), rtol=1e-14)
    given = np.array(list(product(few, few, few))).T
    there = _torch.positive_root(*map(torch.tensor, given)).numpy()
    np.testing.assert_allclose(there, _arithmetic.positive_root(*given), rtol=1e-14)


def test_one_point_alone_has_no_scale_but_the_offset():
    for kernel in (RBF(1.0, smoothing=1.0), RBF(1.0, smoothing=0.5, step=0.5)):
        one = np.ones(1)
        bag = kernel.bag(Rows(np.zeros((1, 2)), one, one), statistic="mean", offset=0.25)
        assert bag.calibration_scale(0.5).tolist() == [0.25]


@pytest.mark.parametrize("how", [{}, {"smoothing": 1.0}, {"smoothing": 0.5, "step": 0.5}])
def test_rising_thresholds_on_a_device_are_those_of_main_memory(how):
    """Also of new rows in places of points, and of far ones that are nearer to all than these."""
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(0)
    Z, scores = draw.normal(size=(40, 2)), np.round(draw.exponential(size=40), 1)
    new = np.vstack([Z[:3], draw.normal(size=(5, 2)), [[9.0, 9.0]]])
    for offset, slope in product((0.0, 0.3), (0.0, 0.5, 2.0)):
        ways = (None, np.asarray), ("torch:cpu", placed(torch))
        bags = [
            RBF(0.6, **how, engine=engine).bag(
                Rows(rows(Z), scores, scores), statistic="mean", offset=offset
            )
            for engine, rows in ways
        ]
        plain, there = (
            bag.thresholds(rows(new), 0.5, slope) for bag, (_, rows) in zip(bags, ways, strict=True)
        )
        np.testing.assert_allclose(there, plain, rtol=2e-10)
        assert (there >= plain * (1 - 1e-12)).all()
        own, other = (bag.calibration_scale(0.5) for bag in bags)
        np.testing.assert_allclose(other, own, rtol=2e-10)


def test_on_a_device_points_of_no_scale_come_last():
    torch = pytest.importorskip("torch")
    Z, scores = (
        np.array([[0.0], [0.1], [50.0], [50.1], [50.2]]),
        np.array([0.0, 0.0, 1.0, 2.0, 4.0]),
    )
    plain = RBF(1.0).leave_two_out(Rows(Z, magnitudes=scores), offset=0.0, rng=None)
    there = RBF(1.0, engine="torch:cpu").leave_two_out(
        Rows(placed(torch)(Z), magnitudes=scores), offset=0.0, rng=None
    )
    ranks, new = [1, 2, 3, 4, 5], np.array([[50.0], [0.0], [20.0]])
    for scale in (plain, there):
        assert np.isinf(scale.prepare(scores)).tolist() == [True, True, False, False, False]
    expected = plain.order_statistics(new, ranks)
    assert np.isinf(expected[:, 3:]).all()
    np.testing.assert_allclose(
        there.order_statistics(placed(torch)(new), ranks), expected, rtol=1e-9
    )


def placed(torch):
    """A function that puts rows on the device."""
    return lambda rows: device_rows(torch.tensor(rows), "Z")


@pytest.mark.parametrize("d", [2, 10])
def test_exponents_are_exact_far_from_the_origin(d):
    """Of rows so near to points, in a short length, that products would lose all digits."""
    torch = pytest.importorskip("torch")
    from calliper.scale._torch import TorchRadial

    draw, length = np.random.default_rng(0), 2.0**-10
    Z = 3000 + draw.normal(size=(20, d))
    rows = Z + length * draw.normal(size=Z.shape)
    exact = -np.square((rows - Z) / length).sum(axis=1) / 2
    exponent = _rbf.Radial(Z, length, "euclidean").exponents(rows)
    np.testing.assert_allclose(np.diagonal(exponent), exact, rtol=1e-12)
    there = TorchRadial(placed(torch)(Z), length, 0.0, 0.0)
    found = there.exponents(torch.tensor(rows.T.copy())).numpy()
    np.testing.assert_allclose(np.diagonal(found), exact, rtol=1e-12)


@pytest.mark.parametrize("engine", [None, "torch:cpu"])
@pytest.mark.parametrize("method", [FullRescaled, JackknifeRescaled])
@pytest.mark.parametrize(
    ("kernel", "far", "size"),
    [
        (RBF(1.0, smoothing=1e30), 1.0, 1.0),
        (RBF(1.0, smoothing=1e30), 1.0, 1e300),
        (RBF(1.0, smoothing=1e30, step=0.5), 1.0, 1.0),
        (RBF(1e-100), 1e75, 1.0),
        (RBF(1e-100, smoothing=1.0), 1e75, 1.0),
        (RBF(1.1e-150, smoothing=1.0, step=1e-150), 1e75, 1.0),
    ],
)
def test_at_the_limits_all_points_count_equally(kernel, far, size, method, engine):
    if engine:
        pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    Z, scores, new = rng.normal(size=(60, 2)), rng.exponential(size=60), rng.normal(size=(5, 2))
    kernel = clone(kernel).set_params(engine=engine)
    found = method(kernel).fit(Z * far, scores * size).predict_radius(new * far, [0.5, 0.9]) / size
    plain = method(RBF(1e100)).fit(Z, scores).predict_radius(new, [0.5, 0.9])
    np.testing.assert_allclose(found, plain, rtol=1e-9)
