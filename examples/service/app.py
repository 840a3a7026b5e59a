"""Prediction intervals over HTTP.

    python examples/service/train.py kept
    CALLIPER_FOLDER=kept uvicorn --app-dir examples/service app:app --workers 2

The model and what was calibrated are read from the folder at start; ``answers.sqlite`` is made
there, and shared by all workers. Put a proxy before it that limits the size of requests.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

try:
    import pandas as pd
    import skops.io
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from pydantic import BaseModel
except ImportError as error:
    raise SystemExit(f"{error}: the service needs pip install 'calliper[service]'.") from error
from ledger import Ledger, RefusedError

import calliper
from calliper.monitoring import CoverageMonitor

#: Levels that may be asked for. Some methods remember what each level takes; a few keep it small.
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
#: The share of misses that sets off no alarm, in units of the one that the level leaves.
TOLERATED = 1.2
#: Rows, or labels, in one request; problems that an answer lists.
MOST_ROWS, MOST_PROBLEMS = 1000, 20
#: What scikit-learn's trees need beyond what skops trusts by itself.
TRUSTED = [
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
]


class Rows(BaseModel, extra="forbid"):
    """Rows by the names of their columns, and the level."""

    rows: list[dict[str, Any]]
    coverage: float = 0.9


class Label(BaseModel, extra="forbid"):
    """What came of a row that was answered."""

    id: str
    y: Any


class Labels(BaseModel, extra="forbid"):
    """Some labels."""

    labels: list[Label]


@asynccontextmanager
async def start(app: FastAPI) -> AsyncIterator[None]:
    """Read the folder; a model that is not the calibrated one stops it here."""
    folder = Path(os.environ.get("CALLIPER_FOLDER", ""))
    if not (folder / "model.skops").is_file():
        raise FileNotFoundError(
            f"CALLIPER_FOLDER must name a folder that train.py has made; there is no model.skops "
            f"in {str(folder)!r}."
        )
    model = skops.io.load(folder / "model.skops", trusted=TRUSTED)
    app.state.conformal = calliper.load(folder / "intervals.calliper", model)
    app.state.kept = calliper.files.inspect(folder / "intervals.calliper")
    app.state.ledger = Ledger(folder / "answers.sqlite")
    yield


app = FastAPI(title="Prediction intervals", lifespan=start)


class PlainResponse(JSONResponse):
    """JSON in ASCII: a text that no encoding has, such as half a surrogate pair, is escaped."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return json.dumps(content, allow_nan=False).encode("ascii")


@app.exception_handler(RequestValidationError)
def misshapen(request: Request, error: RequestValidationError) -> JSONResponse:
    """What is wrong with the form of a request, without repeating what may not be JSON."""
    found = [{"where": list(map(str, e["loc"])), "problem": e["msg"]} for e in error.errors()]
    return PlainResponse({"detail": found[:MOST_PROBLEMS]}, 422)


@app.exception_handler(HTTPException)
def refused(request: Request, error: HTTPException) -> JSONResponse:
    """What is wrong with what a request says."""
    return PlainResponse({"detail": error.detail}, error.status_code)


@app.get("/health")
def health() -> dict[str, str]:
    """Whether it can answer: the ledger can be read."""
    app.state.ledger.totals()
    return {"status": "ok"}


@app.get("/about")
def about() -> dict[str, Any]:
    """What it is, what it takes, and what it promises."""
    conformal = app.state.conformal
    return {
        "about": app.state.kept.describe(),
        "columns": conformal.feature_names_in_.tolist(),
        "most_rows": MOST_ROWS,
        "promises": {str(level): conformal.guarantee(level).describe() for level in LEVELS},
    }


@app.post("/intervals")
def answer(asked: Rows) -> dict[str, Any]:
    """An interval for each row, and an id by which its label can be sent."""
    conformal = app.state.conformal
    if 1 < asked.coverage < 100:
        refuse([{"problem": f"coverage must be a share, not a percentage; got {asked.coverage:g}"}])
    if asked.coverage not in LEVELS:
        refuse([{"problem": f"coverage must be one of {LEVELS}; got {asked.coverage:g}"}])
    refuse_number(len(asked.rows), "rows")
    columns = conformal.feature_names_in_.tolist()
    refuse(problems(asked.rows, columns))
    X = pd.DataFrame(asked.rows, columns=columns, dtype=float)
    answered = conformal.predict_interval(X, asked.coverage)
    return {"ids": app.state.ledger.add(answered), "intervals": answered.to_dict()}


@app.post("/labels")
def label(sent: Labels) -> dict[str, Any]:
    """Take labels of rows that were answered; the share of all labels so far that lay inside."""
    refuse_number(len(sent.labels), "labels")
    wrong = [(place, number_or_why(each.y)) for place, each in enumerate(sent.labels)]
    refuse([{"label": place, "problem": why} for place, why in wrong if isinstance(why, str)])
    first = {each.id: place for place, each in reversed([*enumerate(sent.labels)])}
    again = [place for place, each in enumerate(sent.labels) if first[each.id] != place]
    refuse([{"label": p, "problem": f"label {first[sent.labels[p].id]} has its id"} for p in again])
    try:
        app.state.ledger.label({each.id: float(each.y) for each in sent.labels})
    except RefusedError as error:
        refuse([{"problem": str(error)}])
    return {"coverage": [running(*total) for total in app.state.ledger.totals()]}


@app.get("/monitor")
def monitor() -> dict[str, Any]:
    """Whether labels of all workers so far, in order of arrival, miss more than is tolerated."""
    found = []
    for coverage, *_ in app.state.ledger.totals():
        watch = CoverageMonitor(coverage, tolerated=TOLERATED * (1 - coverage))
        watch.update(app.state.ledger.inside(coverage))
        known = {"coverage": coverage, "alarm": watch.alarm, "since": watch.since}
        found.append({**known, "says": watch.describe()})
    return {"alarm": any(each["alarm"] for each in found), "levels": found}


def running(coverage: float, labelled: int, inside: int) -> dict[str, float]:
    """The share inside, and the standard error that it would have at the level asked for."""
    error = math.sqrt(coverage * (1 - coverage) / labelled)
    counts = {"asked": coverage, "labelled": labelled, "inside": inside}
    return {**counts, "share": inside / labelled, "standard_error": error}


def problems(rows: list[dict[str, Any]], columns: list[str]) -> list[dict[str, Any]]:
    """What is wrong with which row and column."""
    found = []
    for place, row in enumerate(rows):
        for name in columns:
            why = number_or_why(row[name]) if name in row else "the column is missing"
            if isinstance(why, str):
                found.append({"row": place, "column": name, "problem": why})
        found += [
            {"row": place, "column": name, "problem": "no such column"}
            for name in row.keys() - set(columns)
        ]
    return found


def number_or_why(value: Any) -> float | str:
    """A finite number; else, in words, why it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"expected a number, got {value!r:.40}"
    finite = abs(value) < 1e300
    return float(value) if finite else f"expected a finite number, got {str(value)[:40]}"


def refuse_number(n: int, what: str) -> None:
    """None, or too many."""
    if not 1 <= n <= MOST_ROWS:
        refuse([{"problem": f"expected 1 to {MOST_ROWS} {what}, got {n}"}])


def refuse(found: list[dict[str, Any]]) -> None:
    """422 with all problems, if there are any."""
    if found:
        more = [{"problem": f"and {len(found) - MOST_PROBLEMS} more"}]
        raise HTTPException(422, found[:MOST_PROBLEMS] + more * (len(found) > MOST_PROBLEMS))
