"""From the records of the study to its tables (``make nearness-study``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from studies.experiments.nearness.methods import (
    DEFAULT,
    LEVEL,
    LEVELS,
    OURS,
    REFERENCE,
    REFITS,
    TRAINING,
)
from studies.experiments.nearness.problems import ASIDE, MODELS, TABULAR
from studies.experiments.nearness.study import read_records
from studies.experiments.tuning.summary import markdown

PAGE = Path(__file__).parents[2] / "records" / "nearness-study.md"
DRAW = ["model", "n", "problem", "repetition"]
NINE = tuple(TABULAR)
DEFAULTS = (DEFAULT, TRAINING, REFITS)
SIZE = 500


def flat(records: list[dict[str, object]]) -> pd.DataFrame:
    """One row a record, with a column for each level and each kind of decile."""
    frame = pd.DataFrame(records)
    for measure in ("score", "coverage", "width"):
        values = pd.DataFrame(frame.pop(measure).tolist(), index=frame.index, dtype=float)
        frame[[f"{measure} {level}" for level in LEVELS]] = values
    worst = pd.DataFrame(frame.pop("worst").tolist(), index=frame.index, dtype=float)
    frame[["by prediction", "by difficulty"]] = worst
    return frame


def over_split(frame: pd.DataFrame, level: float = LEVEL) -> pd.DataFrame:
    """Interval score of each method over that of plain split, a row for each draw."""
    wide = frame.pivot_table(index=DRAW, columns="method", values=f"score {level}")
    return wide.div(wide[REFERENCE], axis=0)


def mean_and_worst(ratios: pd.DataFrame, problems: tuple[str, ...]) -> pd.DataFrame:
    """Mean over draws, then mean over problems and the worst of them; a row for each model, N."""
    part = ratios[ratios.index.get_level_values("problem").isin(problems)]
    groups = part.groupby(DRAW[:-1]).mean().groupby(["model", "n"])
    mean, worst = groups.mean().map(number), groups.max().map(number)
    text: pd.DataFrame = (mean + " / " + worst).replace(" / ", "")
    return text


def of_defaults(frame: pd.DataFrame, method: str) -> pd.DataFrame:
    """One method at every level, on the nine sets and on those kept aside."""
    columns = {}
    for name, problems in (("nine sets", NINE), ("kept aside", ASIDE)):
        for level in LEVELS:
            table = mean_and_worst(over_split(frame, level), problems)
            columns[f"{name}, {level:.0%}"] = table[method]
    return pd.DataFrame(columns).fillna("")


def by_size(ratios: pd.DataFrame, model: str) -> pd.DataFrame:
    """Spaces and locality for one model, a column for each N."""
    table = mean_and_worst(ratios, NINE).xs(model, level="model").T
    chosen = [name for name in OURS if name in table.index and table.loc[name].any()]
    return pd.DataFrame(table.loc[chosen]).rename(columns=_size).rename_axis("method")


def all_methods(ratios: pd.DataFrame) -> pd.DataFrame:
    """Mean over the nine sets at N = 500, and the difference from left-out errors."""
    part = ratios[
        (ratios.index.get_level_values("n") == SIZE)
        & ratios.index.get_level_values("problem").isin(NINE)
    ]
    columns = {}
    for model in MODELS:
        draws = pd.DataFrame(part[part.index.get_level_values("model") == model])
        if len(draws):
            columns[model] = _with_gap(draws.dropna(axis="columns", how="all"))
    return pd.DataFrame(columns).fillna("").rename_axis("method")


def _with_gap(draws: pd.DataFrame) -> pd.Series[str]:
    by_set = draws.sub(draws[REFITS], axis=0).groupby("problem")
    # Draws of one set are independent of those of another: errors add in squares.
    error = np.sqrt((by_set.sem() ** 2).sum()) / by_set.ngroups
    gap, mean = by_set.mean().mean(), draws.groupby("problem").mean().mean()
    return pd.Series(
        {
            name: f"{number(mean[name])} ({gap[name]:+.3f} ± {error[name]:.3f})"
            if np.isfinite(mean[name])
            else "∞"
            for name in draws.columns
        }
    )


def deciles(frame: pd.DataFrame) -> pd.DataFrame:
    """Coverage of the worst tenths and of all rows at N = 500: mean over the nine sets."""
    part = frame[(frame["n"] == SIZE) & frame["problem"].isin(NINE)]
    ours = part.loc[part["method"] == REFITS, ["model", "problem", "repetition"]]
    part = part.merge(ours)  # plain split has more draws: compare on the same
    part = part[part["method"].isin((REFERENCE, *DEFAULTS))]
    names = ["by prediction", "by difficulty", f"coverage {LEVEL}"]
    by_set = part.groupby(["model", "method", "problem"])[names]
    table: pd.DataFrame = by_set.mean().groupby(["model", "method"]).mean()
    draws = by_set.sem().groupby(["model", "method"])[f"coverage {LEVEL}"]
    table["standard error"] = draws.agg(lambda errors: np.sqrt((errors**2).sum()) / len(errors))
    return table


def page() -> str:
    frame = flat(read_records())
    ratios = over_split(frame)
    repetitions = frame.groupby(["problem", "model"])["repetition"].nunique().min()
    known = [name for name in DEFAULTS if name in ratios]
    by_set = pd.DataFrame(ratios[known].groupby(DRAW[:-1]).mean().xs(SIZE, level="n"))
    seconds = frame.groupby(["method", "n"])["seconds"].median().unstack()
    models = [model for model in MODELS if model in set(frame["model"])]
    tables = [by_size(ratios, model) for model in models]
    parts = [
        "# Where should nearness be judged?",
        f"Generated by `make nearness-study` from stored records: at least {repetitions} draws of "
        f"each set and model; at most 2,000 training rows (two rows in five of a small set, and "
        f"as many to calibrate, so N = 500 means fewer there; N = 2,000 only where there are so "
        f"many); at most 1,000 test rows. Interval scores are over those of plain split on the "
        f"same draw: smaller is better. *{DEFAULT}* is `ConformalRegressor(model).calibrate(X, y)` "
        f"with `learning_part=None`; *training rows* hands over `X_train, y_train` too; "
        f"*left-out errors* sets `refits=5` besides (a forest has errors out of bag and is "
        f"not refitted), "
        f"which is what `fit` does by itself; *no units*, *no bias*, *neither* switch parts of "
        f"`ErrorModel` off. Spaces and constants were chosen on draws of {', '.join(NINE)}, those "
        f"of `ErrorModel` on the first two. Not used for that: {', '.join(ASIDE)}; but they were "
        f"looked at. Methods on inputs were recorded earlier, on ten draws, for four models.",
        "## `calibrate` alone: interval score over plain split, mean / worst set",
        markdown(of_defaults(frame, DEFAULT)),
        "## With left-out errors, as `fit` does: the same",
        markdown(of_defaults(frame, REFITS)),
        f"## All methods at N = {SIZE}, {LEVEL:.0%}, mean over the nine sets",
        "In brackets: difference from the defaults with left-out errors on the same draws ± its "
        "standard error.",
        markdown(all_methods(ratios)),
        f"## Coverage of the worst tenth of the test rows, N = {SIZE}, {LEVEL:.0%}",
        "Worst decile of the prediction, and of the difficulty (mean error of test rows near by); "
        "then coverage of all rows with its standard error. Mean over the nine sets.",
        markdown(deciles(frame)),
        f"## The defaults by set, N = {SIZE}, {LEVEL:.0%}",
        markdown(by_set.map(number)),
    ]
    for model, table in zip(models, tables, strict=True):
        parts += [
            f"## By number of calibration rows, {model}, {LEVEL:.0%}: mean / worst set",
            markdown(table),
        ]
    parts += [
        "## Seconds to calibrate and to predict (median)",
        "Several draws ran at a time: orders of magnitude only.",
        markdown(seconds.map(number).rename(columns=_size)),
    ]
    return "\n\n".join(parts) + "\n"


def _size(n: int) -> str:
    return f"N = {n}"


def number(value: float) -> str:
    """Three digits; nothing for what was not measured."""
    if np.isnan(value):
        return ""
    return "∞" if np.isinf(value) else f"{value:.3f}"


def main() -> None:
    text = page()
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
