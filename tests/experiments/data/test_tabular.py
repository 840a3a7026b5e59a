"""Tables are known by names and numbers, whatever file holds them."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calliper import CalliperError
from studies.experiments import data
from studies.experiments.data import load_tabular
from studies.experiments.data.tabular import sha256_of_table
from studies.experiments.data.tabular_sources import TABLES

SMALL = {"y": np.array([0.11, 0.27, 3.0]), "x0": np.array([-2.3, 0.0, 1e6 + 0.125])}


def text_of(name: str, X: np.ndarray, y: np.ndarray) -> str:
    """The table as its publisher writes it."""
    if name == "protein_casp_rmsd":
        rows = [",".join(map(repr, row)) for row in np.column_stack([y, X]).tolist()]
        return "\n".join(["RMSD,F1,F2,F3,F4,F5,F6,F7,F8,F9", *rows]) + "\n"
    rows = ["  ".join(map(repr, row)) for row in np.column_stack([X, y]).tolist()]
    return " " + " \n ".join(rows) + " \n\n"


def publish(name: str, content: str, publisher, monkeypatch) -> str:
    """Put the publisher of a table on this machine."""
    text = TABLES[name].published
    address = publisher.publish(text.address.rsplit("/", 1)[1], content.encode())
    moved = replace(TABLES[name], published=replace(text, address=address))
    monkeypatch.setitem(TABLES, name, moved)
    return address


@pytest.mark.parametrize("name", [name for name in TABLES if TABLES[name].published])
def test_the_publishers_text_gives_the_same_table(
    name, real_files, tmp_path, publisher, monkeypatch
):
    expected = load_tabular(name)
    monkeypatch.undo()
    address = publish(name, text_of(name, expected.X, expected.y), publisher, monkeypatch)
    monkeypatch.setenv("CALLIPER_DATA", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for _ in range(2):
        table = load_tabular(name)
        np.testing.assert_array_equal(table.X, expected.X)
        np.testing.assert_array_equal(table.y, expected.y)
        assert table.feature_names == expected.feature_names
    assert len(publisher.requests) == 1
    kept = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert kept == [address.rsplit("/", 1)[1]]


@pytest.mark.filterwarnings("ignore:loadtxt")
@pytest.mark.parametrize(
    "content", ["", "1 2\n", "1 2\n3\n", "<html>moved</html>", "0.5 " * 14 + "\n"]
)
def test_another_text_is_refused_and_leaves_nothing(content, cache, publisher, monkeypatch):
    address = publish("boston_housing", content, publisher, monkeypatch)
    with pytest.raises(CalliperError) as raised:
        load_tabular("boston_housing")
    assert address in str(raised.value) and "boston_housing.parquet" in str(raised.value)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_table_of_ones_own_passes_if_it_is_the_same(real_files, cache, monkeypatch):
    frame = pd.read_parquet(real_files / "tabular" / "concrete.parquet")
    (cache / "tabular").mkdir(parents=True)
    mine = cache / "tabular" / "concrete.parquet"
    frame.to_parquet(mine, compression="gzip")
    assert mine.read_bytes() != (real_files / "tabular" / "concrete.parquet").read_bytes()
    assert load_tabular("concrete").X.shape == (1030, 8)

    for other in (
        frame.iloc[::-1],
        frame.rename(columns={"x0": "cement"}),
        frame[["x0", "y", *frame.columns[2:]]],
        frame.assign(x3=frame["x3"] + 0.01),
        frame.iloc[:-1],
        frame.assign(x3="a"),
        frame.assign(x3=None),
    ):
        other.to_parquet(mine)
        with pytest.raises(CalliperError, match="does not match and cannot be fetched"):
            load_tabular("concrete")
    mine.write_bytes(mine.read_bytes()[:-20])
    with pytest.raises(CalliperError, match="does not match"):
        load_tabular("concrete")


def test_an_absent_table_names_its_source_and_what_to_do(cache):
    for name, table in TABLES.items():
        if table.published is None:
            with pytest.raises(CalliperError, match="is not there") as raised:
                load_tabular(name)
            for part in (table.page, table.recipe, f"tabular/{name}.parquet", table.sha256):
                assert part in str(raised.value)


@pytest.mark.parametrize("name", ["Concrete", "", None, 3, ["yacht"], "../secret"])
def test_a_wrong_name_is_answered_with_the_names(name):
    with pytest.raises(CalliperError, match=r"bike_kaggle_10886, blog_.*, yacht; got"):
        load_tabular(name)


def test_the_parquet_is_preferred_to_the_text(real_files, cache, publisher, monkeypatch):
    (cache / "tabular").mkdir(parents=True)
    shutil.copyfile(real_files / "tabular" / "yacht.parquet", cache / "tabular" / "yacht.parquet")
    publish("yacht", "1 2\n", publisher, monkeypatch)
    assert load_tabular("yacht").X.shape == (308, 6) and publisher.requests == []


def test_the_digest_sees_names_order_and_numbers_but_not_the_last_bit():
    digest = sha256_of_table(SMALL)
    y, x = SMALL["y"], SMALL["x0"]
    assert sha256_of_table({"y": np.nextafter(y, 9), "x0": x}) == digest
    assert sha256_of_table({"y": y, "x0": np.where(x == 0, -0.0, x)}) == digest
    assert sha256_of_table({"y": y.tolist() * np.array(1), "x0": x.astype(">f8")}) == digest
    assert sha256_of_table({"y": y * (1 + 1e-6), "x0": x}) != digest
    assert sha256_of_table({"y": y, "x1": x}) != digest
    assert sha256_of_table({"x0": x, "y": y}) != digest
    assert sha256_of_table({"y": y[::-1], "x0": x[::-1]}) != digest
    assert sha256_of_table({"y": y, "x0": x, "x1": x}) != digest


def test_the_docs_name_every_table_its_size_and_its_doi(real_files):
    page = (Path(data.__file__).parent / "README.md").read_text(encoding="utf-8")
    for name, table in TABLES.items():
        n, d = load_tabular(name).X.shape
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}`"))
        assert f"| {n:,} × {d} |" in row
        for doi in re.findall(r"doi:(\S+?)(?:;|$)", table.source.citation):
            assert f"https://doi.org/{doi}" in row
