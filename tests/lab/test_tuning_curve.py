"""The tuning curve: what JackknifeRescaled saw, in numbers, in words and as a figure."""

from __future__ import annotations

import numpy as np
import pytest

from calliper import KNN, CalliperError, JackknifeRescaled
from calliper.exceptions import ZeroScaleWarning
from calliper.kernels import TunedKNN, TunedRBF
from calliper.lab.report import draw_tuning
from calliper.lab.tuning import TuningCurve, tuning_curve

N = 80


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    Z, Z_train = rng.uniform(size=(2, N, 1))
    return Z, abs(rng.normal(size=N)) * (0.1 + Z[:, 0]), Z_train


def curve_of(chosen, *, criterion="mse", mean=(3.0, 1.0, 2.0), reference=2.0):
    candidates = np.array([0.1, 1.0, 10.0])[: len(mean)]
    name = None if reference is None else "10 nearest neighbours"
    means, deviation = np.array(mean), np.full(len(mean), 0.1)
    return TuningCurve(criterion, candidates, means, deviation, np.array(chosen), name, reference)


@pytest.mark.parametrize("criterion", ["mse", "deviance", "mi"])
def test_it_is_what_the_method_saw(data, criterion):
    Z, scores, Z_train = data
    kernel = TunedRBF(criterion, n_scan=6)
    curve = tuning_curve(Z, scores, kernel=kernel, Z_train=Z_train, random_state=3)
    scale = JackknifeRescaled(kernel, random_state=3).fit(Z, scores, training=Z_train).scale_
    np.testing.assert_array_equal(curve.candidates, scale.candidates)
    np.testing.assert_array_equal(curve.chosen, scale.chosen)
    np.testing.assert_array_equal(curve.mean, scale.criteria.mean(axis=1))
    np.testing.assert_array_equal(curve.deviation, scale.criteria.std(axis=1))
    nearest = JackknifeRescaled(TunedKNN(criterion, n_neighbors=[10]), random_state=3)
    assert curve.reference_value == nearest.fit(Z, scores).scale_.criteria.mean()
    assert curve.reference_name == "10 nearest neighbours"
    assert curve.counts.sum() == N and len(curve.counts) == 6


def test_the_reference_value_by_hand(data):
    """Mean over m of the mean over i ≠ m of (s_i − mean of the 3 nearest without i and m)²."""
    Z, scores, _ = data
    Z, scores = Z[:12, 0], scores[:12]
    kernel = TunedRBF(length_scales=[1.0])
    curve = tuning_curve(Z[:, None], scores, kernel=kernel, reference=KNN(3))
    values = []
    for m in range(12):
        for i in set(range(12)) - {m}:
            others = [j for j in range(12) if j not in (i, m)]
            near = sorted(others, key=lambda j: abs(Z[j] - Z[i]))[:3]
            values.append((scores[i] - scores[near].mean()) ** 2)
    assert curve.reference_value == pytest.approx(np.mean(values), rel=1e-12)
    assert curve.reference_name == "3 nearest neighbours"


def test_the_default_kernel_and_folds(data):
    Z, scores, Z_train = data
    assert tuning_curve(Z, scores, Z_train=Z_train).candidates.shape == (30,)
    folds = TunedRBF(n_scan=4, n_folds=5)
    curve = tuning_curve(Z, scores, kernel=folds, Z_train=Z_train, random_state=0)
    assert curve.mean.shape == curve.counts.shape == (4,) and curve.chosen.shape == (N,)


def test_one_candidate_many_times_is_one_candidate(data):
    Z, scores, _ = data
    curve = tuning_curve(Z, scores, Z_train=[[0.0], [1.0]], random_state=0)
    assert curve.candidates.tolist() == [1.0] and curve.counts.tolist() == [N]
    assert "It was the only candidate." in curve.describe()


