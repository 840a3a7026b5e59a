"""What methods and scores say of themselves, which others go by, and their documented defaults."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from calliper import calibrators, guarantees, scores
from calliper.calibrators import (
    LCP,
    LVD,
    RCP,
    RLCP,
    SLCP,
    ConditionalCalibration,
    FullRescaled,
    Grouped,
    JackknifeMinmaxRescaled,
    JackknifeRescaled,
    LoCart,
    MADSplit,
    NormalizedKNN,
    Split,
)
from calliper.exceptions import CalliperError
from calliper.kernels import KNN, learn_metric
from calliper.lab import bounds

USUAL = {
    "judges_nearness": True,
    "takes_inputs": False,
    "takes_any_score": False,
    "by_rank": True,
    "has_law": False,
    "has_distribution": False,
    "through_kernel": False,
}
#: What differs from the usual, and whether the radius is rounded already (None: asked when fitted).
SAID = [
    (Split(), {"judges_nearness", "takes_any_score", "has_law", "has_distribution"}, True),
    (MADSplit(), {"has_law", "has_distribution"}, False),
    (RCP(), {"has_law", "has_distribution"}, False),
    (NormalizedKNN(), {"has_law", "has_distribution"}, False),
    (SLCP(), {"takes_any_score", "has_law"}, True),
    (LoCart(), {"takes_any_score", "by_rank"}, True),
    (LCP(), {"takes_any_score"}, True),
    (RLCP(), {"takes_any_score", "by_rank"}, True),
    (LVD(), {"takes_any_score"}, True),
    (ConditionalCalibration(), {"takes_inputs", "takes_any_score"}, True),
    (FullRescaled(), {"has_distribution", "through_kernel"}, None),
    (FullRescaled(KNN(3), statistic="quantile"), {"through_kernel"}, None),
    (JackknifeRescaled(), {"through_kernel"}, None),
    (JackknifeMinmaxRescaled(), set(), None),
    (Grouped(Split()), {"judges_nearness", "has_distribution"}, None),
    (Grouped(LoCart()), set(), None),
]

DEFAULTS = {
    Split: {},
    MADSplit: {"scale": None, "offset": 0.0, "random_state": None},
    RCP: {"quantile_regressor": None, "kernel": None, "offset": 0.0, "random_state": None},
    NormalizedKNN: {
        "n_neighbors": 10,
        "difficulty": "distance",
        "form": "sum",
        "gamma": 0.5,
        "rho": 0.5,
    },
    LVD: {
        "tuned": False,
        "n_directions": 10,
        "smoothing": 1.0,
        "max_iter": 500,
        "metric": None,
        "random_state": None,
    },
    FullRescaled: {
        "kernel": None,
        "shrinkage": None,
        "statistic": None,
        "offset": 0.0,
        "random_state": None,
    },
    JackknifeRescaled: {"kernel": None, "offset": 0.0, "random_state": None},
    JackknifeMinmaxRescaled: {"kernel": None, "offset": 0.0, "random_state": None},
    scores.SignedError: {"side": "both"},
    scores.QuantileError: {"variant": "plain", "offset": 1e-6},
}


@pytest.mark.parametrize(
    ("method", "other", "rounded"), SAID, ids=[repr(method) for method, *_ in SAID]
)
def test_what_methods_say_of_themselves(method, other, rounded):
    for name, usual in USUAL.items():
        assert getattr(method, name) is (usual if name not in other else not usual), name
    assert rounded is None or method._rounded is rounded


def test_every_method_is_here():
    assert {type(method).__name__ for method, *_ in SAID} == set(calibrators.__all__)


@pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
def test_defaults(kind):
    parameters = inspect.signature(kind).parameters
    assert {name: each.default for name, each in parameters.items()} == DEFAULTS[kind]


def test_a_level_that_is_not_named_is_nine_in_ten():
    """And what a metric is learnt with is the same wherever it is learnt."""
    asking = ("predict_radius", "guaranteed_coverage", "guarantee", "shift_report")
    for method, *_ in SAID:
        for name in asking:
            assert inspect.signature(getattr(method, name)).parameters["coverage"].default == 0.9
    for name in ("n_directions", "smoothing", "max_iter"):
        assert inspect.signature(learn_metric).parameters[name].default == DEFAULTS[LVD][name]
    assert inspect.signature(bounds.cell_coverage).parameters["confidence"].default == 0.95
    assert inspect.signature(bounds.partition).parameters["n_cells"].default == 10
    asked = inspect.signature(bounds.plug_in_local_coverage).parameters
    assert asked["n_neighbors"].default == 10 and asked["form"].default == "binary"


def test_tails_and_outputs_of_scores():
    for score, tails in [
        (scores.AbsoluteError(), 1),
        (scores.JointError([1.0, 2.0]), 1),
        (scores.ScaledError(), 1),
        (scores.DistributionError([0.1, 0.5, 0.9]), 1),
        (scores.SignedError(), 2),
        (scores.SignedError("lower"), 1),
        (scores.QuantileError(), 1),
        (scores.QuantileError("asymmetric"), 2),
    ]:
        assert score.n_tails == tails
    assert scores.ScaledError().n_outputs == 3 and scores.JointError([1.0, 2.0]).n_outputs == 2
    assert scores.JointError([1.0, 2.0]).has_sides


def test_a_promise_says_no_more_than_it_is_told():
    promise = guarantees.Guarantee("Some", 0.9, 99, 0.9)
    assert promise.tails == 1 and not promise.has_law and promise.note is None
    assert "no bound on the difference is known" in promise.describe()


@pytest.mark.parametrize("method", [method for method, *_ in SAID], ids=repr)
def test_nothing_is_said_before_a_fit(method):
    Z, scores = np.zeros((2, 1)), np.ones(2)
    for name, given in {
        "predict_radius": (Z,),
        "guaranteed_coverage": (),
        "guarantee": (),
        "shift_report": (scores,),
        "extend": (Z, scores),
        "predict_distribution": (Z, scores),
    }.items():
        with pytest.raises(NotFittedError):
            getattr(clone(method), name)(*given)


def test_who_else_takes_a_confidence_weights_or_signs():
    """Who is refused is told of all who are able, and of no other."""
    Z, scores = np.arange(20.0)[:, None], np.arange(20.0)
    method = JackknifeMinmaxRescaled().fit(Z, scores)
    with pytest.raises(CalliperError, match=r"one of MADSplit, NormalizedKNN, RCP, SLCP, Split\.$"):
        method.predict_radius(Z, 0.5, confidence=0.5)
    with pytest.raises(
        CalliperError, match=r"one of .*FullRescaled, .*JackknifeRescaled, .*Split\.$"
    ):
        method.predict_radius(Z, 0.5, weights=scores)
    with pytest.raises(CalliperError, match=r"Use one of FullRescaled, MADSplit, .*RCP, Split\.$"):
        method.predict_distribution(Z, scores)
