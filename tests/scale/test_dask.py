"""Dask collections in, the same kind out, lazily: the numbers of one machine, to the last bit."""

import gc
import os
import signal
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from calliper import (
    KNN,
    CalliperError,
    ConformalRegressor,
    FullRescaled,
    JackknifeRescaled,
    MultiTargetRegressor,
    Split,
    _blocks,
    evaluate,
)
from calliper.calibrators import ConditionalCalibration
from calliper.exceptions import RowOrderWarning, ShiftWarning, SmallCalibrationWarning
from calliper.lab.evaluation import Problem
from calliper.scale import _dask, connect
from calliper.shift import Recency
from cases.lazy_rows import COLUMNS, model, places, rows, slow_model, targets

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
joblib = pytest.importorskip("joblib")

CAL, NEW = rows(300), rows(1000, seed=2)
Y = targets(CAL)
LEVELS = [0.8, 0.9]


def regressor(method=None, asked=model, **how):
    return ConformalRegressor(asked, method or FullRescaled(KNN(5)), embed=places, **how)


@pytest.fixture(scope="module")
def calibrated():
    return regressor().calibrate(CAL, Y)


@pytest.fixture(scope="module")
def of_arrays():
    return regressor().calibrate(CAL.to_numpy(), Y.to_numpy())


def frame_in(sizes, frame=NEW):
    """A Dask frame whose partitions have these sizes."""
    parts = np.split(np.arange(len(frame)), np.cumsum(sizes)[:-1])
    return dd.from_map(lambda part: frame.iloc[part], parts, meta=frame.iloc[:0])


def stack(intervals):
    return np.stack(tuple(intervals), axis=-1)


CHUNKINGS = [[1000], [1, 999], [0, 500, 0, 500], [7] * 142 + [6]]


