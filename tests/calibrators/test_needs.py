"""What a calibrator says it needs is what its fit refuses to go without."""

import inspect

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from calliper import calibrators
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    FullRescaled,
    JackknifeMinmaxRescaled,
    JackknifeRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
    Split,
)
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, RBF, Mahalanobis, TunedKNN, TunedRBF

rng = np.random.default_rng(0)
Z, SCORES, NEW = rng.normal(size=(60, 2)), rng.exponential(size=60), rng.normal(size=(3, 2))
TRAINING = {
    "Z_train": rng.normal(size=(80, 2)),
    "scores_train": rng.exponential(size=80),
    "y_train": rng.normal(size=80),
}
BOTH = ("Z_train", "scores_train")
EXPECTED = [
    (Split(), ()),
    (ConditionalCalibration(), ()),
    (MADSplit(), BOTH),
    (RCP(kernel=KNN(10)), BOTH),
    (SLCP(), BOTH),
    (LoCart(), BOTH),
    (LVD(max_iter=20, random_state=0), ("Z_train", "y_train")),
    (LCP(), BOTH),
    (LCP(bandwidth=0.5), ()),
    (RLCP(), ("Z_train",)),
    (RLCP(0.5), ()),
    (NormalizedKNN(), ("Z_train",)),
    (NormalizedKNN(difficulty="labels"), ("Z_train", "y_train")),
    (NormalizedKNN(difficulty="residuals"), BOTH),
    (NormalizedKNN(difficulty="distance+labels"), ("Z_train", "y_train")),
    *[
        (method(kernel), needs)
        for kernel, of_jackknife, of_others in [
            (None, (), ()),
            (KNN(5), (), ()),
            (RBF(0.5), (), ()),
            (RBF("median"), ("Z_train",), ("Z_train",)),
            (TunedKNN(), (), BOTH),
            (TunedRBF(), ("Z_train",), BOTH),
            (TunedRBF(length_scales=[0.3, 1.0]), (), BOTH),
            (TunedKNN("mi", n_neighbors=(5, 10), n_components=1), ("Z_train",), BOTH),
        ]
        for method, needs in [
            (JackknifeRescaled, of_jackknife),
            (JackknifeMinmaxRescaled, of_others),
            (FullRescaled, of_others),
        ]
    ],
    (FullRescaled(Mahalanobis(max_iter=5)), BOTH),
]


def taken(method, names):
    """Of these names, those that the method's fit has a parameter for."""
    return [name for name in names if name in inspect.signature(method.fit).parameters]


def test_every_calibrator_is_here():
    assert {type(method).__name__ for method, _ in EXPECTED} | {"Grouped"} == set(
        calibrators.__all__
    )


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
def test_fit_refuses_to_go_without_each_of_its_needs(method, needs):
    assert method.needs == needs
    assert taken(method, needs) == list(needs)
    for missing in needs:
        told = {name: value for name, value in TRAINING.items() if name != missing}
        told = {name: told[name] for name in taken(method, told)}
        with pytest.raises(CalliperError, match=missing):
            method.fit(Z, SCORES, **told)


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
@pytest.mark.filterwarnings("ignore:.*converge")
def test_fit_needs_nothing_else(method, needs):
    fitted = method.fit(Z, SCORES, **{name: TRAINING[name] for name in needs})
    assert fitted.predict_radius(NEW, 0.8).shape == (3,)


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
def test_flags(method, needs):
    assert method.judges_nearness == (not isinstance(method, Split))
    full = isinstance(method, FullRescaled)
    learns = full and (
        method.kernel is None or isinstance(method.kernel, Mahalanobis | TunedKNN | TunedRBF)
    )
    assert method.uses_left_out == learns


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
def test_training_rows_have_the_columns_of_the_calibration_rows(method, needs):
    told = {name: TRAINING[name] for name in taken(method, TRAINING)}
    if "Z_train" in told:
        with pytest.raises(CalliperError, match="Z_train has 5 columns, Z has 2"):
            method.fit(Z, SCORES, **told | {"Z_train": np.zeros((80, 5))})


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
def test_a_fit_that_fails_leaves_nothing_behind(method, needs):
    told = {name: TRAINING[name] for name in needs}
    method.fit(Z, SCORES, **told)
    with pytest.raises(CalliperError):
        method.fit(Z, np.full(60, np.nan), **told)
    with pytest.raises(NotFittedError):
        method.predict_radius(NEW)
