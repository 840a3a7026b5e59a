"""``calliper monitor``: whether, and since when, a log of intervals is not as promised."""

from typing import Any

import click
import numpy as np

from calliper._types import BoolArray, FloatArray
from calliper._writing import to_text
from calliper.cli import _options as options
from calliper.cli import _output as out
from calliper.cli import _tables as tables
from calliper.cli._calibration import load_calibration
from calliper.cli._csv import Form
from calliper.exceptions import CalliperError
from calliper.intervals import Intervals
from calliper.monitoring import CoverageMonitor


@click.command()
@click.option(
    "--labels", metavar="FILE", required=True, help="Intervals and targets, in chronological order."
)
@options.target()
@click.option("--lower", metavar="COLUMN", default="lower", help="Lower ends.")
@click.option("--upper", metavar="COLUMN", default="upper", help="Upper ends.")
@click.option("--time", metavar="COLUMN", help="Column with row labels for the output.")
@options.coverage("The level of the intervals in the log.")
@click.option(
    "--calibrated",
    metavar="FILE",
    help="Or: a file made by 'calliper calibrate' with a method such as split.",
)
@click.option("--n-calibration", type=int, help="Or: the number of calibration points.")
@click.option("--tolerated", type=float, help="The share of misses that you accept.")
@click.option(
    "--online", is_flag=True, help="Or: each label was added to the calibration set at once."
)
@click.option(
    "--side",
    type=click.Choice(["more", "fewer", "both"]),
    default="more",
    help="Alarm on more misses than promised, fewer, or both.",
)
@click.option("--ties", is_flag=True, help="Errors may be equal, for example with counts.")
@click.option(
    "--false-alarms", type=float, default=0.05, help="Largest probability of any false alarm."
)
@click.option("--figure", metavar="FILE", help="Draw the evidence over time: .png, .pdf or .svg.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.text_form
@click.pass_context
def monitor(context: click.Context, /, labels: str, figure: str | None, **how: Any) -> None:
    """Check whether logged intervals cover as promised. Exit code 1 means an alarm.

    \b
    calliper monitor --labels log.parquet --target y --tolerated 0.12 --time day
    calliper monitor --labels log.csv --target y --calibrated split.calliper --coverage 0.9

    Exit code 0 means no alarm so far, 1 an alarm, 2 an error. Check a log as often as you like: if
    nothing is wrong, the probability of EVER raising an alarm is at most --false-alarms.
    """  # noqa: D301
    if figure is not None:
        out.check_figure_name(figure)
    form = options.text_form_of(*(how.pop(name) for name in ("delimiter", "decimal", "encoding")))
    columns = [how.pop(name) for name in ("lower", "upper", "target")]
    time, calibrated, as_json = (how.pop(name) for name in ("time", "calibrated", "as_json"))
    if calibrated is None:
        made = CoverageMonitor(**how)
    elif how.pop("n_calibration") is not None:
        raise CalliperError("--calibrated and --n-calibration cannot be combined: give one.")
    else:
        made = CoverageMonitor.of(load_calibration(calibrated).calibrated, **how)
    made.restore({"inside": [], "steps": []})  # refuses options before anything is read
    inside, times = _read(labels, columns, time, form)
    made.update(inside)
    places: dict[str, Any] = {"alarm_at": made.alarm_at, "since": made.since}
    if time is not None and made.alarm:
        places |= {f"{name}_{time}": times[at or 0] for name, at in places.items()}
    if as_json:
        known = {"labels": len(inside), "missed": int((~inside).sum()), "evidence": made.evidence}
        words = {"limit": made.limit, "says": made.describe()}
        click.echo(to_text({"alarm": made.alarm, **places, **known, **words}, indent=1))
    else:
        click.echo(out.wrapped(made.describe()))
        for name in [*places][2:]:
            click.echo(f"{name}: {places[name]}")
    if figure is not None:
        from calliper.lab.report import MonitorDisplay

        with out.open_output(figure) as handle:
            out.save_figure(MonitorDisplay.from_monitor(made).plot().figure_, handle, figure)
        out.note(f"figure written to {figure}")
    context.exit(int(made.alarm))


def _read(
    path: str, columns: list[str], time: str | None, form: Form
) -> tuple[BoolArray, list[str]]:
    """Whether each target that is known lay inside, and the times of these."""
    inside, times, unknown = [], [], 0
    *ends, target = columns
    with tables.open_table(path, form) as table:
        tables.require_columns(table, [*columns, *([] if time is None else [time])])
        any_gap = tables.Filling(1, np.full(1, np.nan))  # which is left as it is
        for chunk in table.chunks([target], carry=True):
            y = any_gap.numbers(chunk)[:, 0]
            known = ~np.isnan(y)
            lower, upper = (_ends(chunk, name, path)[known] for name in ends)
            inside.append(Intervals(lower, upper).contains(y[known]))
            if time is not None:
                times += [
                    text for text, there in zip(chunk.labels(time), known, strict=True) if there
                ]
            unknown += int((~known).sum())
    if unknown:
        out.note(f"note: {unknown} rows without a target were left out")
    if not sum(map(len, inside)):
        raise CalliperError(f"{path}: no row has a target; at least one is needed.")
    return np.concatenate(inside), times


def _ends(chunk: tables.Chunk, name: str, path: str) -> FloatArray:
    """One end of each interval; infinite where that is what is written."""
    values, texts = chunk.floats(name), chunk.labels(name)
    for place, text in enumerate(texts):
        value = np.nan if values is None else values[place]
        if np.isnan(value) or (
            np.isinf(value) and text.strip().lower().lstrip("+-") not in ("inf", "infinity")
        ):
            raise CalliperError(
                f"{path}, column {name!r}: {text!r} is not a number; repair or remove the row."
            )
    return np.asarray(values)
