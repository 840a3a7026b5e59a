"""Coverage cell by cell: exact binomial bounds, together, on cells fixed in advance."""

import numpy as np
import pytest

from calliper import CalliperError, Split
from calliper.lab.bounds import Cell, cell_coverage, partition
from oracles import tuning as oracles


@pytest.mark.parametrize("n_cells", [1, 3, 10])
def test_bounds_are_those_of_clopper_and_pearson(n_cells):
    for n, k in [(1, 0), (1, 1), (10, 7), (50, 50), (200, 181)]:
        cells = np.repeat(np.arange(n_cells), n)
        covered = np.tile(np.arange(n) < k, n_cells)
        result = cell_coverage(cells, covered, confidence=0.9)
        expected = oracles.clopper_pearson_lower(k, n, 0.1 / n_cells)
        for cell in result.cells:
            assert (cell.n, cell.coverage) == (n, k / n)
            assert cell.lower == pytest.approx(expected, abs=1e-10)


def test_all_bounds_hold_together():
    """In at least the promised share of draws, and without waste in that share."""
    rng = np.random.default_rng(0)
    truth = np.array([0.5, 0.8, 0.9, 0.95])
    n_draws, confidence = 2000, 0.8
    held = 0
    for _ in range(n_draws):
        cells = rng.choice(4, p=[0.1, 0.2, 0.3, 0.4], size=300)
        covered = rng.uniform(size=300) < truth[cells]
        result = cell_coverage(cells, covered, confidence=confidence, labels=range(4))
        held += all(cell.lower <= truth[cell.label] for cell in result.cells)
    error = np.sqrt(confidence * (1 - confidence) / n_draws)
    assert held / n_draws > confidence - 3 * error
    assert held / n_draws < 0.9  # binomial steps cost something, not more than this


def test_bounds_are_about_these_very_intervals():
    """Given each calibration set, not on average: true coverage in a cell is known here."""
    rng = np.random.default_rng(1)
    held = []
    for _ in range(300):
        scale = np.array([1.0, 3.0])
        fitted = Split().fit(np.zeros((40, 1)), rng.exponential(scale[rng.integers(2, size=40)]))
        radius = fitted.predict_radius([[0.0]], 0.9)[0]
        cells = rng.integers(2, size=200)
        result = cell_coverage(cells, rng.exponential(scale[cells]) <= radius)
        truth = 1 - np.exp(-radius / scale)
        held.append(all(cell.lower <= truth[cell.label] for cell in result.cells))
    assert np.mean(held) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 300)


def test_empty_cells():
    result = cell_coverage([0, 0, 2], [True, False, True], labels=range(4))
    assert [cell.label for cell in result.cells] == [0, 1, 2, 3]
    empty = result.cells[1]
    assert empty.n == 0 and np.isnan(empty.coverage) and empty.lower == 0
    assert result.worst.lower == 0
    alone = cell_coverage([0, 0, 2], [True, False, True])
    assert len(alone.cells) == 2 and alone.cells[0].lower > result.cells[0].lower


def test_labels_of_any_kind_and_their_words():
    result = cell_coverage(np.array(["wet", "dry", "dry"]), [1, 1, 0], labels=["dry", "wet", "ice"])
    assert [cell.label for cell in result.cells] == ["dry", "ice", "wet"]
    assert result.cells[2] == Cell("wet", 1, 1.0, pytest.approx(0.05 / 3))
    words = result.describe()
    for part in (
        "cell dry: 2 held-out points, 0.500 covered, coverage at least 0.0083",
        "cell ice: no points, coverage at least 0",
        "All 3 bounds hold together with probability at least 0.95",
        "independent draws",
        "were not used for training, calibration or the choice of cells",
        "for these intervals",
        "may vary inside a cell",
    ):
        assert part in words
    with pytest.raises(AttributeError):
        result.confidence = 0.99


@pytest.mark.parametrize(
    ("cells", "covered", "options", "message"),
    [
        ([0, 1], [True], {}, "covered must .* got 1 values for 2 rows"),
        ([0, 1], [True, 0.5], {}, r"covered must be True or False.*got 0\.5 at position 1"),
        ([0, 1], [True, np.nan], {}, "covered must be finite"),
        ([0, 1], np.ones((2, 3)), {}, r"covered must have one value.*\(2, 3\)"),
        ([], [], {}, "cells must have one label for each row, and at least one row"),
        ([[0, 1]], [True], {}, r"cells must have one label for each row.*\(1, 2\)"),
        ([0.0, np.nan], [True, True], {}, "cells must have a label.*1 of 2.*position 1"),
        (["a", None], [True, True], {}, "cells must have a label.*position 1"),
        (np.array(["a", 1], dtype=object), [True, True], {}, "cells must be labels of one kind"),
        ([0, 5], [True, True], {"labels": range(3)}, r"labels must include all cells; \[5\]"),
        ([0], [True], {"labels": []}, "labels must have one label for each row"),
        ([0], [True], {"confidence": 1.0}, "confidence must lie strictly between 0 and 1"),
        ([0], [True], {"confidence": 95}, "confidence must lie.*percentage"),
        ([0], [True], {"confidence": [0.9, 0.95]}, "confidence must be one level"),
    ],
)
def test_bad_input(cells, covered, options, message):
    with pytest.raises(CalliperError, match=message):
        cell_coverage(cells, covered, **options)


def test_partition_of_training_inputs():
    rng = np.random.default_rng(2)
    corners = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    Z_train = (corners[:, None] + rng.normal(size=(3, 30, 2))).reshape(-1, 2)
    cells = partition(Z_train, 3, random_state=0)
    assert cells.labels == range(3)
    assert sorted(cells.assign(corners)) == [0, 1, 2]
    np.testing.assert_array_equal(cells.assign(corners), cells.assign(corners + 0.3))
    again = partition(Z_train, 3, random_state=0)
    np.testing.assert_array_equal(again.centres, cells.centres)
    # The cell of a point does not depend on the points assigned along with it.
    Z = rng.uniform(-5, 15, size=(50, 2))
    one_by_one = [cells.assign(row[None])[0] for row in Z]
    np.testing.assert_array_equal(cells.assign(Z), one_by_one)


def test_ten_cells_unless_another_number_is_asked_for():
    Z_train = np.arange(40.0)[:, None]
    assert partition(Z_train, random_state=0).labels == range(10)
    np.testing.assert_allclose(partition(Z_train, 1).centres, [[19.5]])


@pytest.mark.parametrize("n_cells", [0, 4, 2.5, "3"])
def test_partition_refuses(n_cells):
    with pytest.raises(CalliperError, match="n_cells must be an integer between 1 and 3"):
        partition([[0.0], [1.0], [2.0], [2.0]], n_cells)


def test_partition_checks_columns():
    cells = partition([[0.0], [1.0]], 2, random_state=0)
    with pytest.raises(CalliperError, match=r"Z has 2 columns.*rows of 1"):
        cells.assign([[0.0, 1.0]])
    with pytest.raises(ValueError, match="NaN"):
        cells.assign([[np.nan]])
    with pytest.raises(ValueError, match="NaN"):
        partition([[np.nan], [0.0]], 1)
