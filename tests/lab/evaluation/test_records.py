"""Rows that can be kept, joined and read again."""

import json

import numpy as np
import pytest

from calliper import CalliperError, Split
from calliper.lab.evaluation import FailedTrialsWarning, Records, evaluate
from cases.evaluation import Failing, fan, without_time


@pytest.fixture(scope="module")
def records():
    with pytest.warns(FailedTrialsWarning):
        return evaluate(
            fan(), {"Split": Split(), "failing": Failing()}, n_splits=2, n_calibration=[5, 40]
        )


def test_json_round_trip(records, tmp_path):
    path = tmp_path / "records.json"
    text = records.to_json(path)
    assert path.read_text() == text

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    json.loads(text, parse_constant=refuse)
    for read in (Records.from_json(text), Records.from_json(path), Records.from_json(str(path))):
        assert without_time(read) == without_time(records)
        assert (read.measures, read.runs) == (records.measures, records.runs)
    assert np.isinf(Records.from_json(text).rows[0]["mean_width"])


def test_what_is_needed_to_repeat_a_run_is_kept(records):
    run = records.runs[0]
    assert (run["coverage"], run["n_splits"], run["random_state"]) == ([0.9], 2, 0)
    assert {"calliper", "numpy", "python", "scikit-learn"} <= run["versions"].keys()
    assert run["methods"] == {"Split": "Split()", "failing": "Failing()"}
    assert records.measures["tau_si"]["best"] == "larger"


def test_frame(records):
    frame = records.to_frame()
    assert len(frame) == len(records) == 8
    assert set(frame["status"]) == {"ok", "failed"}
    assert frame.loc[frame["status"] == "failed", "coverage"].isna().all()


def test_where_and_failures(records):
    assert len(records.where(method="Split", n_calibration=40)) == 2
    assert {row["method"] for row in records.failures} == {"failing"}


@pytest.mark.parametrize("text", ["{", "{}", '{"rows": 3}'])
def test_other_text_is_refused(text):
    with pytest.raises(CalliperError, match=r"what Records\.to_json writes"):
        Records.from_json(text)
