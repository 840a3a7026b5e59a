"""What every kernel answers, whoever wrote it."""

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import RandomForestRegressor

from calliper import KNN, RBF, ConformalRegressor, FullRescaled, JackknifeRescaled, Split
from calliper.calibrators import SLCP, JackknifeMinmaxRescaled, MADSplit
from calliper.exceptions import SmallCalibrationWarning
from calliper.kernels import (
    ForestProximity,
    GradedKNN,
    Kernel,
    Mahalanobis,
    TunedKNN,
    TunedRBF,
    as_kernel,
    named_kernels,
)
from calliper.kernels._rbf import median_distance
from calliper.kernels._weighted import WeightedKernel, Weights
from calliper.rows import Rows

rng = np.random.default_rng(0)
Z, SCORES, NEW = rng.normal(size=(40, 2)), rng.exponential(size=40), rng.normal(size=(30, 2))
TRAIN, ERRORS = rng.normal(size=(50, 2)), rng.exponential(size=50)
FOREST = RandomForestRegressor(5, min_samples_leaf=5, random_state=0).fit(TRAIN, ERRORS)
KERNELS = [
    KNN(5),
    RBF(0.7),
    RBF(0.7, smoothing=1.0),
    ForestProximity(FOREST),
    TunedKNN(n_neighbors=[3, 7]),
    TunedRBF(length_scales=[0.3, 1.0]),
    TunedRBF(length_scales=[0.3, 1.0], n_folds=4),
    Mahalanobis(KNN(5), max_iter=5),
    GradedKNN(2),
]


class Bar:
    """A progress bar: an object, not a function."""

    def __init__(self):
        self.done = []

    def __call__(self, fraction):
        self.done.append(fraction)


@pytest.mark.parametrize("kind", [TunedRBF, TunedKNN])
def test_copies_share_their_progress(kind):
    """A deep copy of a progress bar would move where nobody looks."""
    bar = Bar()
    copied = clone(JackknifeRescaled(kind(progress=bar))).kernel
    assert copied.progress is bar
    ConformalRegressor(FOREST, JackknifeRescaled(kind(progress=bar)), embed="inputs").calibrate(
        Z, SCORES, X_train=TRAIN
    )
    assert bar.done[-1] == 1.0


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_copy_has_equal_parameters_of_its_own(kernel):
    copied = clone(kernel)
    assert repr(copied) == repr(kernel) and copied is not kernel
    assert copied.get_params().keys() == kernel.get_params().keys()
    given = getattr(kernel, "length_scales", None)
    assert given is None or copied.length_scales is not given


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_resolved_kernel_is_a_kernel_and_the_one_given_is_left_alone(kernel):
    before = repr(kernel)
    state = np.random.RandomState(0)
    fixed = kernel.resolved(TRAIN, state).fixed(TRAIN, ERRORS, state)
    assert isinstance(fixed, Kernel) and not fixed.learns_on_errors
    assert repr(kernel) == before
    known, new = (Z, NEW) if fixed.moved is None else (fixed.moved(Z), fixed.moved(NEW))
    bag = fixed.bag(Rows(known, SCORES, SCORES), statistic="mean", offset=0.0)
    assert bag.order_statistics(new, [0.5, 0.9]).shape == (30, 2)
    assert bag.with_offset(1.0).calibration_scale(0.5) == pytest.approx(
        bag.calibration_scale(0.5) + 1.0
    )


@pytest.mark.parametrize("kernel", KERNELS[:-2])
def test_fast_order_statistics_and_largest_scales_equal_those_of_all_scales(kernel):
    scale = kernel.resolved(TRAIN).leave_two_out(
        Rows(Z, magnitudes=SCORES), offset=0.1, rng=np.random.RandomState(0), Z_train=TRAIN
    )
    rescaled = scale.prepare(SCORES)
    means = scale.without_each(NEW)
    assert means.shape == (30, 40)
    expected = np.sort(means * rescaled, axis=1)[:, [3, 35]]
    np.testing.assert_allclose(scale.order_statistics(NEW, [4, 36]), expected, rtol=1e-12)
    np.testing.assert_allclose(scale.largest(NEW), means.max(axis=1), rtol=1e-12)


