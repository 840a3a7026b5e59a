"""Which columns make intervals wide: against loops over rows, and on a width that is known."""

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor

from calliper import CalliperError, ConformalRegressor, FullRescaled, Intervals
from calliper.lab.report import WidthImportanceDisplay

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.uniform(size=(40, 3)), columns=["a", "b", "$c$"])
X["b"] = pd.Categorical(np.where(X["b"] > 0.5, "wide", "slim"))


class Known:
    """Widths 1 + 2a, and 3 more where b is wide; the other columns change nothing."""

    def predict_interval(self, X, *, coverage):
        assert isinstance(X["b"].dtype, pd.CategoricalDtype)
        width = 1 + 2 * X["a"].to_numpy() + 3 * (X["b"] == "wide").to_numpy()
        return Intervals(-width / 2, width / 2, coverage)


def test_a_known_width_is_explained():
    found = WidthImportanceDisplay.from_model(Known(), X, row=7, n_repeats=400, random_state=0)
    a, wide = X["a"].to_numpy(), (X["b"] == "wide").to_numpy()
    expected = [
        np.abs(np.subtract.outer(2 * a, 2 * a)).mean(),
        3 * np.not_equal.outer(wide, wide).mean(),
        0.0,
    ]
    np.testing.assert_allclose(found.importance, expected, rtol=0.02)
    moves = [2 * (a[7] - a.mean()), 3 * (wide[7] - wide.mean()), 0.0]
    np.testing.assert_allclose(found.moves, moves, atol=1e-12)
    assert found.width == pytest.approx(1 + 2 * a[7] + 3 * wide[7])
    table = found.to_frame()
    assert [*table.columns] == ["importance", "deviation", "move"]
    assert [*table.index] == [found.columns[j] for j in np.argsort(-np.abs(moves))]
    assert [text.get_text() for text in found.plot().ax_.get_yticklabels()] == [
        name.replace("$", r"\$") for name in table.index[::-1]
    ]


def test_a_frame_of_polars_keeps_its_names_and_categories():
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    how = {"row": 7, "random_state": 0}
    found = WidthImportanceDisplay.from_model(Known(), polars.from_pandas(X), **how)
    expected = WidthImportanceDisplay.from_model(Known(), X, **how)
    assert found.columns == expected.columns
    np.testing.assert_allclose(found.moves, expected.moves)


@pytest.mark.parametrize("row", [True, 1.5, "a", [1]])
def test_a_row_is_a_number(row):
    with pytest.raises(TypeError, match="row must be a whole number; got"):
        WidthImportanceDisplay.from_model(Known(), X, row=row)


@pytest.mark.filterwarnings("ignore::calliper.exceptions.EmbeddingWarning")
def test_a_calibrated_model_and_a_calibrator():
    Z = rng.uniform(size=(600, 2))
    y = Z[:, 0] * rng.normal(size=600)
    model = ConformalRegressor(DummyRegressor(strategy="constant", constant=0.0), random_state=0)
    model.fit(Z, y)
    found = WidthImportanceDisplay.from_model(model, Z, max_rows=60, random_state=0)
    assert found.importance[0] > 2 * found.importance[1]
    assert found.moves is None and found.plot().ax_.patches
    method = FullRescaled().fit(Z, np.abs(y))
    radii = WidthImportanceDisplay.from_model(method, Z[:50], row=0, random_state=0)
    assert radii.width == pytest.approx(2 * method.predict_radius(Z[:1], 0.9)[0])
    assert radii.columns == ("column 1", "column 2")


@pytest.mark.filterwarnings("ignore::calliper.exceptions.SmallCalibrationWarning")
def test_what_cannot_be_explained_is_refused():
    model = FullRescaled().fit(rng.uniform(size=(20, 2)), np.ones(20))
    with pytest.raises(CalliperError, match=r"of 5 intervals are infinite at coverage 0.99"):
        WidthImportanceDisplay.from_model(model, rng.uniform(size=(5, 2)), 0.99)
    with pytest.raises(CalliperError, match=r"row must be a number from 0 to 4; got 5"):
        WidthImportanceDisplay.from_model(model, rng.uniform(size=(5, 2)), row=5)
    with pytest.raises(CalliperError, match=r"must have predict_interval or predict_radius"):
        WidthImportanceDisplay.from_model(DummyRegressor(), rng.uniform(size=(5, 2)))
    with pytest.raises(CalliperError, match=r"at least two rows; got shape \(1, 2\)"):
        WidthImportanceDisplay.from_model(model, rng.uniform(size=(1, 2)))
