"""A function from a batch of rows to the same batch with intervals, for any engine of batches.

Spark and Ray pickle a function and call it in processes of their own; Polars and DuckDB hand over
their batches in this one. What is pickled is the path of a saved file and a function that loads the
model. The first batch in a process loads both; later batches find them there.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any
from uuid import uuid4

import numpy as np

from calliper._blocks import one_core
from calliper._types import Coverage
from calliper._validation import check_levels
from calliper.exceptions import CalliperError
from calliper.files import load
from calliper.scale._dask import names_of_ends

#: What this process has loaded, by caller and state of the file, and the most that it keeps.
_LOADED: dict[tuple[Any, ...], Any] = {}
_MOST_LOADED, _lock = 8, Lock()


class BatchIntervals:
    """Adds the ends of intervals to a batch: a pandas, Polars or Arrow table, or a dict of arrays.

    Parameters
    ----------
    calibrated : path of a file that :func:`calliper.save` wrote, which all workers can read; or a
        calibrated regressor itself, which is then pickled with its arrays
    load_model : function without arguments, optional
        Gives the fitted model that was calibrated; called once in each process. A function of a
        module pickles as its name.
    model : fitted model, optional
        In place of ``load_model``, for models that are small.
    coverage : float or increasing list of floats, default 0.9
    columns : names of the inputs, optional
        By default those that calibration had; of a model of bare arrays, all columns of a batch.
    prefix : what the names of the new columns begin with
    bring : as in :func:`calliper.load`
    **how : other arguments of ``predict_interval``, the same for all batches

    Examples
    --------
    >>> import pandas as pd
    >>> from calliper import ConformalRegressor, Split
    >>> rows = pd.DataFrame({"x": np.arange(40.0)})
    >>> y = rows["x"] + np.tile([-1.0, 1.0], 20)
    >>> calibrated = ConformalRegressor(lambda X: X["x"], Split()).calibrate(rows, y)
    >>> BatchIntervals(calibrated, coverage=0.9)(rows[:2].assign(row=["a", "b"])).round(3)
         x row  lower  upper
    0  0.0   a   -1.0    1.0
    1  1.0   b   -0.0    2.0
    """

    def __init__(
        self,
        calibrated: Any,
        *,
        load_model: Callable[[], Any] | None = None,
        model: Any = None,
        coverage: Coverage = 0.9,
        columns: Iterable[str] | None = None,
        prefix: str = "",
        bring: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> None:
        check_levels(coverage)
        from_file = isinstance(calibrated, str | os.PathLike)
        if not from_file and not hasattr(calibrated, "predict_interval"):
            what = "calibrated must be the path of a saved file or a calibrated regressor"
            raise TypeError(f"{what}; got {type(calibrated).__name__}.")
        if from_file and (load_model is None) == (model is None):
            what = "a saved file does not hold the model: pass load_model="
            remedy = "a function that loads it in each worker, or model= itself, and not both"
            raise CalliperError(f"{what}, {remedy}.")
        is_model = hasattr(load_model, "parameters")  # of torch, which can be called
        if load_model is not None and (is_model or not callable(load_model)):
            what = "load_model must be a function without arguments that gives the model"
            got = f"got a {type(load_model).__name__}"
            raise TypeError(f"{what}; {got}. Pass a fitted model as model=.")
        self.calibrated = os.path.abspath(calibrated) if from_file else calibrated
        self.load_model, self.model, self.bring = load_model, model, bring
        self.coverage, self.prefix, self.how = coverage, prefix, how
        self.columns = None if columns is None else list(columns)
        self._token = uuid4().hex

    def __call__(self, batch: Any) -> Any:
        """A copy of the batch with the ends of its intervals as further columns."""
        regressor, frame = self.regressor(), _as_frame(batch)
        rows, names = self._inputs(regressor, frame), names_of_ends(regressor, self.coverage)[0]
        ends = np.empty((0, len(names)))
        if len(frame):
            with one_core():  # engines run a process per core
                found = regressor.predict_interval(rows, self.coverage, **self.how)
            ends = found.to_frame()[names].to_numpy()
        columns = {f"{self.prefix}{name}": ends[:, index] for index, name in enumerate(names)}
        taken = [name for name in columns if name in frame.columns]
        if taken:
            what = f"the batch already has columns {taken}"
            raise CalliperError(f"{what}: pass prefix= to rename the ends.")
        return _with_columns(batch, columns)

    def regressor(self) -> Any:
        """The calibrated regressor, loaded once per process and again if the file changes."""
        if not isinstance(self.calibrated, str):
            return self.calibrated
        state = os.stat(self.calibrated)
        key = self._token, state.st_mtime_ns, state.st_size
        with _lock:
            if key not in _LOADED:
                model = self.model if self.load_model is None else self.load_model()
                while len(_LOADED) >= _MOST_LOADED:
                    _LOADED.pop(next(iter(_LOADED)))
                _LOADED[key] = load(self.calibrated, model, bring=self.bring)
            return _LOADED[key]

    def _inputs(self, regressor: Any, frame: Any) -> Any:
        """The rows as calibration had them."""
        known = getattr(regressor, "feature_names_in_", None)
        wanted = self.columns
        if wanted is None:
            wanted = list(frame.columns if known is None else known)
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            what = f"the batch has no columns {missing[:20]}; it has {list(frame.columns)[:20]}"
            raise CalliperError(f"{what}, and the inputs are {wanted[:20]}.")
        return frame[wanted].to_numpy() if known is None else frame[wanted]


def _as_frame(batch: Any) -> Any:
    """Any batch as a pandas frame."""
    import pandas as pd

    if isinstance(batch, pd.DataFrame):
        return batch
    if isinstance(batch, Mapping):
        return pd.DataFrame({name: np.asarray(column) for name, column in batch.items()})
    if hasattr(batch, "to_pandas"):
        return batch.to_pandas()
    what = "a batch must be a pandas, Polars or Arrow table or a dict of arrays"
    raise TypeError(f"{what}; got a {type(batch).__name__}.")


def _with_columns(batch: Any, columns: dict[str, Any]) -> Any:
    """A batch of the same kind with these columns added."""
    if isinstance(batch, Mapping):
        return {**batch, **columns}
    if hasattr(batch, "with_columns"):
        import polars as pl

        return batch.with_columns([pl.Series(name, values) for name, values in columns.items()])
    if hasattr(batch, "append_column"):
        import pyarrow as pa

        for name, values in columns.items():
            batch = batch.append_column(name, pa.array(values))
        return batch
    return batch.assign(**columns)
