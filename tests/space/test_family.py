"""A new family of models is one file and one line: all else asks its questions."""

import sys
from types import ModuleType

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

from calliper import ConformalRegressor
from calliper.models import ModelFamily, _asking

rng = np.random.default_rng(0)
X = rng.uniform(size=(400, 2))
Y = X[:, 0] + X[:, 1] * rng.normal(size=400)


class Halves(RegressorMixin, BaseEstimator):
    """The mean target of rows to the left and to the right; remembers how much each varied."""

    def fit(self, X, y, factor=1.0):
        self.right_ = np.asarray(X)[:, 1] > 0.5
        self.mean_ = factor * np.array([y[~self.right_].mean(), y[self.right_].mean()])
        self.deviation_ = np.array([y[~self.right_].std(), y[self.right_].std()])
        self.factor_ = factor
        return self

    def predict(self, X):
        return self.mean_[(np.asarray(X)[:, 1] > 0.5).astype(int)]


class HalvesFamily(ModelFamily):
    """The toy's family: all four questions."""

    @classmethod
    def is_mine(cls, core):
        return isinstance(core, Halves)

    def measure(self, rows):
        side = (np.asarray(rows)[:, 1] > 0.5).astype(int)
        return self.core.mean_[side], self.core.deviation_[side][None]

    def describe(self):
        return "deviation in each half"

    def unit(self):
        return 2.0

    @classmethod
    def retrain(cls, core, fitted, told):
        return {"factor": fitted.factor_}


class WithBags(HalvesFamily):
    def left_out(self, rows, y):
        numbers = np.arange(0, len(rows), 2)
        return numbers, *self.measure(rows[numbers])


@pytest.fixture
def added(monkeypatch):
    """One file, ``_halves.py``, and one line, as the package's docstring says."""
    module = ModuleType("calliper.models._halves")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(_asking, "FAMILIES", (*_asking.FAMILIES, "_halves:Halves"))
    _asking.families.cache_clear()
    yield lambda family: setattr(module, "Halves", family)
    _asking.families.cache_clear()


@pytest.mark.parametrize("family", [HalvesFamily, WithBags])
def test_a_family_answers_for_its_models(family, added):
    added(family)
    model = Halves().fit(X[:200], Y[:200], factor=1.5)
    regressor = ConformalRegressor(model, error_model=None, refits=4, random_state=0)
    regressor.calibrate(X[200:300], Y[200:300], X_train=X[:200], y_train=Y[:200])
    assert "deviation in each half" in regressor.embedding_.space.name
    y_pred, Z = regressor.embedding_.predict_and_transform(X[300:])
    np.testing.assert_array_equal(
        y_pred[:, 0] if y_pred.ndim > 1 else y_pred, model.predict(X[300:])
    )
    np.testing.assert_allclose(Z[:, 0], model.predict(X[300:]) / 2)
    bags = family is WithBags
    assert regressor.left_out_.source == ("out of bag" if bags else "4 folds")
    assert len(regressor.left_out_) == (100 if bags else 200)
    # Each copy was told what the first training was: all predict one and a half times too much.
    assert regressor.left_out_.y_pred.mean() == pytest.approx(1.5 * Y[:200].mean(), abs=0.05)
