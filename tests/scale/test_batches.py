"""One function of batches: the same kind comes back, it pickles small, and loads once."""

import os
import pickle
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

import calliper
from calliper import KNN, CalliperError, ConformalRegressor, FullRescaled
from calliper.scale import BatchIntervals, _batches
from cases import lazy_rows
from cases.lazy_rows import model, places, rows, targets

CAL, NEW = rows(3000), rows(100, seed=2)


def load_model():
    lazy_rows.LOADS.append(1)
    return model


def fitted(n=3000):
    method = ConformalRegressor(model, FullRescaled(KNN(5)), embed=places)
    return method.calibrate(CAL[:n], targets(CAL)[:n])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "calibrated.calliper"
    calliper.save(fitted(), path)
    return path


@pytest.fixture
def intervals(saved):
    lazy_rows.LOADS.clear()
    how = {"load_model": load_model, "bring": {"embed": places}}
    return BatchIntervals(saved, coverage=[0.8, 0.9], **how)


@pytest.fixture(scope="module")
def expected():
    return fitted().predict_interval(NEW, [0.8, 0.9]).to_frame()


def test_a_batch_of_any_kind(intervals, expected):
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    batch = NEW.assign(name=[f"row {n}" for n in range(100)])[["name", "c", "b", "a"]]
    wanted = batch.join(expected)
    pd.testing.assert_frame_equal(intervals(batch), wanted, check_exact=True)
    table = pa.Table.from_pandas(batch)
    for kind, found in (
        (pa.Table, intervals(table)),
        (pa.RecordBatch, intervals(table.to_batches()[0])),
        (pl.DataFrame, intervals(pl.from_pandas(batch))),
    ):
        assert isinstance(found, kind)
        pd.testing.assert_frame_equal(
            found.to_pandas(), wanted, check_dtype=False, check_exact=True
        )
    found = intervals({name: batch[name].to_numpy() for name in batch})
    assert isinstance(found, dict) and list(found) == list(wanted)
    np.testing.assert_array_equal(found["upper_0.9"], wanted["upper_0.9"])
    assert list(batch.columns) == ["name", "c", "b", "a"]
    assert len(lazy_rows.LOADS) == 1


def test_a_model_is_not_what_loads_it(saved):
    from sklearn.linear_model import LinearRegression

    torch = pytest.importorskip("torch")
    for wrong in (LinearRegression(), torch.nn.Linear(3, 1)):
        with pytest.raises(TypeError, match=r"load_model must be a function.* Linear.*model="):
            BatchIntervals(saved, load_model=wrong)


def test_an_empty_batch(intervals, expected):
    found = intervals(NEW[:0])
    assert len(found) == 0 and list(found.columns) == [*NEW, *expected]
    assert {dtype.kind for dtype in found.dtypes} == {"f"}


def test_it_pickles_small_and_loads_once_in_a_process(intervals, expected):
    text = pickle.dumps(intervals)
    assert len(text) < 1000
    for _ in range(3):  # as every task of an engine does
        found = pickle.loads(text)(NEW)
    np.testing.assert_array_equal(found[list(expected)], expected)
    assert len(lazy_rows.LOADS) == 1


def test_a_file_that_changed_is_loaded_again(tmp_path):
    path = tmp_path / "calibrated"
    calliper.save(fitted(), path)
    intervals = BatchIntervals(path, model=model, bring={"embed": places})
    before = intervals(NEW)
    calliper.save(fitted(1000), path)
    os.utime(path, ns=(1, 1))
    assert not before.equals(intervals(NEW))
    pd.testing.assert_frame_equal(intervals(NEW), BatchIntervals(fitted(1000))(NEW))


def test_few_are_kept(saved):
    for _ in range(_batches._MOST_LOADED + 2):
        BatchIntervals(saved, model=model, bring={"embed": places})(NEW[:2])
    assert len(_batches._LOADED) == _batches._MOST_LOADED


