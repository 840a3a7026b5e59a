"""The table: means, uncertainties, bold values, flags, and what cannot be shown as a number."""

import numpy as np
import pytest

from calliper import CalliperError
from calliper.lab.evaluation import Records, last_digit, one_sigma, summarise
from calliper.lab.metrics import MEASURES as REGISTERED
from studies.experiments import latex

NAN, INF = float("nan"), float("inf")
MEASURES = {name: measure.description() for name, measure in REGISTERED.items()}


def rows(method, values, *, problem="1D", n=500, level=0.95, status="ok", error=None, **more):
    """One row a split; ``values`` map measures to a value for each split."""
    splits = len(next(iter(values.values())))
    base = {"problem": problem, "method": method, "n_calibration": n, "n_test": 1000}
    base |= {"level": level, "status": status, "error": error, **more}
    return [
        {**base, "split": s, **{name: column[s] for name, column in values.items()}}
        for s in range(splits)
    ]


def records(*parts, measures=("coverage", "mean_width", "r2_sqi")):
    return Records(
        [row for part in parts for row in part], {name: MEASURES[name] for name in measures}
    )


def three(*columns):
    names = ("coverage", "mean_width", "r2_sqi")
    return dict(zip(names, columns, strict=True))


@pytest.fixture
def paper_like():
    nothing = three([NAN] * 3, [NAN] * 3, [NAN] * 3)
    return records(
        rows("J+", three([0.95, 0.96, 0.97], [0.17, 0.18, 0.19], [0.84, 0.87, 0.90])),
        rows("MAD|Split_*", three([0.94, 0.95, 0.96], [0.18, 0.19, 0.20], [NAN, 0.2, 0.3])),
        rows("LVD", three([0.99, 1.0, 1.0], [INF, 0.3, 0.3], [-9.0, -8.0, -7.0])),
        rows("J+", three([0.95] * 3, [1.5e7, 1.6e7, 1.7e7], [0.8] * 3), n=2000),
        rows("narrow", three([0.80, 0.81, 0.82], [1e6, 1e6, 1e6], [0.2, 0.5, 0.8]), n=2000),
        rows("J+", three([0.9, 0.95, 1.0], [1.0, 2.0, 3.0], [NAN] * 3), problem="a & b"),
        rows("bad", nothing, problem="a & b", status="failed", error="E: 5 %\nwrong"),
        rows("CQR", nothing, problem="a & b", status="skipped", error="no outputs"),
    )


def test_markdown(paper_like):
    assert summarise(paper_like).to_markdown() == (
        "| problem | N | method | coverage (≥ 0.95) | mean width ↓ | R²_SQI ↑ |\n"
        "|---|---|---|---|---|---|\n"
        "| 1D | 500 | J+ | 0.96(1) | **0.18(1)** | **0.87(3)** |\n"
        "|  |  | MAD\\|Split\\_\\* | 0.95(1) | **0.19(1)** | 0.25(5) [2/3] |\n"
        "|  |  | LVD | 0.997(5) | ∞ [1/3] | ≪ 0 |\n"
        "|  | 2000 | J+ | 0.950 | **1.6(1)e7** | **0.800** |\n"
        "|  |  | narrow | 0.81(1) † | 1.00e6 | 0.5(3) |\n"
        "| a & b | 500 | J+ | 0.95(5) | **2(1)** | – |\n"
        "|  |  | bad | failed | failed | failed |\n"
        "|  |  | CQR | skipped | skipped | skipped |\n"
        "\n"
        "In parentheses: the uncertainty of the last digit, 68th percentile of the distances of "
        "single splits from their mean. **Bold**: best of its group, or within the uncertainties "
        "of it. †: coverage below the level by more than three standard errors; widths not "
        "compared. "
        "[k/n]: defined, or infinite (∞), on k of n splits only. –: not defined (a constant width "
        "has no order).\n"
        "\n"
        "- bad on a & b: failed in 3 rows: E: 5 % wrong\n"
        "- CQR on a & b: skipped in 3 rows: no outputs"
    )


