"""``calliper monitor``: whether, and since when, intervals in a log miss more than promised."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import compress
from typing import Any, Literal

import click
import numpy as np

from calliper._types import BoolArray, FloatArray
from calliper._writing import to_text
from calliper.cli import _options as options
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._calibration import load_calibration
from calliper.cli._options import Column, File, option
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.monitoring import CoverageMonitor


@dataclass(frozen=True, kw_only=True)
class MonitorRequest(options.TableRequest):
    labels: File = option("The log: lower and upper ends and targets, in chronological order.")
    lower: Column = option("Lower ends.", "lower")
    upper: Column = option("Upper ends.", "upper")
    time: Column | None = option("Column that names rows in the output, such as the time.")
    coverage: float = options.level("The level of the intervals in the log.")
    tolerated: float | None = option("The accepted share of misses, or one of the next three.")
    calibrated: File | None = option("Or a file made by 'calliper calibrate'.")
    n_calibration: int | None = option("Or the number of calibration rows.")
    online: bool = option("Or: each label was immediately added to the calibration rows.", False)
    side: Literal["more", "fewer", "both"] = option("Alarm for more or fewer misses.", "more")
    ties: bool = option("Rows may have equal errors, for example if targets are counts.", False)
    false_alarms: float = option("Largest probability of any false alarm.", 0.05)
    figure: File | None = option("Draw the evidence over time: .png, .pdf or .svg.")
    json: bool = option("Print the result as JSON.", False)

    def check(self) -> None:
        if self.figure is not None:
            out.check_figure_name(self.figure)
        for known in ("calibrated", "n_calibration"):
            self.refuse_both("tolerated", known)
        self.refuse_both("calibrated", "n_calibration")

    def monitor(self) -> CoverageMonitor:
        """A new monitor; wrong options are refused before anything is read."""
        how: Any = {"coverage": self.coverage, "tolerated": self.tolerated, "online": self.online}
        how |= {"side": self.side, "ties": self.ties, "false_alarms": self.false_alarms}
        if self.calibrated is not None:
            made = CoverageMonitor.of(load_calibration(self.calibrated).calibrated.regressor, **how)
        else:
            made = CoverageMonitor(n_calibration=self.n_calibration, **how)
        made.restore({"seen": [], "steps": []})
        return made


@options.command(MonitorRequest)
def monitor(request: MonitorRequest) -> None:
    """Check whether logged intervals cover as promised. Exit code 1 means an alarm.

    \b
    calliper monitor --labels log.parquet --target y --tolerated 0.12 --time day
    calliper monitor --labels log.csv --target y --calibrated split.calliper --coverage 0.9

    Exit code 0 means no alarm so far, 1 an alarm, 2 an error. Check a log as often as you like: if
    nothing is wrong, the probability of EVER raising an alarm is at most --false-alarms.
    """  # noqa: D301
    made, time = request.monitor(), request.time
    inside, times = _read(request)
    rise = _rise(times)
    if rise is None:
        out.note(f"note: {time!r} holds neither numbers nor ISO dates, so its order is not checked")
    elif not rise:
        what = f"{time!r} is not in ascending order, but rows must be in chronological order"
        why = "the alarm, and since when it holds, may be wrong"
        out.note(f"warning: {what}: {why}. Sort the rows first.")
    made.update(inside)
    positions: dict[str, Any] = {"alarm_at": made.alarm_at, "since": made.since}
    named: dict[str, str] = {}
    if time is not None and made.alarm:
        named = {f"{name}_{time}": times[at or 0] for name, at in positions.items()}
    if request.json:
        known = {"labels": len(inside), "missed": int((~inside).sum()), "evidence": made.evidence}
        words = {"limit": made.limit, "says": made.describe()}
        click.echo(to_text({"alarm": made.alarm, **positions, **named, **known, **words}, indent=1))
    else:
        click.echo(out.wrapped(made.describe()))
        for name, text in named.items():
            click.echo(f"{name}: {text}")
    if request.figure is not None:
        from calliper.lab.report import MonitorDisplay

        out.write_figure(MonitorDisplay.from_monitor(made).plot().figure_, request.figure)
    click.get_current_context().exit(int(made.alarm))


def _read(request: MonitorRequest) -> tuple[BoolArray, list[str]]:
    """Whether each known target was inside its interval, and the times of these rows."""
    inside, times, unknown, path, time = [], list[str](), 0, request.labels, request.time
    ends, target = (request.lower, request.upper), request.target
    with tables.open_table(path, request.form) as table:
        tables.require_columns(table, [*ends, target, time])
        any_gap = tables.Filling(1, np.full(1, np.nan))  # gaps are kept
        for chunk in table.chunks([*ends, target, *filter(None, [time])]):
            y = any_gap.numbers(chunk, [target])[:, 0]
            known = ~np.isnan(y)
            lower, upper = (_ends(chunk, name, path)[known] for name in ends)
            inside.append(Intervals(lower, upper).contains(y[known]))
            if time is not None:
                times += compress(chunk.labels(time), known)
            unknown += int((~known).sum())
    if unknown:
        out.note(f"note: {unknown} rows without a target were left out")
    if not sum(map(len, inside)):
        raise CalliperError(f"{path}: no row has a target; at least one is needed.")
    return np.concatenate(inside), times


def _rise(times: list[str]) -> bool | None:
    """Whether times never fall, as numbers or as dates; None if they are neither."""
    for kind in (float, datetime.fromisoformat):
        with suppress(TypeError, ValueError):
            moments = [kind(text) for text in times]
            return moments == sorted(moments)
    return None


def _ends(chunk: Any, name: str, path: str) -> FloatArray:
    """One end of each interval; infinite only if the file says so."""
    values, texts = chunk.floats(name), chunk.labels(name)
    values = np.full(len(chunk), np.nan) if values is None else values
    for index in np.flatnonzero(~np.isfinite(values)):
        sign = texts[index].strip().lower().lstrip("+-")
        if np.isnan(values[index]) or sign not in ("inf", "infinity"):
            what = f"column {name!r}: {texts[index]!r} is not a number"
            raise CalliperError(f"{path}, {what}; fix or remove the row.")
    return np.asarray(values)
