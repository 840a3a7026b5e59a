"""Rows of Dask collections: workers answer for the rows that they hold, when results are computed.

The worker that holds a partition of new rows answers for it, with a copy of the regressor that was
sent to all workers once; an answer has the partitions and the index of the rows. For calibration,
workers predict the rows they hold and find their coordinates; only these, targets and predictions
travel. The *layout* of rows, and whether the model gives the same answer twice, are judged by the
first thousand rows alone; from some of them it is learnt how the model errs.

Results do not depend on how rows are dealt into partitions, except through the model itself: one
that multiplies matrices may round the last digit differently in another batch.

Dask is imported only where it is used.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from calliper._blocks import one_core
from calliper._handlers import handler_of_collection
from calliper._types import Coverage, FloatArray
from calliper._validation import USUAL_COVERAGE, check_levels, n_rows
from calliper._version import __version__
from calliper.exceptions import CalliperError, once
from calliper.intervals import Intervals
from calliper.rows import Rows, RowSources

#: First rows, by which the layout is known and the model is tried.
HEAD = 1000
#: For each regressor in this process: warnings already raised, by question.
_SAID: WeakKeyDictionary[Any, dict[str, set[type[Warning]]]] = WeakKeyDictionary()
#: Regressors that were sent to workers: their state then, and where they are.
_SENT: WeakKeyDictionary[Any, tuple[tuple[Any, ...], Any]] = WeakKeyDictionary()


def is_collection(what: Any) -> bool:
    """Whether it is a Dask collection, which must not be computed by accident."""
    return handler_of_collection(what) is not None


def refuse(what: Any, name: str) -> None:
    """Say what to pass instead where no collection is taken."""
    raise TypeError(
        f"{name} is a Dask {type(what).__name__}, and all its rows would have to be loaded "
        "into this process. calibrate, predict, predict_interval and predict_distribution "
        f"take it; elsewhere pass {name}.compute(), or a sample of it."
    )


@dataclass(frozen=True, eq=False)
class Question:
    """A question to a regressor, asked of every partition.

    It is a method with arguments, and ``then`` a name and arguments that are asked of the answer.
    The answer to one row has this shape; in a frame, its columns have these names.
    """

    method: str
    how: dict[str, Any]
    names: list[str]
    shape: tuple[int, ...]
    then: tuple[str, dict[str, Any]] | None = None
    layout: dict[Any, bool] | None = None
    token: str = ""

    def ask(self, regressor: Any, rows: Any, **values: Any) -> FloatArray:
        """The answer for rows in memory, (m, *shape)."""
        found = getattr(regressor, self.method)(rows, **self.how, **values)
        if self.then is not None:
            name, asked = self.then
            found = getattr(found, name)(**asked)
        whole = isinstance(found, np.ndarray)
        return np.asarray(found if whole else np.stack(tuple(found), axis=-1))

    def of_array(self, rows: Any, regressor: Any, *values: Any, given: tuple[str, ...]) -> Any:
        """The answer to a block, (m, *shape)."""
        if not len(rows):
            return np.empty((0, *self.shape))
        check_layout(rows, self.layout)
        # What is wrong in one partition is often wrong in all: a process warns once.
        said = _SAID.setdefault(regressor, {}).setdefault(self.token, set())
        worker = sys.modules.get("distributed.worker")  # whose warnings reach the clients
        with one_core(), once(said, warnings.warn if worker is None else worker.warn):
            return self.ask(regressor, rows, **dict(zip(given, values, strict=True)))

    def of_frame(self, rows: Any, regressor: Any, *values: Any, given: tuple[str, ...]) -> Any:
        """The answer to a partition, a frame or a series with its index."""
        import pandas as pd

        found = self.of_array(rows, regressor, *values, given=given)
        if not self.shape:
            return pd.Series(found, index=rows.index, name=self.names[0])
        table = found.reshape(len(rows), len(self.names))
        return pd.DataFrame(table, columns=self.names, index=rows.index)


def answer(
    asked: str, regressor: Any, X: Any, coverage: Coverage = USUAL_COVERAGE, **how: Any
) -> Any:
    """The lazy result of a regressor's method for the rows of a collection.

    A series, a frame with columns for the ends of each target, or an array (m, …) of these.
    """
    if asked == "predict_distribution":
        return LazyDistribution(regressor, X, how)
    if asked == "predict_interval":
        how["coverage"] = coverage
        question = Question(asked, how, *names_of_ends(regressor, coverage))
    elif (targets := _targets_of(regressor)) is None:
        question = Question(asked, how, ["prediction"], ())
    else:
        question = Question(asked, how, [str(name) for name in targets], (len(targets),))
    return ask_lazily(regressor, X, question)


@dataclass(frozen=True, eq=False)
class LazyDistribution:
    """Predictive distributions of the rows of a Dask collection; results are collections."""

    regressor: Any
    X: Any
    how: dict[str, Any]

    def quantile(self, p: Coverage, *, side: str = "upper") -> Any:
        """As :meth:`calliper.distribution.Distribution.quantile`, but lazy.

        For a frame a series, or for several levels a frame with a column for each; for an array
        (m,) or (m, L).
        """
        levels = check_levels(p, "p")
        names = [f"quantile_{level:g}" for level in levels]
        shape = () if np.ndim(p) == 0 else (len(levels),)
        return self._ask(names, shape, "quantile", p=p, side=side)

    def interval(self, coverage: Coverage = 0.9) -> Any:
        """As :meth:`calliper.distribution.Distribution.interval`: ends as of intervals."""
        return self._ask(*names_of_ends(self.regressor, coverage), "interval", coverage=coverage)

    def _ask(self, names: list[str], shape: tuple[int, ...], name: str, **asked: Any) -> Any:
        question = Question("predict_distribution", self.how, names, shape, (name, asked))
        return ask_lazily(self.regressor, self.X, question)


def _targets_of(regressor: Any) -> Any:
    """Names of several targets; None for one."""
    return getattr(regressor, "target_names_", None)


def names_of_ends(regressor: Any, coverage: Coverage) -> tuple[list[str], tuple[int, ...]]:
    """Names and shape of the ends of one row; of several targets those of each."""
    levels = check_levels(coverage)
    shape = (2,) if np.ndim(coverage) == 0 else (len(levels), 2)
    none = np.zeros((0, *shape[:-1]))
    names = Intervals(none, none, levels).column_names()
    targets = _targets_of(regressor)
    if targets is None:
        return names, shape
    return [f"{target}_{name}" for target in targets for name in names], (len(targets), *shape)


def ask_lazily(regressor: Any, X: Any, question: Question) -> Any:
    """The answer for the rows of a collection, as a collection of the same kind.

    Groups and weights may be collections with the partitions of ``X``.
    """
    import dask.array as da
    from dask import delayed
    from dask.base import tokenize

    how = question.how
    values = _lazy_values({name: how.get(name) for name in ("groups", "weights")})
    same = {name: value for name, value in how.items() if name not in values}
    question = replace(question, how=same, layout=_layout(X))
    X = _whole_rows(X)
    question = replace(question, token=tokenize(question))
    sent, given = sent_once(regressor), tuple(values)
    if hasattr(X, "divisions"):
        none = question.of_frame(X._meta.iloc[:0], None, given=())
        return X.map_partitions(question.of_frame, sent, *values.values(), given=given, meta=none)
    ask = delayed(question.of_array)
    blocks = [ask(rows, sent, *own, given=given) for rows, *own in partitions(X, values)]
    shapes = ((n, *question.shape) for n in X.chunks[0])
    return da.concatenate([*map(partial(da.from_delayed, dtype=np.float64), blocks, shapes)])


def _whole_rows(X: Any) -> Any:
    """An array of blocks that hold whole rows; frames as they are."""
    if not hasattr(X, "chunks"):
        return X
    if any(np.isnan(size) for size in X.shape[1:]):
        what = "the number of columns of the Dask Array must be known"
        raise CalliperError(f"{what}; got shape {X.shape}. Call X.compute_chunk_sizes() first.")
    cut = {axis: -1 for axis in range(1, X.ndim) if X.numblocks[axis] > 1}
    return X.rechunk(cut) if cut else X


def _lazy_values(given: dict[str, Any]) -> dict[str, Any]:
    """Those that are collections; what is neither that nor the same for all rows is refused."""
    lazy = {name: value for name, value in given.items() if is_collection(value)}
    for name, value in given.items():
        known = value is None or isinstance(value, str) or callable(value)
        if name not in lazy and not known:
            what = f"{name} of rows in a Dask collection must be a column name"
            other = "a function of the rows, or a Dask Series or Array with the partitions of X"
            raise CalliperError(f"{what}, {other}; got a {type(value).__name__}.")
    return lazy


def _layout(X: Any) -> dict[Any, bool] | None:
    """Columns of a frame, and whether they hold numbers; None for anything else."""
    if not hasattr(X, "_meta"):
        raise TypeError(f"X must be a Dask DataFrame, Series or Array; got a {type(X).__name__}.")
    return _columns(X._meta) if hasattr(X._meta, "columns") else None


def _columns(frame: Any) -> dict[Any, bool]:
    return {name: getattr(kind, "kind", "O") in "biuf" for name, kind in frame.dtypes.items()}


def check_layout(rows: Any, layout: dict[Any, bool] | None) -> None:
    """Refuse a partition whose columns, or their types, are not those of the collection."""
    if layout is None:
        return
    found = _columns(rows)
    if [*found] != [*layout] or any(layout[name] and not found[name] for name in found):
        shown = [
            [name if numbers else f"{name} (no numbers)" for name, numbers in each.items()][:20]
            for each in (found, layout)
        ]
        what = f"a partition of {len(rows)} rows has columns {shown[0]}"
        has = f"but the collection has {shown[1]}"
        raise CalliperError(f"{what}, {has}. Give all partitions the same columns and types.")


def sent_once(regressor: Any) -> Any:
    """The regressor as a future that lives as long as it, or without a cluster as delayed."""
    client = current_client()
    state = (client, regressor.calibrators_, regressor.embedding_)
    before, sent = _SENT.get(regressor, ((), None))
    same = len(before) == len(state) and all(map(is_, before, state))
    if same and (is_collection(sent) or sent.status == "finished"):
        return sent
    lean = copy(regressor)
    lean.progress = None
    lean.calibration_ = replace(regressor.calibration_, trained_from=None, sketch=None)
    sent = send(lean, client)
    _SENT[regressor] = (state, sent)
    return sent


def current_client() -> Any:
    """The client of a cluster that collections are computed on, or None."""
    distributed = sys.modules.get("distributed")  # a client implies that it was imported
    if distributed is None:
        return None
    from dask.base import get_scheduler

    try:
        client = distributed.default_client()
    except ValueError:
        return None
    if getattr(get_scheduler(), "__self__", client) is not client:  # set to threads, say
        return None
    return None if client is None or client.asynchronous else client


def send(what: Any, client: Any) -> Any:
    """A future of an object that all workers hold; without workers a delayed object."""
    from dask import delayed

    if client is None or not check_workers(client):
        return delayed(what, traverse=False, pure=False)
    return client.scatter(what, broadcast=True, hash=False)


def check_workers(client: Any) -> int:
    """The number of workers; refuse those without this version of calliper."""
    found = client.run(eval, "__import__('calliper').__version__", on_error="return")
    wrong = {
        address: f"has calliper {version}" if isinstance(version, str) else f"has none ({version})"
        for address, version in found.items()
        if version != __version__
    }
    if wrong:
        named = "; ".join(f"{address} {what}" for address, what in sorted(wrong.items())[:5])
        raise CalliperError(
            f"{len(wrong)} of {len(found)} workers do not have calliper {__version__}, which runs "
            f"here: {named}. Install the same version everywhere."
        )
    return len(found)


def connect(address: str, *, timeout: float = 10.0) -> Any:
    """A client of a running Dask scheduler whose workers all have this version of calliper.

    ``address`` is, for example, ``tcp://10.0.0.1:8786``. Close the client when done.

    Parameters
    ----------
    address : str
    timeout : float, default 10
        Seconds to wait for the scheduler.

    Returns
    -------
    distributed.Client

    Examples
    --------
    >>> connect("tcp://127.0.0.1:1", timeout=0.2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    calliper.exceptions.CalliperError: no scheduler answers at tcp://127.0.0.1:1 within 0.2 ...
    """
    from distributed import Client

    try:
        client = Client(address, timeout=timeout, set_as_default=True)
    except (OSError, ValueError) as error:
        raise CalliperError(
            f"no scheduler answers at {address} within {timeout:g} s ({type(error).__name__}). Is "
            f"it running, and is this the address that it printed (tcp://host:8786)?"
        ) from error
    try:
        check_workers(client)
    except CalliperError:
        client.close()
        raise
    return client


class LazyRows:
    """Calibration rows of Dask collections; ``X``, ``y`` and ``per_row`` are of the first rows."""

    def __init__(self, X: Any, y: Any, per_row: RowSources) -> None:
        values = _lazy_values(vars(per_row))
        self._layout, self._names = _layout(X), ("y", *values)
        self._same = replace(per_row, **dict.fromkeys(values))
        self._parts = partitions(X, {"y": y, **values})
        self.X, known = self._head()
        self.y = known.pop("y")
        self.per_row = replace(per_row, **known)

    def _head(self) -> tuple[Any, dict[str, Any]]:
        """The first rows with their values, whatever partitions they are in."""
        found = list[Any]()
        for task in self._each(_first, None):
            found += task.compute()
            if sum(n_rows(X) for X, _ in found) >= HEAD:
                break
        if not found:
            what = f"all {len(self._parts)} partitions of X are empty"
            raise CalliperError(f"{what}: there is nothing to calibrate on.")
        rows, values = zip(*found, strict=True)
        known = {name: _joined([each[name] for each in values])[:HEAD] for name in self._names}
        return _joined(rows)[:HEAD], known

    def located(self, embedding: Any) -> tuple[FloatArray, Rows]:
        """Predictions, and features, groups, weights and targets of all rows, from workers."""
        import dask

        tasks = self._each(partial(_located, self._same), send(embedding, current_client()))
        found = [part for several in dask.compute(*tasks) for part in several]
        joined = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
        return joined.pop("y_pred"), Rows(targets=joined.pop("y"), **joined)

    def _each(self, work: Callable[..., Any], sent: Any) -> list[Any]:
        """``work`` on each partition: what it makes of it in a list, an empty one of no rows."""
        from dask import delayed

        task, how = delayed(_partition), (self._layout, self._names, sent)
        return [task(work, number, *how, *part) for number, part in enumerate(self._parts)]


def _joined(parts: Sequence[Any]) -> Any:
    """Rows or values of several partitions; frames keep their labels."""
    if len(parts) == 1:
        return parts[0]
    if not hasattr(parts[0], "iloc"):
        return np.concatenate(parts)
    import pandas as pd

    return pd.concat(parts)


def _partition(
    work: Callable[..., Any], number: int, layout: Any, names: Any, sent: Any, X: Any, *values: Any
) -> list[Any]:
    """What ``work`` makes of the rows of a partition and their values, if there are any."""
    known = dict(zip(names, values, strict=True))
    for name, value in known.items():
        if len(value) != n_rows(X):
            what = f"partition {number} has {n_rows(X)} rows of X and {len(value)} of {name}"
            raise CalliperError(f"{what}: divide both into the same partitions.")
    if not n_rows(X):
        return []
    check_layout(X, layout)
    return [work(X, known, sent)]


def _first(X: Any, known: dict[str, Any], sent: None) -> tuple[Any, dict[str, Any]]:
    """The first rows, with their values."""
    return X[:HEAD], {name: value[:HEAD] for name, value in known.items()}


def _located(per_row: RowSources, X: Any, known: dict[str, Any], embedding: Any) -> dict[str, Any]:
    """All values of rows by name."""
    with one_core():
        y_pred, Z = embedding.predict_and_transform(X)
    given = per_row.of_calibration(X)
    own = {"groups": given.groups, "weights": given.weights, **known}
    values = {name: np.asarray(value) for name, value in own.items() if value is not None}
    return {"y_pred": y_pred, "Z": np.asarray(Z), **values}


def partitions(X: Any, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The partitions of rows and of their values, side by side."""
    columns = [_whole_rows(X)]
    for name, value in values.items():
        if not is_collection(value):
            what = f"X is a Dask {type(X).__name__}, but {name} is a {type(value).__name__}"
            raise TypeError(f"{what}, not a Dask collection: use one kind for both.")
        columns.append(_whole_rows(value))
        n, other = columns[0].npartitions, columns[-1].npartitions
        if n != other:
            raise CalliperError(
                f"X has {n} partitions and {name} {other}: repartition one of them like the other."
            )
    return list(zip(*(np.ravel(each.to_delayed()).tolist() for each in columns), strict=True))
