"""Our own questions to the records: is the stronger guarantee free, what mends MNIST, who wins?"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np

from calliper.lab.evaluation import Records
from studies.experiments import FloatArray
from studies.experiments.deutschmann2024 import methods as names
from studies.experiments.deutschmann2024.results import chosen, draws, paper_blocks, value
from studies.experiments.deutschmann2024.verdict import Value

Results = dict[str, Records]


def guarantee_costs(results: Results) -> str:
    """FullRescaled beside JackknifeRescaled, both with ten neighbours, block by block."""
    heads = ("task", "N", "proved", "coverage", "IS, Full / Jackknife+", "interval score, ratio")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for stage, title, n in paper_blocks(results):
        records = results[stage]
        proved, covered = [], []
        for method in (names.FULL, names.OURS):
            rows = chosen(records, title=title, n=n, methods=[method]).rows
            if not rows:
                break
            proved.append(f"{rows[0]['guaranteed']:.3f}")
            covered.append(str(value(records, title, n, method, "coverage")))
        if len(proved) < 2:
            continue
        ratios = [
            _ratios(records, title, n, names.FULL, names.OURS, measure)
            for measure in ("mean_width", "interval_score")
        ]
        cells = [title, f"{n:,}", " against ".join(proved), " against ".join(covered)]
        cells += [
            f"{ratio.mean():.4f} ({ratio.min():.3f} to {ratio.max():.3f})" for ratio in ratios
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ratios(
    records: Records, title: str, n: int, mine: str, other: str, measure: str
) -> FloatArray:
    """Division by division."""
    one, two = (draws(records, title, n, method, measure) for method in (mine, other))
    return np.asarray(one / two)


def local_scales(results: Results) -> str:
    """Mean, root mean square and quantile of the neighbours' errors as the scale."""
    measures = {
        "r2_sqi": "R²_SQI",
        "interval_score": "interval score",
        "worst_by_width": "worst tenth by width",
    }
    heads = [f"{label}: mean / rms / quantile" for label in measures.values()]
    lines = ["| task | N | " + " | ".join(heads) + " |", "|---" * (2 + len(heads)) + "|"]
    for stage, title, n in paper_blocks(results):
        cells = [
            " / ".join(
                str(value(results[stage], title, n, method, measure))
                for method in (names.FULL, names.RMS, names.QUANTILE)
            )
            for measure in measures
        ]
        lines.append(f"| {title} | {n:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def dominance(results: Results, order: Sequence[str]) -> str:
    """Over all blocks: interval score against Split's, and how often a method is among the best.

    Among the best: within the two uncertainties, in quadrature, of the smallest.
    """
    blocks = paper_blocks(results)
    heads = ("method", "interval score / Split's", "worst block", "among the best", "blocks")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    best: dict[str, int] = {}
    for stage, title, n in blocks:
        scores = {m: value(results[stage], title, n, m, "interval_score") for m in order}
        known = {m: v for m, v in scores.items() if not np.isnan(v.mean)}
        least = min(known.values(), key=lambda v: v.mean, default=Value(nan, nan))
        for method, score in known.items():
            near = score.mean - least.mean <= np.hypot(score.error, least.error)
            best[method] = best.get(method, 0) + bool(near)
    for method in order:
        ratios = np.array([_over_split(results, block, method) for block in blocks])
        ratios = ratios[~np.isnan(ratios)]
        if len(ratios):
            mean = np.exp(np.log(ratios).mean())
            cells = [f"{mean:.3f}", f"{ratios.max():.2f}", f"{best[method]}", f"{len(ratios)}"]
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _over_split(results: Results, block: tuple[str, str, int], method: str) -> float:
    stage, title, n = block
    mine, split = (
        value(results[stage], title, n, m, "interval_score").mean for m in (method, names.SPLIT)
    )
    return mine / split
