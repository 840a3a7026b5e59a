"""What a calibrator says it needs is what its fit refuses to go without."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from calliper import calibrators
from calliper.calibration import with_random_state
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
from calliper.rows import Rows

rng = np.random.default_rng(0)
Z, SCORES, NEW = rng.normal(size=(60, 2)), rng.exponential(size=60), rng.normal(size=(3, 2))
TRAINING = Rows(rng.normal(size=(80, 2)), rng.exponential(size=80), targets=rng.normal(size=80))
BOTH = ("training", "errors")
EXPECTED = [
    (Split(), ()),
    (ConditionalCalibration(), ()),
    (MADSplit(), BOTH),
    (RCP(kernel=KNN(10)), BOTH),
    (SLCP(), BOTH),
    (LoCart(), BOTH),
    (LVD(max_iter=20, random_state=0), ("training", "targets")),
    (LCP(), BOTH),
    (LCP(bandwidth=0.5), ()),
    (RLCP(), ("training",)),
    (RLCP(0.5), ()),
    (NormalizedKNN(), ("training",)),
    (NormalizedKNN(difficulty="labels"), ("training", "targets")),
    (NormalizedKNN(difficulty="residuals"), BOTH),
    (NormalizedKNN(difficulty="distance+labels"), ("training", "targets")),
    *[
        (method(kernel), needs)
        for kernel, of_jackknife, of_others in [
            (None, (), ()),
            (KNN(5), (), ()),
            (RBF(0.5), (), ()),
            (RBF("median"), ("training",), ("training",)),
            (TunedKNN(), (), BOTH),
            (TunedRBF(), ("training",), BOTH),
            (TunedRBF(length_scales=[0.3, 1.0]), (), BOTH),
            (TunedKNN("mi", n_neighbors=(5, 10), n_components=1), ("training",), BOTH),
        ]
        for method, needs in [
            (JackknifeRescaled, of_jackknife),
            (JackknifeMinmaxRescaled, of_others),
            (FullRescaled, of_others),
        ]
    ],
    (FullRescaled(Mahalanobis(max_iter=5)), BOTH),
]


def told(needs):
    """Training rows of which only so much is known; None where nothing is needed."""
    return (
        Rows(
            TRAINING.Z,
            TRAINING.scores if "errors" in needs else None,
            targets=TRAINING.targets if "targets" in needs else None,
        )
        if needs
        else None
    )


def test_every_calibrator_is_here():
    assert {type(method).__name__ for method, _ in EXPECTED} | {"Grouped"} == set(
        calibrators.__all__
    )


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
def test_fit_refuses_to_go_without_each_of_its_needs(method, needs):
    assert method.uses.needs == needs
    for missing in needs:
        known = None if missing == "training" else told([n for n in needs if n != missing])
        with pytest.raises(CalliperError, match="training"):
            method.fit(Z, SCORES, training=known)


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
@pytest.mark.filterwarnings("ignore:.*converge")
def test_fit_needs_nothing_else(method, needs):
    fitted = method.fit(Z, SCORES, training=told(needs))
    assert fitted.predict_radius(NEW, 0.8).shape == (3,)


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
def test_fit_refuses_what_changes_nothing_and_fit_to_ignores_it(method, needs):
    known = {} if "training" in needs else {"training": TRAINING}
    if not isinstance(method, FullRescaled) or method.kernel is not None:
        known["length_scale"] = 3.0
    for name, given in known.items():
        with pytest.raises(TypeError, match=f"(?s)does not support {name}: .* not use it"):
            method.fit(Z, SCORES, **{name: given})
    if not needs:
        plain, told = (with_random_state(method, 0) for _ in range(2))
        plain.fit(Z, SCORES), told.fit_to(Rows(Z, SCORES), **known)
        np.testing.assert_array_equal(*(each.predict_radius(NEW, 0.8) for each in (plain, told)))


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
def test_flags(method, needs):
    assert method.judges_nearness == (not isinstance(method, Split))
    full = isinstance(method, FullRescaled)
    learns = full and (
        method.kernel is None or isinstance(method.kernel, Mahalanobis | TunedKNN | TunedRBF)
    )
    assert ("left_out" in method.uses) == learns


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
def test_training_rows_have_the_columns_of_the_calibration_rows(method, needs):
    if "training" in method.uses:
        with pytest.raises(CalliperError, match="Z of training has 5 columns, Z has 2"):
            method.fit(Z, SCORES, training=replace(TRAINING, Z=np.zeros((80, 5))))


@pytest.mark.parametrize(("method", "needs"), EXPECTED, ids=repr)
def test_a_fit_that_fails_leaves_nothing_behind(method, needs):
    method.fit(Z, SCORES, training=told(needs))
    with pytest.raises(CalliperError):
        method.fit(Z, np.full(60, np.nan), training=told(needs))
    with pytest.raises(NotFittedError):
        method.predict_radius(NEW)


@pytest.mark.parametrize("method", [MADSplit(KNN(5)), RCP(kernel=KNN(10)), LoCart()], ids=repr)
def test_training_rows_without_errors_are_refused_whatever_the_kernel(method):
    with pytest.raises(CalliperError, match=r"learns .* pass training="):
        method.fit(Z, SCORES, training=TRAINING.Z)
