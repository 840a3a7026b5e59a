"""scikit-learn's own contract tests."""

import pytest
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import check_estimator

from calliper import (
    KNN,
    RBF,
    ConformalRegressor,
    ErrorModel,
    FullRescaled,
    JackknifeRescaled,
    MultiTargetRegressor,
    Split,
)
from calliper.calibrators import ConditionalCalibration

#: The second argument of a calibrator is called what it is: scores, not y.
NAMED_SCORES = {"check_fit_score_takes_y": "the second argument of fit is named scores"}
#: Errors of few folds learnt by few trees: the grammar is the same, and every check fits.
LITTLE = {"random_state": 0, "refits": 2}
TREES = ErrorModel(shift_trees=(2,), side_trees=2)
#: Some checks pass one target as (n,), whatever the tags say.
COLUMNS = {"check_complex_data": "y of shape (n,) is refused before it is looked at"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "expected_failures"),
    [
        (ConformalRegressor(Ridge(), error_model=TREES, **LITTLE), {}),
        (ConformalRegressor(Ridge(), JackknifeRescaled(KNN(3)), random_state=0), {}),
        (MultiTargetRegressor(Ridge(), **LITTLE), COLUMNS),
        (Split(), NAMED_SCORES),
        (JackknifeRescaled(random_state=0), NAMED_SCORES),
        (JackknifeRescaled(RBF(1.0)), NAMED_SCORES),
        (FullRescaled(random_state=0), NAMED_SCORES),
        (FullRescaled(statistic="quantile", random_state=0), NAMED_SCORES),
        (FullRescaled(RBF(1.0)), NAMED_SCORES),
        (ConditionalCalibration(), NAMED_SCORES),
    ],  # MADSplit needs training errors, which these checks cannot pass
    ids=repr,
)
def test_scikit_learn_grammar(estimator, expected_failures):
    check_estimator(estimator, expected_failed_checks=expected_failures)
