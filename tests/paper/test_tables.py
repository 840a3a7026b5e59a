import numpy as np
import pytest

from calliper.lab.evaluation import Records
from studies.experiments.deutschmann2024 import methods as names
from studies.experiments.deutschmann2024 import page, questions, tables, tabular_summary
from studies.experiments.deutschmann2024.claims import CLAIMS
from studies.experiments.deutschmann2024.measures import MEASURES
from studies.experiments.deutschmann2024.results import load, value

DESCRIBED = {name: measure.description() for name, measure in MEASURES.items()}


def rows(title, n, method, **means):
    """Three divisions whose values lie 0.01 around the means."""
    return [
        {
            "problem": title, "method": method, "n_calibration": n, "n_test": 100, "split": split,
            "level": 0.95, "status": "ok", "error": None, "warnings": [], "seconds_fit": 0.0,
            "seconds_predict": 0.0, "guaranteed": 0.9, **dict.fromkeys(MEASURES, float("nan")),
            **{name: mean + 0.01 * (split - 1) for name, mean in means.items()},
        }
        for split in range(3)
    ]  # fmt: skip


PAPER = {"coverage": 0.96, "mean_width": 0.36, "r2_sqi": 0.87, "tau_sqi": 0.3, "tau_si": 0.35}


@pytest.fixture
def folder(tmp_path):
    found = rows("1-D", 500, names.OURS, **PAPER)
    found += rows("1-D", 500, names.MAD_KNN, **{**PAPER, "r2_sqi": -5.0})
    found += rows("1-D, overfitting forest", 500, names.OURS, **PAPER)
    Records(found, DESCRIBED, []).to_json(tmp_path / "one_dimensional.json")
    return tmp_path


def test_values_stand_beside_the_papers(folder):
    text = tables.markdown(tables.compare(load(folder), [names.OURS]))
    (row,) = [line for line in text.splitlines() if line.startswith("| 1-D ")]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[:3] == ["1-D", "500", names.OURS]
    assert cells[3] == "0.96(1) · 0.96(1) ✓"
    assert cells[4] == "0.180(5) · 0.18(1) ✓"  # the paper's half-width
    assert cells[6].startswith("0.30(1) · 0.91(4) ▼<sup>")


def test_methods_that_the_paper_does_not_print_are_left_out(folder):
    compared = tables.compare(load(folder), [names.OURS, names.FULL, names.MAD_KNN])
    assert [row.method for row in compared] == [names.OURS, names.MAD_KNN]


def test_the_tally_counts_cells(folder):
    counted = tables.tally(tables.compare(load(folder), [names.OURS, names.MAD_KNN]))
    assert "| 1-D | 2 of 2 | 2 of 2 | 1 of 2 | 0 of 2 | 2 of 2 | 7 of 10 |" in counted


def test_latex_has_a_line_for_each_row(folder):
    text = tables.latex(tables.compare(load(folder), [names.OURS, names.MAD_KNN]))
    assert text.count(r"\checkmark") == 7
    assert r"\ll 0" in text and "≪" not in text
    assert text.count(r" \\") == 3


def test_a_value_says_on_how_many_divisions_it_is_defined(folder):
    records = load(folder)["one_dimensional"]
    records.rows[0]["tau_si"] = float("nan")
    assert str(value(records, "1-D", 500, names.OURS, "tau_si")) == "0.355(5) [2/3]"
    assert np.isnan(value(records, "1-D", 500, names.SPLIT, "tau_si").mean)


def test_quick_tables_stay_in_their_folder(folder):
    page.write(folder, quick=True)
    written = sorted(path.name for path in (folder / "tables").iterdir())
    assert "main.md" in written and "variants.tex" in written
    assert "overfitting forest" in (folder / "tables" / "variants.md").read_text()


def test_blocks_of_the_page_are_replaced_and_words_stay():
    before = "words\n<!-- main -->\nold\n<!-- end main -->\nmore\n<!-- other -->\nkept\n"
    after = page.filled(before, {"main": r"new \1", "absent": "nothing"})
    assert after == before.replace("old", r"new \1")
    assert page.filled(before.replace("old\n", ""), {"main": r"new \1"}) == after


def test_claims_find_their_numbers(folder):
    covers = CLAIMS[0].findings(load(folder))
    assert [(f.block, f.numbers, f.holds) for f in covers] == [
        (("one_dimensional", "1-D", 500), "0.96(1)", True)
    ]


def test_ratios_to_split_over_tables():
    found = []
    for title, factor in (("a", 2.0), ("b", 8.0)):
        found += rows(title, 60, names.SPLIT, interval_score=1.0, mean_width=1.0, coverage=0.9)
        found += rows(title, 60, names.OURS, interval_score=factor, mean_width=1.0, coverage=0.9)
    text = tabular_summary.markdown(Records(found, DESCRIBED, []), [names.OURS, names.SPLIT])
    ours = next(line for line in text.splitlines() if names.OURS in line)
    assert "| 60 (2 tables) |" in ours and "| 4.000 | 0 of 2 |" in ours


def test_our_questions_are_answered_from_records():
    found = rows("1-D", 500, names.SPLIT, interval_score=2.0)
    found += rows("1-D", 500, names.OURS, interval_score=1.0, mean_width=1.0, coverage=0.95)
    found += rows("1-D", 500, names.FULL, interval_score=1.005, mean_width=0.5, coverage=0.95)
    results = {"one_dimensional": Records(found, DESCRIBED, [])}
    costs = questions.guarantee_costs(results)
    assert "| 1-D | 500 | 0.900 against 0.900 | 0.95(1) against 0.95(1) | 0.5" in costs
    ranked = questions.dominance(results, [names.OURS, names.FULL, names.SPLIT, names.RMS])
    assert f"| {names.OURS} | 0.500 | 0.50 | 1 | 1 |" in ranked
    assert f"| {names.FULL} | 0.502 | 0.50 | 1 | 1 |" in ranked  # within the uncertainties
    assert f"| {names.SPLIT} | 1.000 | 1.00 | 0 | 1 |" in ranked
    assert names.RMS not in ranked
    assert "| 1-D | 500 | – / – / – |" in questions.local_scales(results)