class TestNewRows:
    @pytest.mark.parametrize("sizes", CHUNKINGS, ids=len)
    @pytest.mark.parametrize("method", [FullRescaled(KNN(5)), JackknifeRescaled(), Split()])
    def test_frames_on_any_chunking(self, sizes, method):
        fitted = regressor(method).calibrate(CAL, Y)
        found = fitted.predict_interval(frame_in(sizes), LEVELS)
        assert found.npartitions == len(sizes)
        expected = fitted.predict_interval(NEW, LEVELS).to_frame()
        assert list(found.columns) == list(expected.columns)
        pd.testing.assert_frame_equal(found.compute(), expected, check_exact=True)

    @pytest.mark.parametrize("chunks", [(1000, 3), (1, 3), (333, 2), (7, 1)])
    def test_arrays_on_any_chunking(self, of_arrays, chunks):
        X = da.from_array(NEW.to_numpy()[:200], chunks=chunks)
        one, several = of_arrays.predict_interval(X), of_arrays.predict_interval(X, LEVELS)
        assert one.shape == (200, 2) and several.shape == (200, 2, 2)
        assert one.chunks[0] == several.chunks[0] == X.chunks[0]
        whole = of_arrays.predict_interval(X.compute(), LEVELS)
        np.testing.assert_array_equal(several.compute(), stack(whole))
        np.testing.assert_array_equal(one.compute(), stack(whole.at(0.9)))

    def test_index_and_divisions_are_kept(self, calibrated):
        X = dd.from_pandas(NEW.set_index(pd.Index(range(2000, 3000), name="row")), npartitions=4)
        found = calibrated.predict_interval(X)
        assert found.divisions == X.divisions and found.index.name == "row"
        assert list(found.compute().index) == list(range(2000, 3000))

    def test_unknown_chunk_sizes(self, of_arrays):
        X = da.from_array(NEW.to_numpy(), chunks=(100, 3))
        chosen = X[X[:, 0] > 0]
        found = of_arrays.predict_interval(chosen).compute()
        np.testing.assert_array_equal(found, stack(of_arrays.predict_interval(chosen.compute())))
        with pytest.raises(CalliperError, match="number of columns"):
            of_arrays.predict_interval(da.Array(X.dask, X.name, ((100,) * 10, (np.nan,)), float))

    def test_nothing_is_computed_before_it_is_asked_for(self, calibrated):
        def read(part):
            raise RuntimeError("read")

        X = dd.from_map(read, [0, 1], meta=NEW.iloc[:0])
        lazy = calibrated.predict_interval(X), calibrated.predict(X)
        for answer in (*lazy, calibrated.predict_distribution(X).quantile(0.5)):
            with pytest.raises(RuntimeError, match="read"):
                answer.compute()

    def test_predictions_and_distributions(self, calibrated, of_arrays):
        X, A = frame_in([400, 600]), da.from_array(NEW.to_numpy(), chunks=(400, 3))
        whole = calibrated.predict_distribution(NEW, bounds=(-5, 5))
        lazy = calibrated.predict_distribution(X, bounds=(-5, 5))
        pd.testing.assert_frame_equal(
            lazy.quantile([0.1, 0.5]).compute(), whole.to_frame([0.1, 0.5])
        )
        np.testing.assert_array_equal(
            lazy.quantile(0.3, side="lower").compute(), whole.quantile(0.3, side="lower")
        )
        pd.testing.assert_frame_equal(lazy.interval(0.9).compute(), whole.interval(0.9).to_frame())
        np.testing.assert_array_equal(calibrated.predict(X).compute(), calibrated.predict(NEW))
        by_array = of_arrays.predict_distribution(A)
        np.testing.assert_array_equal(
            by_array.quantile([0.1, 0.5]).compute(),
            of_arrays.predict_distribution(NEW.to_numpy()).quantile([0.1, 0.5]),
        )

    def test_a_series_of_texts(self):
        texts = pd.Series(["x" * n for n in range(1, 41)])
        fitted = ConformalRegressor(
            lambda X: np.char.str_len(list(X)) * 1.0, Split(), embed="prediction"
        )
        fitted.calibrate(texts, np.arange(40.0))
        found = fitted.predict_interval(dd.from_pandas(texts, npartitions=3), 0.5).compute()
        np.testing.assert_array_equal(found, stack(fitted.predict_interval(texts, 0.5)))

    def test_several_targets(self):
        Y2 = np.column_stack([Y, 2 * Y])
        both = MultiTargetRegressor(lambda X: np.outer(model(X), [1, 2]), Split(), units=[1, 2])
        for joint in (True, False):
            fitted = both.set_params(joint=joint, embed=places).calibrate(CAL, Y2)
            expected = fitted.predict_interval(NEW, LEVELS).to_frame()
            found = fitted.predict_interval(frame_in([400, 600]), LEVELS).compute()
            pd.testing.assert_frame_equal(found, expected, check_exact=True)
            shape = fitted.predict(frame_in([400, 600])).compute().shape
            assert shape == (1000, 2)

    def test_groups_and_weights_of_partitions(self):
        X, cal = NEW.assign(g=NEW["a"] > 0), CAL.assign(g=CAL["a"] > 0)
        lazy = frame_in([0, 300, 700], X)
        for how in (
            {"groups": "g"},
            {"groups": lambda part: np.asarray(part["a"]) > 0},
            {"weights": lambda part: np.exp(np.asarray(part["b"]))},
        ):
            fitted = regressor(Split()).calibrate(cal, Y, **how)
            found = fitted.predict_interval(lazy).compute()
            np.testing.assert_array_equal(found, stack(fitted.predict_interval(X)))
        fitted = regressor(Split()).calibrate(cal, Y, groups=cal["g"])
        found = fitted.predict_interval(lazy, groups=lazy["g"]).compute()
        np.testing.assert_array_equal(found, stack(fitted.predict_interval(X, groups=X["g"])))
        by_array = regressor(Split()).calibrate(CAL.to_numpy(), Y, groups=cal["g"])
        A, G = (
            da.from_array(NEW.to_numpy(), chunks=(300, 2)),
            da.from_array(X["g"].to_numpy(), chunks=300),
        )
        found = by_array.predict_interval(A, groups=G).compute()
        np.testing.assert_array_equal(found, stack(fitted.predict_interval(X, groups=X["g"])))
        with pytest.raises(CalliperError, match="column name, a function"):
            fitted.predict_interval(lazy, groups=X["g"].to_numpy())


def far(part):
    """Weights of a shift to rows that calibration has hardly any of."""
    return np.exp(4 * np.asarray(part["b"]))


def heard(caught):
    """Classes of the warnings of calliper that the user has seen."""
    return [each.category for each in caught if each.category.__module__ == "calliper.exceptions"]