def test_left_out_errors_matter_to_kernels_that_learn_on_errors():
    learning = [kernel.learns_on_errors for kernel in KERNELS]
    assert learning == [False] * 4 + [True] * 4 + [False]
    assert ["left_out" in FullRescaled(kernel).uses for kernel in KERNELS] == learning
    assert "left_out" not in FullRescaled(TunedKNN(), shrinkage=1.0).uses


def test_only_a_kernel_is_a_kernel():
    assert as_kernel(None, KNN(3)).n_neighbors == 3
    for wrong in ("knn", 5, FOREST, Split(), KNN):
        with pytest.raises(TypeError, match=r"kernel must be KNN\(...\), RBF\(...\), .*; got"):
            as_kernel(wrong)


class Everyone(Kernel, BaseEstimator):
    """All points speak, equally: a kernel that knows its mean and nothing else."""

    def mean(self, Z, magnitudes):
        return RBF(1e9).mean(Z, magnitudes)


def test_a_kernel_of_ones_own_does_what_it_can_and_says_what_it_cannot():
    train = {"training": (TRAIN, ERRORS)}
    radius = MADSplit(Everyone()).fit(Z, SCORES, **train).predict_radius(NEW)
    np.testing.assert_allclose(radius, Split().fit(Z, SCORES).predict_radius(NEW), rtol=1e-9)
    with pytest.raises(TypeError, match=r"Everyone\(\) does not support leave-two-out scales"):
        JackknifeRescaled(Everyone()).fit(Z, SCORES)
    with pytest.raises(TypeError, match=r"Everyone\(\) does not support leave-two-out scales"):
        JackknifeMinmaxRescaled(Everyone()).fit(Z, SCORES)
    with pytest.raises(TypeError, match=r"Everyone\(\) does not support scales over a bag"):
        FullRescaled(Everyone()).fit(Z, SCORES)
    with pytest.raises(TypeError, match=r"SLCP takes KNN, RBF .* got Everyone\(\)"):
        SLCP(Everyone()).fit(Z, SCORES, **train)


@pytest.mark.parametrize("kernel", [KNN(100), TunedKNN(n_neighbors=[3])])
def test_a_warning_points_at_the_line_of_the_user(kernel):
    regressor = ConformalRegressor(FOREST, JackknifeRescaled(kernel), embed="inputs")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        regressor.calibrate(Z[:3], SCORES[:3], X_train=TRAIN)
    found = [w for w in caught if issubclass(w.category, SmallCalibrationWarning)]
    assert found and all(w.filename == __file__ for w in found)


def test_what_else_a_kernel_of_ones_own_cannot():
    with pytest.raises(TypeError, match=r"Everyone\(\) has no wider version"):
        Everyone().widened(2.0, 10)
    with pytest.raises(TypeError, match="Everyone defines no scales to compare"):
        Everyone.scales_of_others([Everyone()], Z, SCORES, statistic="mean")
    with pytest.raises(TypeError, match="SLCP takes KNN, RBF without smoothing"):
        RBF(0.7, smoothing=1.0).local_quantile(Z, SCORES)
    assert Everyone().needs == () and not Everyone().takes_inputs


@pytest.mark.parametrize(
    ("kernel", "multiple", "most", "expected"),
    [
        (KNN(4), 2.0, 100, 8),
        (KNN(4), 50.0, 20, 20),
        (KNN(4), 0.01, 20, 1),
        (GradedKNN(4), 2.0, 100, 8),
        (GradedKNN(4), 50.0, 20, 5),
        (GradedKNN(4), 0.01, 20, 1),
    ],
)
def test_wider_kernels_have_more_neighbours_up_to_all(kernel, multiple, most, expected):
    wider = kernel.widened(multiple, most)
    assert type(wider) is type(kernel) and wider.n_neighbors == expected