@pytest.mark.parametrize(("n", "known"), [(12, True), (11, False)])
def test_too_few_points_for_the_reference(data, n, known):
    Z, scores, Z_train = data
    curve = tuning_curve(Z[:n], scores[:n], Z_train=Z_train, random_state=0)
    assert (curve.reference_value is not None) == known
    assert ("nearest" in curve.describe()) == known


@pytest.mark.parametrize(("criterion", "n"), [("mse", 3), ("mi", 6), ("mse", 1)])
def test_too_few_points_to_tune_say_what_is_used_instead(data, criterion, n):
    Z, scores, _ = data
    kernel = TunedRBF(criterion, length_scales=[0.5, 2.0])
    with pytest.raises(CalliperError, match="too few to tune") as error:
        tuning_curve(Z[:n], scores[:n], kernel=kernel)
    assert n == 1 or "uses the smoothest for all" in str(error.value)


def test_numbers_of_neighbours_have_a_curve_too(data):
    Z, scores, _ = data
    curve = tuning_curve(Z, scores, kernel=TunedKNN(n_neighbors=[5, 10]), random_state=0)
    assert curve.mean[1] == curve.reference_value
    assert curve.describe().startswith("Number of neighbours ")


def test_what_cannot_be_tuned(data):
    Z, scores, Z_train = data
    with pytest.raises(TypeError, match="kernel must be TunedRBF"):
        tuning_curve(Z, scores, kernel=KNN())
    with pytest.raises(TypeError, match="reference must be KNN"):
        tuning_curve(Z, scores, Z_train=Z_train, reference=10)
    with pytest.raises(CalliperError, match="already has its length scales"):
        tuning_curve(Z, scores, kernel=TunedRBF(chosen=np.ones(N)))
    with pytest.raises(CalliperError, match="pass training"):
        tuning_curve(Z, scores)


def test_no_reference(data):
    Z, scores, Z_train = data
    curve = tuning_curve(Z, scores, Z_train=Z_train, reference=None, random_state=0)
    assert curve.reference_name is curve.reference_value is None
    assert "nearest" not in curve.describe()
    draw_tuning(curve).canvas.draw()


@pytest.mark.parametrize("criterion", ["mse", "deviance", "mi"])
def test_errors_that_are_all_zero(data, criterion):
    Z, scores, Z_train = data
    kernel = TunedRBF(criterion, n_scan=4)
    with pytest.warns(ZeroScaleWarning):
        curve = tuning_curve(Z, 0 * scores, kernel=kernel, Z_train=Z_train, random_state=0)
    assert "nan" not in curve.describe()
    draw_tuning(curve).canvas.draw()


def test_the_words():
    text = curve_of([1.0, 1.0, 10.0]).describe()
    assert "Length scale 1 was chosen for 2 of 3 points; 2 different ones were" in text
    assert "is 1 on average; that of 10 nearest neighbours is 2." in text
    assert "chosen for all 2 points" in curve_of([1.0, 1.0]).describe()
    assert "largest candidate" in curve_of([10.0, 10.0]).describe()
    assert "smallest candidate" in curve_of([0.1, 0.1]).describe()
    mi = curve_of([1.0], criterion="mi", mean=(0.2, -0.1, 0.3), reference=0.15).describe()
    assert "is -0.1 on average" in mi and "not null-corrected" in mi


def test_of_equal_favourites_the_smoothest():
    assert curve_of([0.1, 10.0]).favourite == 2


def test_the_figure(data):
    Z, scores, Z_train = data
    curve = tuning_curve(Z, scores, Z_train=Z_train, random_state=0)
    above, below = draw_tuning(curve).axes
    assert above.get_xscale() == below.get_xscale() == "log"
    line, reference = above.get_lines()[:2]
    np.testing.assert_array_equal(line.get_ydata(), curve.mean)
    assert set(reference.get_ydata()) == {curve.reference_value}
    reference, favourite = (text.get_text() for text in above.get_legend().get_texts())
    assert reference == "10 nearest neighbours"
    assert f"chosen by {curve.counts.max()} of {N}" in favourite
    assert [bar.get_height() for bar in below.patches] == curve.counts.tolist()