def test_latex(paper_like):
    text = latex.table(summarise(paper_like))
    assert text.splitlines()[:23] == [
        r"% needs \usepackage{booktabs, multirow}",
        r"% bad on a & b: failed in 3 rows: E: 5 % wrong",
        r"% CQR on a & b: skipped in 3 rows: no outputs",
        r"\begin{table}",
        r"  \centering",
        r"  \begin{tabular}{ccllll}",
        r"    \toprule",
        r"    Dataset & $N_{\mathrm{cal}}$ & Method & Cov. {\tiny $(\gtrsim 0.95)$} & "
        r"IS ${}^\downarrow$ & $R^2_{SQI}$ ${}^\uparrow$ \\",
        r"    \midrule",
        r"    \multirow{5}{*}{1D} & \multirow{3}{*}{500} & J+ & $0.96(1)$ & $\mathbf{0.18(1)}$ & "
        r"$\mathbf{0.87(3)}$ \\",
        r"     &  & MAD\textbar{}Split\_* & $0.95(1)$ & $\mathbf{0.19(1)}$ & $0.25(5)$ [2/3] \\",
        r"     &  & LVD & $0.997(5)$ & $\infty$ [1/3] & $\ll 0$ \\",
        r"    \cmidrule{2-6}",
        r"     & \multirow{2}{*}{2000} & J+ & $0.950$ & $\mathbf{1.6(1) \cdot 10^{7}}$ & "
        r"$\mathbf{0.800}$ \\",
        r"     &  & narrow & $0.81(1)^{\dagger}$ & $1.00 \cdot 10^{6}$ & $0.5(3)$ \\",
        r"    \midrule",
        r"    \multirow{3}{*}{a \& b} & \multirow{3}{*}{500} & J+ & $0.95(5)$ & "
        r"$\mathbf{2(1)}$ & -- \\",
        r"     &  & bad & \textit{failed} & \textit{failed} & \textit{failed} \\",
        r"     &  & CQR & \textit{skipped} & \textit{skipped} & \textit{skipped} \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        text.splitlines()[21],
        r"\end{table}",
    ]
    assert text.splitlines()[21].startswith(r"  \caption{In parentheses")
    assert "†" not in text and "∞" not in text and "≪" not in text


@pytest.mark.parametrize("character", list("\\&%$#_{}~^<>|"))
def test_names_are_escaped_in_latex(character):
    name = f"a{character}b"
    held = records(rows(name, {"coverage": [0.9]}, problem=name), measures=["coverage"])
    line = latex.table(summarise(held)).splitlines()[7]
    assert "a" in line and name not in line.replace("\\" + character, "")


def test_frame_holds_numbers(paper_like):
    frame = summarise(paper_like).to_frame()
    assert frame.index.names == ["problem", "n_calibration", "method"]
    assert frame.loc[("1D", 500, "J+"), "mean_width"] == pytest.approx(0.18)
    assert frame.loc[("1D", 500, "J+"), "mean_width_error"] == pytest.approx(0.01)
    assert frame.loc[("1D", 500, "LVD"), "mean_width"] == INF
    assert frame.loc[("a & b", 500, "bad")].isna().all()


def widths(**methods):
    held = [
        rows(name, {"coverage": [0.95] * 3, "mean_width": values})
        for name, values in methods.items()
    ]
    lines = summarise(records(*held, measures=("coverage", "mean_width"))).lines
    return {line.method for line in lines if line.entries["mean_width"].best}


def test_ties_within_the_uncertainties_in_quadrature_are_bold():
    a = [1.0, 1.3, 1.6]  # 1.3(3)
    assert widths(a=a, b=[1.39, 1.69, 1.99]) == {"a", "b"}  # 0.39 < 0.3 · √2
    assert widths(a=a, b=[1.44, 1.74, 2.04]) == {"a"}
    assert widths(a=[1.0] * 3, b=[1.0] * 3, c=[1.1] * 3) == {"a", "b"}


def test_alone_nothing_is_best():
    assert widths(a=[1.0, 2.0, 3.0]) == set()


def test_a_value_from_fewer_splits_is_not_best():
    assert widths(a=[0.1, NAN, 0.1], b=[1.0, 1.1, 1.2]) == {"b"}
    assert widths(a=[0.1, INF, 0.1], b=[1.0, 1.1, 1.2]) == {"b"}


def test_larger_is_better_where_it_is():
    held = records(
        rows("a", {"tau_si": [0.3, 0.31]}), rows("b", {"tau_si": [0.5, 0.51]}), measures=["tau_si"]
    )
    assert [line.entries["tau_si"].best for line in summarise(held).lines] == [False, True]


def flagged(coverage, **more):
    held = records(rows("m", {"coverage": coverage}, **more), measures=["coverage"])
    return summarise(held).lines[0].entries["coverage"].flagged


def test_coverage_is_flagged_below_the_level_beyond_chance_only():
    # One split of N = 500 and 1,000 test points scatters by 0.0119 about 0.95.
    assert not flagged([0.92]) and flagged([0.91])
    assert not flagged([0.944] * 4) and flagged([0.931] * 4)
    assert not flagged([0.99] * 10)
    # A method that scatters by more than the law needs a larger distance.
    assert not flagged([0.85, 0.95, 0.98])
    assert not flagged([NAN])


