"""What the paper says in words, and what the issue asks, each with its numbers and an answer.

``check_quick`` holds a run at reduced size to those that do not hang on digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calliper.lab.evaluation import Records
from studies.experiments.deutschmann2024 import methods as names
from studies.experiments.deutschmann2024.config import COVERAGE
from studies.experiments.deutschmann2024.results import chosen, load, paper_blocks, value
from studies.experiments.deutschmann2024.verdict import Value

Results = dict[str, Records]
Block = tuple[str, str, int]


@dataclass(frozen=True)
class Finding:
    """A claim on one block of the table: the numbers, and whether they bear it out."""

    block: Block
    numbers: str
    holds: bool


@dataclass(frozen=True)
class Claim:
    """A sentence, and how to look it up; ``stages`` limits where it is made."""

    text: str
    look: Callable[[Results, Block], tuple[str, bool]]
    stages: tuple[str, ...] = ()
    smallest_n_only: bool = False

    def findings(self, results: Results) -> list[Finding]:
        """The claim on every block it is made for."""
        blocks = [b for b in paper_blocks(results) if not self.stages or b[0] in self.stages]
        if self.smallest_n_only:
            first = {b[0]: b for b in reversed(blocks)}
            blocks = [b for b in blocks if first[b[0]] == b]
        return [Finding(block, *self.look(results, block)) for block in blocks]


def _get(results: Results, block: Block, method: str, measure: str) -> Value:
    stage, title, n = block
    return value(results[stage], title, n, method, measure)


def _below(mine: Value, other: Value) -> bool:
    """Smaller, undefined counting as not."""
    return mine.mean < other.mean


def _keeps_coverage(results: Results, block: Block) -> tuple[str, bool]:
    found = _get(results, block, names.OURS, "coverage")
    return str(found), abs(found.mean - COVERAGE) < 0.01 + 0.3 * found.error


def _lvd_covers_too_much(results: Results, block: Block) -> tuple[str, bool]:
    lvd, ours = (_get(results, block, m, "coverage") for m in (names.LVD_TUNED, names.OURS))
    return f"{lvd} against {ours}", lvd.mean > max(COVERAGE, ours.mean)


def _narrower_than_lvd(results: Results, block: Block) -> tuple[str, bool]:
    lvd, ours = (_get(results, block, m, "mean_width") for m in (names.LVD_TUNED, names.OURS))
    return f"IS {ours} against {lvd}", _below(ours, lvd)


def _better_scaled_than_lvd(results: Results, block: Block) -> tuple[str, bool]:
    lvd, ours = (_get(results, block, m, "r2_sqi") for m in (names.LVD_TUNED, names.OURS))
    # Where LVD has one width only, it has no R²_SQI at all.
    return f"R²_SQI {ours} against {lvd}", not ours.mean <= lvd.mean


def _median_does_not_adapt(results: Results, block: Block) -> tuple[str, bool]:
    found = _get(results, block, names.MAD_MEDIAN, "r2_sqi")
    return f"R²_SQI {found}", found.mean < -2


def _follows_errors_better_than_mad(results: Results, block: Block) -> tuple[str, bool]:
    mad, ours = (_get(results, block, m, "tau_si") for m in (names.MAD_KNN, names.OURS))
    return f"τ_SI {ours} against {mad}", _below(mad, ours)


def _base_is_often_infinite(results: Results, block: Block) -> tuple[str, bool]:
    found = _get(results, block, names.LVD_BASE, "fraction_infinite")
    return f"{found} infinite", found.mean > 0.1


def _mean_scale_fails(results: Results, block: Block) -> tuple[str, bool]:
    found = _get(results, block, names.OURS, "r2_sqi")
    return f"R²_SQI {found}", found.mean < 0


CLAIMS = (
    Claim("JackknifeRescaled covers 95 %, though only 90 % is proved", _keeps_coverage),
    Claim("LVD covers too much", _lvd_covers_too_much),
    Claim("where data are scarce, JackknifeRescaled is narrower than LVD", _narrower_than_lvd,
          smallest_n_only=True),
    Claim("where data are scarce, its widths are nearer the errors than LVD's",
          _better_scaled_than_lvd, smallest_n_only=True),
    Claim("MADSplit with the median length scale does not adapt", _median_does_not_adapt),
    Claim("on 1-D and AlphaSeq widths follow errors better than MADSplit's",
          _follows_errors_better_than_mad, stages=("one_dimensional", "alphaseq")),
    Claim("LVD's own metric leads to many infinite intervals, sometimes a large majority",
          _base_is_often_infinite, stages=("solubility", "clearance", "alphaseq", "mnist")),
    Claim("on MNIST the size of the intervals is off: R²_SQI is far below zero",
          _mean_scale_fails, stages=("mnist",)),
)  # fmt: skip


def check_quick(folder: Path) -> None:
    """Raise unless a quick run went through and points the way the claims do."""
    results = load(folder)
    missing = {"one_dimensional", "solubility", "clearance", "mnist"} - set(results)
    _require(not missing, f"no records of {', '.join(sorted(missing))}")
    for stage, records in results.items():
        _require(not records.failures, f"{stage}: {len(records.failures)} rows have errors")
        for title, n in sorted({(row["problem"], row["n_calibration"]) for row in records}):
            _check_block(records, title, n)
    one = results["one_dimensional"]
    n = one.rows[0]["n_calibration"]
    for name in ("tau_si", "r2_sqi"):
        median, ours = (value(one, "1-D", n, m, name).mean for m in (names.MAD_MEDIAN, names.OURS))
        _require(ours > median + 0.2, f"1-D: {name} of ours {ours:.2f}, of Median {median:.2f}")
    overfitting = "1-D, overfitting forest"
    mad, ours = (
        value(one, overfitting, n, m, "mean_width").mean for m in (names.MAD_KNN, names.OURS)
    )
    _require(mad > ours, f"{overfitting}: MADSplit is narrower ({mad:.2f} < {ours:.2f})")
    for stage in ("one_dimensional", "clearance", "mnist"):
        row = results[stage].rows[0]
        tau = value(results[stage], row["problem"], row["n_calibration"], names.OURS, "tau_si")
        _require(tau.mean > 0.1, f"{stage}: widths do not follow errors, τ_SI {tau}")


def _check_block(records: Records, title: str, n: int) -> None:
    """Coverage near its level, LVD not below, Split constant, both of ours alike."""
    room = 0.02 + (0.6 / n**0.5)
    for method in (names.SPLIT, names.OURS, names.FULL, names.RMS, names.MAD_KNN):
        coverage = value(records, title, n, method, "coverage").mean
        _require(abs(coverage - COVERAGE) < room, f"{title}: {method} covers {coverage:.3f}")
    lvd = value(records, title, n, names.LVD_TUNED, "coverage").mean
    _require(lvd > COVERAGE - 0.02, f"{title}: LVD covers {lvd:.3f}")
    split = chosen(records, title=title, n=n, methods=[names.SPLIT])
    _require(all(row["tau_si"] != row["tau_si"] for row in split), f"{title}: Split has a τ_SI")
    full, ours = (
        value(records, title, n, method, "mean_width").mean for method in (names.FULL, names.OURS)
    )
    _require(abs(full / ours - 1) < 0.1, f"{title}: widths {full:.3g} and {ours:.3g} differ")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(f"the quick run does not bear out what it should: {otherwise}")