def test_a_wider_radial_kernel_has_three_digits():
    wider = RBF(1.2345, smoothing=2.0).widened(3.0, 10)
    assert wider.length_scale == 3.7 and wider.smoothing == 2.0


def others(weights):
    """Means of the other points by weights, (N,), written as a loop."""
    found = []
    for i in range(len(Z)):
        w = weights(i, np.delete(np.arange(len(Z)), i))
        found.append(w @ np.delete(SCORES, i) / w.sum())
    return np.array(found)


def test_scales_of_others_are_means_of_the_others():
    """For several kernels at once what each is by its definition."""

    def nearest(k):
        def weights(i, rest):
            far = np.linalg.norm(Z[rest] - Z[i], axis=1)
            return (far <= np.sort(far)[k - 1]).astype(float)

        return weights

    def radial(length):
        return lambda i, rest: np.exp(
            -np.square(Z[rest] - Z[i]).sum(axis=1) / (2 * length**2)
        )  # fmt: skip

    found = KNN.scales_of_others([KNN(3), KNN(7)], Z, SCORES, statistic="mean")(0.9)
    np.testing.assert_allclose(found, [others(nearest(3)), others(nearest(7))])
    found = GradedKNN.scales_of_others([GradedKNN(2)], Z, SCORES, statistic="mean")(0.9)
    np.testing.assert_allclose(found[0], (others(nearest(2)) + others(nearest(8))) / 2)
    found = RBF.scales_of_others([RBF(0.5), RBF(1.5)], Z, SCORES, statistic="mean")(0.9)
    np.testing.assert_allclose(found, [others(radial(0.5)), others(radial(1.5))])


def test_median_distance_of_evenly_spaced_rows():
    line = np.arange(7.0)[:, None]
    assert median_distance(line) == 2.0 and median_distance(line[:1]) == 0.0
    assert median_distance(line, max_points=3) == 3.0  # rows 0, 3 and 6
    assert median_distance(line[[0, 2]], "sqeuclidean") == 4.0


class Box(WeightedKernel, BaseEstimator):
    """The kernel of the recipe in CONTRIBUTING: points in a box around a row count alike."""

    def __init__(self, side=1.0):
        self.side = side

    def weights(self, Z):
        return InBox(Z, self.side)


class InBox(Weights):
    def __init__(self, points, side):
        self.points, self.side = points, side

    def to(self, Z):
        near = abs(Z[:, None] - self.points) <= self.side / 2
        return near.all(axis=2).astype(float)


@pytest.mark.parametrize("method", [FullRescaled, JackknifeRescaled, JackknifeMinmaxRescaled])
def test_a_kernel_is_as_much_as_its_weights(method):
    radius = method(Box(2.0), random_state=0).fit(Z, SCORES).predict_radius(NEW)
    assert radius.shape == (30,) and (radius > 0).all()
    fitted = MADSplit(Box(2.0)).fit(Z, SCORES, training=(TRAIN, ERRORS))
    inside = (abs(NEW[0] - TRAIN) <= 1).all(axis=1)
    expected = ERRORS[inside].mean() if inside.any() else ERRORS.mean()
    assert fitted._local_scale(NEW[:1])[0] == pytest.approx(expected)


def test_kernels_have_names_on_the_command_line():
    """In the order of the names; proximities to a forest have none."""
    named = {"graded-knn": GradedKNN, "knn": KNN, "mahalanobis": Mahalanobis, "rbf": RBF}
    named |= {"tuned-knn": TunedKNN, "tuned-rbf": TunedRBF}
    assert [*named_kernels().items()] == [*named.items()]


@pytest.mark.parametrize("kind", [KNN, GradedKNN])
def test_there_is_one_neighbour_at_least(kind):
    assert kind(1).resolved().n_neighbors == 1
    with pytest.raises(ValueError, match="n_neighbors"):
        kind(0).resolved()


def test_one_candidate_is_enough_to_choose_from():
    scales = KNN.scales_of_others([KNN(39)], Z, SCORES, statistic="mean")(0.5)
    np.testing.assert_allclose(scales, [(SCORES.sum() - SCORES) / 39])