def test_valid_methods_are_hardly_ever_flagged():
    rng = np.random.default_rng(0)
    coverage = rng.binomial(1000, rng.beta(476, 25, size=(2000, 10))) / 1000
    assert np.mean([flagged(list(splits)) for splits in coverage]) < 0.006
    assert np.mean([flagged(list(splits - 0.03)) for splits in coverage]) > 0.99


def test_bootstrap_gives_the_error_of_the_mean():
    values = list(np.random.default_rng(0).normal(size=400))
    held = records(rows("m", {"mean_width": values}), measures=["mean_width"])
    splits, mean = (
        summarise(held, uncertainty=kind).lines[0].entries["mean_width"].error
        for kind in ("splits", "bootstrap")
    )
    assert splits == one_sigma(values)[1]
    assert mean == pytest.approx(splits / 20, rel=0.1)


def test_a_method_that_misses_is_not_best_though_its_coverage_is_not_shown():
    held = records(
        rows("misses", {"coverage": [0.5] * 3, "mean_width": [0.1, 0.2, 0.3]}),
        rows("covers", {"coverage": [0.95] * 3, "mean_width": [1.0, 1.1, 1.2]}),
        measures=("coverage", "mean_width"),
    )
    table = summarise(held, measures=["mean_width"])
    assert [line.entries["mean_width"].best for line in table.lines] == [False, True]
    assert "| misses | 0.2(1) † |" in table.to_markdown()
    assert "†: coverage below the level" in table.to_markdown()
    both = summarise(held).to_markdown()
    assert "| misses | 0.500 † | 0.2(1) |" in both and "| 0.950 | **1.1(1)** |" in both


def test_without_any_coverage_no_width_is_best_and_the_table_says_so():
    held = records(
        rows("a", {"mean_width": [0.1] * 3}),
        rows("b", {"mean_width": [1.0] * 3}),
        measures=["mean_width"],
    )
    table = summarise(held)
    assert not any(line.entries["mean_width"].best for line in table.lines)
    assert table.notes == ["mean_width: not compared, since no coverage was measured"]


def test_names_and_errors_leave_neither_a_comment_nor_a_list():
    name, error = "a\n\\input{x}", "E: <b> [x](y) *z*\r\n# head"
    held = records(
        rows(name, {"coverage": [NAN]}, problem="p\u2028q", status="failed", error=error),
        measures=["coverage"],
    )
    table = summarise(held)
    words = "a \\input{x} on p q: failed in 1 rows: E: <b> [x](y) *z* # head"
    assert latex.table(table).splitlines()[1] == f"% {words}"
    assert latex.table(table).splitlines()[2] == r"\begin{table}"
    assert table.to_markdown().splitlines()[-1] == (
        r"- a \\input{x} on p q: failed in 1 rows: E: \<b> \[x](y) \*z\* # head"
    )


def test_several_levels_make_groups_of_their_own():
    held = records(
        rows("a", {"coverage": [0.9]}, level=0.9), rows("a", {"coverage": [0.5]}, level=0.5),
        measures=["coverage"],
    )  # fmt: skip
    table = summarise(held).to_markdown()
    assert "| problem | N | level | method | coverage |" in table
    assert "| 1D | 500 | 0.9 | a | 0.900 |\n|  |  | 0.5 | a | 0.500 |" in table


def test_columns_by_default():
    own = {"mine": {"best": "smaller"}}
    part = rows("a", {name: [0.5] for name in [*MEASURES, "mine"]})
    names = list(summarise(Records(part, {**MEASURES, **own})).measures)
    first = ["coverage", "mean_width", "r2_sqi", "tau_sqi", "tau_si", "interval_score"]
    assert names == [*first, "fraction_infinite", "mine"]
    part[0]["fraction_infinite"] = 0.0
    assert list(summarise(Records(part, MEASURES)).measures) == first
    assert list(summarise(Records(part, MEASURES), measures=["tau_si"]).measures) == ["tau_si"]


def test_other_groups(paper_like):
    summary = summarise(paper_like, by=["problem"], measures=["mean_width"])
    entry = summary.lines[0].entries["mean_width"]
    assert (summary.lines[0].group, entry.of) == (("1D",), 6)
    assert entry.text == last_digit(*one_sigma([0.17, 0.18, 0.19, 1.5e7, 1.6e7, 1.7e7]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measures": ["width"]}, "measures must be a list of coverage, mean_width, r2_sqi"),
        ({"measures": "coverage"}, "measures must be a list of"),
        ({"by": ["dataset"]}, "by must be a list of problem"),
        ({"uncertainty": "sigma"}, "must be 'splits' or 'bootstrap'"),
    ],
)
def test_bad_input(paper_like, arguments, message):
    with pytest.raises(CalliperError, match=message):
        summarise(paper_like, **arguments)
    with pytest.raises(CalliperError, match="must not be empty"):
        summarise(Records([]))