class TestWarnings:
    """Once a call, whatever the partitions."""

    def test_of_levels(self, calibrated):
        lazy = calibrated.predict_interval(frame_in([500, 500]), 0.999)
        with pytest.warns(SmallCalibrationWarning, match=r"300 .* 0\.999") as caught:
            assert np.isinf(lazy.compute(scheduler="threads")).all(axis=None)
        assert len(caught) == 1

    def test_known_when_computed(self):
        fitted = regressor(Split()).calibrate(CAL, Y, weights=far)
        lazy = [fitted.predict_interval(frame_in([100] * 10), level) for level in (0.9, 0.95)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for each in lazy:
                each.compute(scheduler="threads")
        assert heard(caught) == [ShiftWarning, ShiftWarning]  # one for each level that was asked

    def test_of_rows_where_points_are_few(self):
        few = np.arange(300) < 5
        method = ConditionalCalibration(basis=lambda X: np.asarray(X)[:, 2:] > 0.5)
        cal = CAL.assign(c=np.where(few, 9.0, 0.0))
        fitted = ConformalRegressor(model, method).calibrate(cal, Y)
        rare, common = (NEW[:20].assign(c=c) for c in (9.0, 0.0))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fitted.predict_interval(frame_in([20], common)).compute(scheduler="threads")
            lazy = fitted.predict_interval(frame_in([20], rare))
        with pytest.warns(SmallCalibrationWarning, match="At 20 of 20 new rows"):
            lazy.compute(scheduler="threads")


class TestCalibration:
    @pytest.mark.parametrize("sizes", [[300], [0, 100, 0, 200], [9] * 33 + [3]], ids=len)
    def test_frames_on_any_chunking(self, sizes, calibrated):
        X, y = frame_in(sizes, CAL), frame_in(sizes, Y)
        fitted = regressor().calibrate(X, y)
        expected = calibrated.predict_interval(NEW, LEVELS)
        np.testing.assert_array_equal(stack(fitted.predict_interval(NEW, LEVELS)), stack(expected))
        assert list(fitted.feature_names_in_) == COLUMNS

    def test_arrays_cut_into_columns(self, of_arrays):
        X, y = (
            da.from_array(CAL.to_numpy(), chunks=(70, 2)),
            da.from_array(Y.to_numpy(), chunks=70),
        )
        with pytest.raises(CalliperError, match="X has 5 partitions and y 3: repartition"):
            regressor().calibrate(X, da.from_array(Y.to_numpy(), chunks=110))
        fitted, rest = regressor().calibrate(X, y), NEW.to_numpy()
        expected = stack(of_arrays.predict_interval(rest))
        np.testing.assert_array_equal(stack(fitted.predict_interval(rest)), expected)

    @pytest.mark.parametrize("seed", range(3))
    def test_rows_that_teach_do_not_calibrate(self, seed):
        found = []
        for size in (300, 70):
            X, y = (da.from_array(of.to_numpy(), chunks=size) for of in (CAL, Y))
            asked = ConformalRegressor(model, learning_part=0.5, random_state=seed)
            lazy = asked.calibrate(da.concatenate([X] * 4), da.concatenate([y] * 4))
            assert lazy.calibration_.n_taught == 500, "half of the first thousand"
            assert lazy.calibrators_[0].n_calibration_ == 1200 - 500
            found.append(stack(lazy.predict_interval(NEW.to_numpy())))
        np.testing.assert_array_equal(*found)

    def test_a_trend_beyond_the_rows_that_teach_is_seen(self):
        X, y = da.from_array(CAL.to_numpy()), da.from_array(Y.to_numpy())
        asked = ConformalRegressor(model, learning_part=0.5, random_state=0)
        with pytest.warns(RowOrderWarning, match="error depends"):
            lazy = asked.calibrate(da.concatenate([X, X + 1]), da.concatenate([y, y + 100]))
        assert lazy.calibration_.row_trend is not None

    def test_frames_of_other_divisions(self):
        X, y = dd.from_pandas(CAL, npartitions=4), dd.from_pandas(Y, npartitions=7)
        with pytest.raises(CalliperError, match="X has 4 partitions and y 7: repartition"):
            regressor().calibrate(X, y)

    def test_groups_weights_and_training_rows(self):
        cal, X_train, y_train = CAL.assign(g=CAL["a"] > 0), rows(100, 5), targets(rows(100, 5), 6)
        lazy, y = frame_in([100, 0, 200], cal), frame_in([100, 0, 200], Y)
        new = NEW.assign(g=NEW["a"] > 0)
        by_column = {"weights": lambda part: np.exp(np.asarray(part["b"]))}
        for how in ({"groups": "g"}, by_column, {"weights": Recency(50)}):
            whole, parts = (
                regressor(Split()).calibrate(X, t, **how) for X, t in ((cal, Y), (lazy, y))
            )
            expected = stack(whole.predict_interval(new))
            np.testing.assert_array_equal(stack(parts.predict_interval(new)), expected)
        parts = regressor(Split()).calibrate(lazy, y, groups=lazy["g"])
        whole = regressor(Split()).calibrate(cal, Y, groups=cal["g"])
        found, expected = (each.predict_interval(new, groups=new["g"]) for each in (parts, whole))
        np.testing.assert_array_equal(stack(found), stack(expected))
        how = {"X_train": X_train, "y_train": y_train}
        whole = ConformalRegressor(model, FullRescaled(KNN(5))).calibrate(CAL, Y, **how)
        parts = ConformalRegressor(model, FullRescaled(KNN(5))).calibrate(
            frame_in([100, 0, 200], CAL), y, **how
        )
        assert repr(parts.embedding_) == repr(whole.embedding_)
        expected = stack(whole.predict_interval(NEW))
        np.testing.assert_array_equal(stack(parts.predict_interval(NEW)), expected)

    def test_several_targets(self):
        Y2 = pd.DataFrame({"u": Y, "v": 2 * Y})
        both = MultiTargetRegressor(lambda X: np.outer(model(X), [1, 2]), Split(), units=[1, 2])
        both.set_params(embed=places)
        expected = both.calibrate(CAL, Y2).predict_interval(NEW).to_frame()
        lazy = frame_in([100, 200], CAL), frame_in([100, 200], Y2)
        pd.testing.assert_frame_equal(
            both.calibrate(*lazy).predict_interval(NEW).to_frame(), expected
        )
        with pytest.raises(CalliperError, match="joint=False"):
            both.set_params(joint=False).calibrate(*lazy)


class TestBadInput:
    def other(self, frame):
        """A collection one partition of which is another than the collection says."""
        parts = [NEW[:10], frame]
        return dd.from_map(lambda part: parts[part], [0, 1], meta=NEW.iloc[:0])

    def test_partitions_of_other_columns_or_types(self, calibrated):
        renamed, text = NEW[:5].rename(columns={"b": "z"}), NEW[:5].assign(b="text")
        for frame, message in ((renamed, r"\['a', 'z', 'c'\]"), (text, r"'b \(no numbers\)'")):
            with pytest.raises(CalliperError, match=message):
                calibrated.predict_interval(self.other(frame)).compute()
            y = dd.from_map(lambda n: Y[:n], [10, 5], meta=Y[:0])
            with pytest.raises(CalliperError, match=message):
                regressor().calibrate(self.other(frame), y)

    def test_collections_of_other_columns_are_refused(self, calibrated):
        with pytest.raises(ValueError, match="feature names"):
            calibrated.predict_interval(dd.from_pandas(NEW[["a", "b"]], npartitions=2)).compute()
        with pytest.raises(TypeError, match="DataFrame, Series or Array"):
            calibrated.predict_interval(dask.delayed(NEW))
        with pytest.raises(CalliperError, match="coverage"):
            calibrated.predict_interval(frame_in([1000]), 1.5)

    def test_calibration_rows(self):
        X, y = frame_in([100, 200], CAL), frame_in([100, 200], Y)
        cases = [
            (X, Y, TypeError, "y is a Series, not a Dask"),
            (X, frame_in([100, 100, 100], Y), CalliperError, "2 partitions and y 3"),
            (X, frame_in([200, 100], Y), CalliperError, "100 rows of X and 200 of y"),
            (frame_in([0, 0], CAL[:0]), frame_in([0, 0], Y[:0]), CalliperError, "are empty"),
        ]
        for rows_of, targets_of, error, message in cases:
            with pytest.raises(error, match=message):
                regressor().calibrate(rows_of, targets_of)
        with pytest.raises(CalliperError, match="column name"):
            regressor().calibrate(X, y, groups=np.zeros(300))

    def test_what_takes_no_collection_does_not_fetch_it(self, calibrated):
        X, y = frame_in([1000]), frame_in([1000], targets(NEW))
        for ask in (
            lambda: ConformalRegressor(LinearRegression()).fit(X, y),
            lambda: calibrated.extend(X, y),
            lambda: regressor().calibrate(CAL, Y, X_train=X, y_train=y),
        ):
            with pytest.raises(TypeError, match="is a Dask DataFrame"):
                ask()


@pytest.mark.long
class TestCluster:
    """With real worker processes."""

    def test_the_numbers_of_one_machine(self, client, calibrated, of_arrays):
        assert _dask.current_client() is client
        expected = calibrated.predict_interval(NEW, LEVELS).to_frame()
        for sizes in CHUNKINGS[:3]:
            found = calibrated.predict_interval(frame_in(sizes), LEVELS).compute()
            pd.testing.assert_frame_equal(found, expected, check_exact=True)
        X = da.from_array(NEW.to_numpy(), chunks=(130, 2))
        found = of_arrays.predict_interval(X, LEVELS).compute()
        np.testing.assert_array_equal(found, expected.to_numpy().reshape(1000, 2, 2))
        parts = regressor().calibrate(frame_in([100, 200], CAL), frame_in([100, 200], Y))
        np.testing.assert_array_equal(stack(parts.predict_interval(NEW, LEVELS)), found)

    def test_clients_hear_what_workers_warn_of(self, client):
        fitted = regressor(Split()).calibrate(CAL, Y, weights=far)
        by_group = regressor(Split()).calibrate(CAL, Y, groups=lambda part: part["a"] > 2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            fitted.predict_interval(frame_in([100] * 10)).compute()
            by_group.predict_interval(frame_in([100] * 10)).compute()
            deadline = time.monotonic() + 10
            while len(set(heard(caught))) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
        assert set(heard(caught)) == {ShiftWarning, SmallCalibrationWarning}
        assert len(heard(caught)) <= 4  # one for each of two workers

    def test_sent_once_and_released(self, client):
        fitted = regressor().calibrate(CAL, Y)
        future = _dask.sent_once(fitted)
        assert len(client.who_has([future])[future.key]) == 2
        fitted.predict_interval(frame_in([500, 500])).compute()
        assert _dask.sent_once(fitted) is future
        fitted.calibrate(CAL[50:], Y[50:])
        again = _dask.sent_once(fitted)
        assert again is not future
        key = again.key
        del again, future, fitted
        gc.collect()
        assert key not in client.futures

    def test_a_worker_killed_half_way(self, mortal_client):
        fitted = regressor(asked=slow_model).calibrate(CAL, Y)
        expected = stack(fitted.predict_interval(NEW))
        future = mortal_client.compute(fitted.predict_interval(frame_in([100] * 10)))
        os.kill(next(iter(mortal_client.run(os.getpid).values())), signal.SIGKILL)
        np.testing.assert_array_equal(future.result(timeout=60), expected)

    def test_evaluate(self, client):
        problem = Problem("fan", Z=CAL.to_numpy(), y=Y.to_numpy(), y_pred=model(CAL))
        how = {"n_splits": 2, "n_calibration": 100}
        methods = {"Split": Split(), "FullRescaled": FullRescaled(KNN(5))}
        with joblib.parallel_config(backend="dask"):
            found = evaluate(problem, methods, **how)
        for row, other in zip(found, evaluate(problem, methods, **how), strict=True):
            timed = {name for name in row if name.startswith("seconds")}
            assert repr({k: row[k] for k in row if k not in timed}) == repr(
                {k: other[k] for k in other if k not in timed}
            )

    def test_workers_of_another_version(self, client, monkeypatch):
        monkeypatch.setattr(_dask, "__version__", "0.0.1")
        fitted = regressor().calibrate(CAL, Y)
        with pytest.raises(
            CalliperError, match=r"2 of 2 workers .* 0\.0\.1.*tcp://.* has calliper"
        ):
            fitted.predict_interval(frame_in([1000]))

    def test_workers_without_calliper(self):
        class Client:
            def run(self, *how, **more):
                return {"tcp://one": ModuleNotFoundError("No module named 'calliper'")}

        with pytest.raises(CalliperError, match=r"tcp://one has none \(No module"):
            _dask.check_workers(Client())

    def test_connect(self, client):
        with pytest.raises(
            CalliperError, match=r"no scheduler answers at tcp://127.0.0.1:9 within"
        ):
            connect("tcp://127.0.0.1:9", timeout=0.5)
        with connect(client.scheduler.address) as other:
            assert other.id != client.id


def test_batches_keep_to_one_core():
    before = _blocks.n_cores()
    with _blocks.one_core():
        assert _blocks.n_cores() == 1
        seen = []
        other = threading.Thread(target=lambda: seen.append(_blocks.n_cores()))
        other.start()
        other.join()
    assert _blocks.n_cores() == before
    cores = []

    def counted(X):
        cores.append(_blocks.n_cores())
        return model(X)

    fitted = regressor(asked=counted).calibrate(CAL, Y)
    cores.clear()
    fitted.predict_interval(frame_in([500, 500])).compute(scheduler="threads")
    assert cores == [1] * len(cores) and seen == [before]
