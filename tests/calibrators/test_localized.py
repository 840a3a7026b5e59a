"""LCP, RLCP and LVD: limits, random centres, what is promised, bad input, estimator grammar."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from calliper import CalliperError, Split
from calliper.calibrators import LCP, LVD, RLCP
from calliper.calibrators._local_quantiles import row_normals
from calliper.exceptions import SmallCalibrationWarning

pytestmark = pytest.mark.filterwarnings("ignore::calliper.exceptions.SmallCalibrationWarning")

LEVELS = [0.1, 0.5, 0.8, 0.9]
rng = np.random.default_rng(5)
Z, SCORES, NEW = rng.normal(size=(60, 2)), rng.exponential(size=60), rng.normal(size=(9, 2))
TRAIN, LABELS = rng.normal(size=(80, 2)), rng.normal(size=80)
LOCALIZERS = ["exponential", "gaussian", "neighbors"]


def test_flat_weights_are_split():
    split = Split().fit(Z, SCORES).predict_radius(NEW, LEVELS)
    for method in (
        LCP(bandwidth=1e13),
        LCP("gaussian", bandwidth=1e8),
        LCP("neighbors", bandwidth=60),
        RLCP(1e13, random_state=0),
    ):
        np.testing.assert_array_equal(method.fit(Z, SCORES).predict_radius(NEW, LEVELS), split)
    flat = LVD(tuned=True, random_state=0).fit(Z, SCORES, training=(TRAIN[:12], None, LABELS[:12]))
    radius = flat.predict_radius(NEW, [0.9])  # 11 others cannot be 20 effective neighbours
    np.testing.assert_array_equal(radius[:, 0], split[:, 3])
    assert flat.factors_ == {0.9: 0.0}


@pytest.mark.parametrize("localizer", ["exponential", "gaussian"])
def test_zero_weight_everywhere_is_infinite(localizer):
    radius = LCP(localizer, bandwidth=1e-200).fit(Z, SCORES).predict_radius(NEW, LEVELS)
    assert np.isinf(radius).all()
    assert np.isinf(RLCP(1e-9, random_state=0).fit(Z, SCORES).predict_radius(NEW, LEVELS)).all()
    far = np.full((1, 2), 1e6)
    assert np.isinf(LCP(localizer, bandwidth=1.0).fit(Z, SCORES).predict_radius(far, 0.5)).all()


def test_lcp_is_never_empty():
    """At any level the smallest score is kept; so it is for negative scores."""
    for localizer in LOCALIZERS:
        method = LCP(localizer, bandwidth=1).fit(Z, SCORES - 10)
        assert (method.predict_radius(NEW, 0.001) >= SCORES.min() - 10).all()


def test_equal_scores_give_that_score():
    for method in (LCP(bandwidth=2.0), LCP("neighbors", bandwidth=30), RLCP(3.0)):
        radius = method.fit(Z, np.full(60, 2.5)).predict_radius(np.zeros((3, 2)), LEVELS)
        np.testing.assert_array_equal(radius, 2.5)


def test_radius_grows_with_the_level_and_levels_do_not_meddle():
    for method in (LCP(bandwidth=0.5), LCP("neighbors", bandwidth=20), RLCP(0.5, random_state=0)):
        method.fit(Z, SCORES)
        radius = method.predict_radius(NEW, LEVELS)
        assert (np.diff(np.where(np.isinf(radius), 1e9, radius), axis=1) >= 0).all()
        for column, level in enumerate(LEVELS):
            np.testing.assert_array_equal(method.predict_radius(NEW, level), radius[:, column])


def test_order_of_calibration_points_does_not_matter():
    order = np.random.default_rng(0).permutation(60)
    for method in (LCP(bandwidth=0.5), LCP("gaussian", bandwidth=0.5), RLCP(0.5, random_state=0)):
        expected = method.fit(Z, SCORES).predict_radius(NEW, LEVELS)
        again = method.fit(Z[order], SCORES[order]).predict_radius(NEW, LEVELS)
        np.testing.assert_array_equal(again, expected)


def test_rlcp_batch_is_one_by_one():
    new = np.random.default_rng(0).normal(size=(300, 2))
    method = RLCP(0.5, random_state=3).fit(Z, SCORES)
    batch = method.predict_radius(new, LEVELS)
    alone = np.concatenate([method.predict_radius(row[None], LEVELS) for row in new])
    np.testing.assert_array_equal(batch, alone)
    np.testing.assert_array_equal(method.predict_radius(new[::-1], LEVELS)[::-1], batch)
    again = RLCP(0.5, random_state=3).fit(Z, SCORES).predict_radius(new, LEVELS)
    np.testing.assert_array_equal(again, batch)
    other = RLCP(0.5, random_state=4).fit(Z, SCORES).predict_radius(new, LEVELS)
    assert (other != batch).any()


def test_rlcp_draws_are_standard_normal_and_independent():
    rows = np.arange(6000.0).reshape(2000, 3)
    draws = row_normals(rows, 7)
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(draws.T) - np.eye(3)).max() < 4 / np.sqrt(2000)
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 4 / np.sqrt(2000)
    assert abs(np.corrcoef(draws.ravel(), row_normals(rows, 8).ravel())[0, 1]) < 4 / np.sqrt(6000)
    zeros = np.array([[0.0, -0.0, 1.0]])
    np.testing.assert_array_equal(row_normals(zeros, 1), row_normals(abs(zeros), 1))


def test_lvd_counts_its_infinite_intervals():
    """Far from every calibration row nothing is known, and nothing finite is made up."""
    method = LVD(random_state=0).fit(Z, SCORES, training=(TRAIN, None, np.sin(9 * TRAIN[:, 0])))
    far = np.vstack([NEW, np.full((5, 2), 50.0)])
    radius = method.predict_radius(far, 0.9)
    assert np.isinf(radius[-5:]).all() and np.isinf(radius).sum() >= 5
    assert not np.isnan(radius).any()


def test_what_is_promised():
    lcp = LCP(bandwidth=1.0).fit(Z, SCORES)
    assert lcp.guaranteed_coverage(0.9) == 55 / 61
    assert "probability at least 0.9016" in lcp.guarantee(0.9).describe()
    rlcp = RLCP(1.0).fit(Z, SCORES)
    np.testing.assert_array_equal(rlcp.guaranteed_coverage([0.5, 0.9]), [0.5, 0.9])
    words = rlcp.guarantee(0.9).describe()
    assert words.startswith("RLCP: a new target lies in its interval with probability at least 0.9")
    assert "exchangeable" in words and "random centres" in words
    lvd = LVD(random_state=0).fit(Z, SCORES, training=(TRAIN, None, LABELS))
    assert lvd.guaranteed_coverage(0.9) == 0.0
    words = lvd.guarantee(0.9).describe()
    assert "no probability of covering" in words and "at least" not in words
    assert lvd.guaranteed_coverage(0.999) == 1.0 and "infinite" in lvd.guarantee(0.999).describe()


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        (LCP(), CalliperError, "from training errors: pass training"),
        (RLCP(), CalliperError, "from training rows: pass training=Z to fit"),
        (LVD(), CalliperError, "pass training=\\(Z, None, targets\\)"),
        (LCP(bandwidth=0), ValueError, "positive, finite number; got 0"),
        (LCP(bandwidth=np.inf), ValueError, "positive, finite number; got inf"),
        (LCP(bandwidth=-1.0), ValueError, "positive, finite number; got -1.0"),
        (LCP(bandwidth=np.nan), ValueError, "positive, finite number; got nan"),
        (LCP(bandwidth="wide"), ValueError, "'auto' or a positive, finite number; got 'wide'"),
        (LCP(bandwidth=None), ValueError, "positive, finite number; got None"),
        (LCP("neighbors", bandwidth=2.5), ValueError, "an integer of at least 1; got 2.5"),
        (LCP("neighbors", bandwidth=0), ValueError, "an integer of at least 1; got 0"),
        (LCP("nearest"), ValueError, "localizer must be .*'neighbors'"),
        (RLCP(0), ValueError, "positive, finite number; got 0"),
        (RLCP(np.inf), ValueError, "positive, finite number; got inf"),
        (RLCP(-2.0), ValueError, "positive, finite number; got -2.0"),
        (RLCP("median"), ValueError, "positive, finite number; got 'median'"),
    ],
    ids=repr,
)
def test_bad_parameters_are_refused_by_fit(method, error, message):
    with pytest.raises(error, match=message):
        method.fit(Z, SCORES)


def test_bad_training_data():
    with pytest.raises(CalliperError, match="Z of training has 1 columns, Z has 2"):
        LCP().fit(Z, SCORES, training=(TRAIN[:, :1], LABELS))
    with pytest.raises(CalliperError, match="Z of training has 1 columns, Z has 2"):
        RLCP().fit(Z, SCORES, training=TRAIN[:, :1])
    with pytest.raises(CalliperError, match="Z of training has 1 columns, Z has 2"):
        LVD().fit(Z, SCORES, training=(TRAIN[:, :1], None, LABELS))
    with pytest.raises(CalliperError, match="needs 3 training rows; got 2"):
        LCP().fit(Z, SCORES, training=(TRAIN[:2], LABELS[:2]))
    with pytest.raises(CalliperError, match="median distance between training inputs"):
        LCP().fit(Z, SCORES, training=(np.ones((9, 2)), np.ones(9))).predict_radius(NEW)
    with pytest.raises(CalliperError, match="median distance between training inputs is 0"):
        RLCP().fit(Z, SCORES, training=np.ones((9, 2)))
    with pytest.raises(CalliperError, match="no feature of Z_train"):
        LVD().fit(Z, SCORES, training=(np.ones((9, 2)), None, np.arange(9.0)))


def test_too_few_points_for_the_level():
    training = {"training": (TRAIN, None, LABELS)}
    for method, extra in ((LCP(bandwidth=1.0), {}), (LVD(random_state=0), training)):
        fitted = method.fit(Z[:18], SCORES[:18], **extra)
        with pytest.warns(SmallCalibrationWarning, match="18 calibration rows") as caught:
            radius = fitted.predict_radius(NEW, [0.95, 0.99])
        assert len(caught) == 1 and np.isinf(radius).all()
        assert fitted.guaranteed_coverage(0.95) == 1.0
    with pytest.warns(
        SmallCalibrationWarning, match="70 neighbours were requested, but there are only 60"
    ):
        LCP("neighbors", bandwidth=70).fit(Z, SCORES)


FITTED = [
    (LCP(bandwidth=0.7, random_state=0), {}),
    (LCP("neighbors", random_state=0), {"training": (TRAIN, abs(LABELS))}),
    (RLCP(random_state=0), {"training": TRAIN}),
    (LVD(tuned=True, random_state=0), {"training": (TRAIN, None, LABELS)}),
]


@pytest.mark.parametrize(("method", "extra"), FITTED, ids=repr)
def test_pickle_clone_and_fitting_again(method, extra):
    expected = method.fit(Z, SCORES, **extra).predict_radius(NEW, LEVELS)
    copied = pickle.loads(pickle.dumps(method)).predict_radius(NEW, LEVELS)
    np.testing.assert_array_equal(copied, expected)
    fresh = clone(method)
    assert not hasattr(fresh, "n_calibration_")
    fresh.fit(Z[:30], SCORES[:30], **extra).predict_radius(NEW, 0.9)
    np.testing.assert_array_equal(
        fresh.fit(Z, SCORES, **extra).predict_radius(NEW, LEVELS), expected
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "method",
    [
        LCP(bandwidth=1.0),
        LCP("neighbors", bandwidth=3, random_state=0),
        RLCP(1.0, random_state=0),
    ],
    ids=repr,
)
def test_scikit_learn_grammar(method):
    reason = "the second argument of fit is named scores"
    check_estimator(method, expected_failed_checks={"check_fit_score_takes_y": reason})


def test_nothing_warns_on_ordinary_data():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method, extra in FITTED:
            method.fit(Z, SCORES, **extra).predict_radius(NEW, [0.5, 0.9])
        LCP(bandwidth=1e-200).fit(Z, SCORES).predict_radius(NEW)