def test_bare_arrays_and_names():
    method = ConformalRegressor(model, FullRescaled(KNN(5)), embed=places)
    method.calibrate(CAL.to_numpy(), targets(CAL))
    expected = method.predict_interval(NEW.to_numpy())
    batch = NEW.assign(lower=0.0)
    with pytest.raises(CalliperError, match=r"already has columns \['lower'\]: pass prefix"):
        BatchIntervals(method, columns="abc")(batch)
    found = BatchIntervals(method, columns="abc", prefix="y_")(batch)
    np.testing.assert_array_equal(found["y_lower"], expected.lower)


def test_bad_input(saved, intervals):
    with pytest.raises(CalliperError, match="does not hold the model"):
        BatchIntervals(saved)
    with pytest.raises(TypeError, match="path of a saved file"):
        BatchIntervals(KNN(3))
    with pytest.raises(CalliperError, match="coverage"):
        BatchIntervals(saved, model=model, coverage=2)
    with pytest.raises(CalliperError, match=r"no columns \['b'\]; it has \['a', 'c'\]"):
        intervals(NEW[["a", "c"]])
    with pytest.raises(TypeError, match="got a list"):
        intervals([1, 2])


@pytest.fixture
def folder(tmp_path):
    """New rows in four files, as docs/large-data.md has them."""
    (tmp_path / "new").mkdir()
    numbered = NEW.assign(row=np.arange(100.0), name="one")
    for place in range(4):
        numbered[25 * place :][:25].to_parquet(tmp_path / f"new/{place}.parquet", index=False)
    return tmp_path


def check_written(path, expected):
    frame = pd.read_parquet(path)
    assert list(frame) == [*NEW, "row", "name", *expected] and set(frame["name"]) == {"one"}
    np.testing.assert_array_equal(frame.sort_values("row")[list(expected)], expected)


def test_under_polars(intervals, expected, folder):
    pl, sizes = pytest.importorskip("polars"), []

    def add(batch):
        sizes.append(len(batch))
        return intervals(batch)

    rows = pl.scan_parquet(folder / "new/*.parquet")
    with_ends = intervals(rows.head(0).collect()).schema
    rows.map_batches(add, schema=with_ends, streamable=True).sink_parquet(folder / "out.parquet")
    check_written(folder / "out.parquet", expected)
    assert sum(sizes) == 100 and max(sizes) < 100


def test_under_duckdb(intervals, expected, folder):
    duckdb, pq = pytest.importorskip("duckdb"), pytest.importorskip("pyarrow.parquet")
    with duckdb.connect() as base:
        reader = base.sql(f"from '{folder}/new/*.parquet'").to_arrow_reader(30)
        with_ends = intervals(reader.schema.empty_table()).schema
        with pq.ParquetWriter(folder / "out.parquet", with_ends) as writer:
            for batch in reader:
                writer.write_batch(intervals(batch))
    check_written(folder / "out.parquet", expected)


@pytest.mark.filterwarnings("ignore")
def test_under_spark(intervals, expected, folder, monkeypatch):
    sql, functions = (pytest.importorskip(f"pyspark.sql{name}") for name in ("", ".functions"))
    if shutil.which("java") is None:
        pytest.skip("Spark needs a JVM")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    how = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = how.getOrCreate()
    try:
        rows = spark.read.parquet(f"{folder}/new/")
        with_ends = rows.withColumns(dict.fromkeys(expected, functions.lit(0.0))).schema
        found = rows.mapInPandas(lambda batches: map(intervals, batches), with_ends)
        found.write.parquet(f"{folder}/out/")
    finally:
        spark.stop()
    check_written(folder / "out", expected)


@pytest.mark.filterwarnings("ignore")
def test_under_ray(intervals, expected):
    ray = pytest.importorskip("ray")
    data = pytest.importorskip("ray.data")
    env = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=env)
    try:
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        numbered = NEW.assign(row=np.arange(100.0))
        found = data.from_pandas(numbered).map_batches(
            intervals, batch_size=30, batch_format="pandas"
        )
        frame = found.to_pandas().sort_values("row")
    finally:
        ray.shutdown()
    np.testing.assert_array_equal(frame[list(expected)], expected)
