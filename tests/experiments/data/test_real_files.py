"""Loaders on the data as published: sizes, first and last rows, what the notes say about them."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest

from studies.experiments.data import (
    DataSource,
    load_alphaseq,
    load_clearance,
    load_demand,
    load_mnist,
    load_solubility,
    load_tabular,
    tdc_split,
)

pytestmark = pytest.mark.usefixtures("real_files")

ROWS_AND_FEATURES = {
    "bike_kaggle_10886": (10_886, 18),
    "blog_feedback_6000": (6000, 243),
    "boston_housing": (506, 13),
    "california_housing_20640": (20_640, 13),
    "communities_crime": (1994, 100),
    "concrete": (1030, 8),
    "energy_heating": (768, 8),
    "protein_casp_rmsd": (45_730, 9),
    "star_2161": (2161, 39),
    "yacht": (308, 6),
}


def check_source(source: DataSource) -> None:
    assert all(dataclasses.astuple(source)) and "doi:" in source.citation


def test_solubility():
    molecules = load_solubility()
    assert len(molecules.smiles) == len(molecules.y) == len(molecules.identifiers) == 9982
    assert molecules.identifiers[0] == "N,N,N-trimethyloctadecan-1-aminium bromide"
    assert molecules.smiles[0] == "CCCCCCCCCCCCCCCCCC[N+](C)(C)C.[Br-]"
    assert len(set(molecules.identifiers)) == 9893
    assert molecules.y[0] == pytest.approx(-3.6161271205)
    assert -14 < molecules.y.min() and molecules.y.max() < 3
    check_source(molecules.source)
    assert [len(rows) for rows in tdc_split(9982)] == [6988, 998, 1996]


def test_clearance_is_censored():
    molecules = load_clearance()
    assert len(molecules.smiles) == len(molecules.y) == 1102
    assert (molecules.y.min(), molecules.y.max()) == (3, 150)
    assert np.mean(molecules.y == 3) == pytest.approx(0.26, abs=0.005)
    assert np.mean(molecules.y == 150) == pytest.approx(0.076, abs=0.0005)
    check_source(molecules.source)
    train, valid, test = tdc_split(1102)
    assert (len(train), len(valid) + len(test)) == (772, 330)


def test_alphaseq():
    sample, everything = load_alphaseq(), load_alphaseq(random_sample=False)
    assert (len(sample.y), len(everything.y)) == (38_962, 42_576)
    for antibodies in (sample, everything):
        assert np.isfinite(antibodies.y).all()
        assert len(antibodies.heavy) == len(antibodies.light) == len(antibodies.groups)
        assert set("".join(antibodies.heavy[:50])) <= set("ACDEFGHIKLMNPQRSTVWY")
        check_source(antibodies.source)
    assert set(sample.groups) == {"14H", "14L", "91H", "95L"}
    in_91h, all_91h = sample.y[sample.groups == "91H"], everything.y[everything.groups == "91H"]
    assert len(all_91h) - len(in_91h) == 42_576 - 38_962  # all rows left out are of one library
    selected = (all_91h.sum() - in_91h.sum()) / (len(all_91h) - len(in_91h))
    assert selected == pytest.approx(in_91h.mean() - 0.9, abs=0.05)


def test_mnist():
    digits = load_mnist()
    assert digits.X_train.shape == (60_000, 28, 28) and digits.X_test.shape == (10_000, 28, 28)
    assert digits.X_train.dtype == np.uint8 and digits.y_train.dtype == float
    assert digits.y_train[:5].tolist() == [5, 0, 4, 1, 9]
    assert digits.y_test[:5].tolist() == [7, 2, 1, 0, 4]
    header = bytes.fromhex("0000080300002710 0000001c0000001c")
    assert hashlib.md5(header + digits.X_test.tobytes()).hexdigest().startswith("2646ac64")
    check_source(digits.source)


@pytest.mark.parametrize("name", ROWS_AND_FEATURES)
def test_tabular(name):
    table = load_tabular(name)
    assert table.X.shape == ROWS_AND_FEATURES[name] and table.y.shape == table.X.shape[:1]
    assert len(table.feature_names) == len(set(table.feature_names)) == table.X.shape[1]
    assert "y" not in table.feature_names
    assert table.X.dtype == table.y.dtype == float
    assert np.isfinite(table.X).all() and np.isfinite(table.y).all()
    check_source(table.source)


def test_tabular_as_described():
    boston, california = load_tabular("boston_housing"), load_tabular("california_housing_20640")
    assert boston.y.max() == 50 and california.y.max() == 500_001
    bedrooms = california.X[:, california.feature_names.index("total_bedrooms")]
    assert np.median(bedrooms) == 435 and (bedrooms == 435).sum() >= 207
    crime = load_tabular("communities_crime")
    assert crime.y.min() == 0 and crime.y.max() == 1
    other = crime.X[:, crime.feature_names.index("OtherPerCap")]
    filled = np.flatnonzero(np.round(other, 2) != other)
    assert len(filled) == 1 and other[filled] == pytest.approx(np.delete(other, filled).mean())
    bike = load_tabular("bike_kaggle_10886")
    columns = {name: bike.X[:, j] for j, name in enumerate(bike.feature_names)}
    assert (columns["hour"][0], columns["day"][0], columns["year"][0]) == (0, 5, 0)  # a Saturday
    assert set(columns["year"]) == {0, 1} and bike.y[0] == 16
    assert load_tabular("star_2161").y[0] == 447 + 507 + 568 + 587 + 473 + 538 + 579 + 593


def test_demand():
    table = load_demand()
    assert table.shape == (1344, 2) and table.index.is_monotonic_increasing
    assert table.loc["2014-01-01 00:00", "demand"] == 3.794 and table.notna().all(axis=None)
    assert table["temperature"].max() == 43.1
