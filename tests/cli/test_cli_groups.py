"""``calliper interval`` with groups and with a confidence."""

import numpy as np
import pandas as pd
import pytest

from calliper import Split
from calliper.calibrators import Grouped
from calliper.guarantees import confident_rank


@pytest.fixture
def sites(tmp_path):
    """cal.csv and new.csv with a column of sites, the last of which is new."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y_pred": rng.normal(size=90), "site": np.tile(["a", "b", "c"], 30)})
    frame["y"] = frame["y_pred"] + rng.normal(size=90) * np.tile([1, 2, 3], 30)
    frame[frame["site"] != "c"].to_csv(tmp_path / "cal.csv", index=False)
    frame.drop(columns="y").to_csv(tmp_path / "new.csv", index=False)
    return tmp_path


ASK = [
    "interval",
    "--calibration",
    "cal.csv",
    "--new",
    "new.csv",
    "--target",
    "y",
    "--prediction",
    "y_pred",
]


@pytest.mark.parametrize("output", ["out.csv", "out.parquet"])
def test_groups_are_those_of_python(calliper, sites, output):
    done = calliper(*ASK, "--method", "split", "--group", "site", "--output", output)
    assert done.returncode == 0, done.stderr
    cal, new = pd.read_csv(sites / "cal.csv"), pd.read_csv(sites / "new.csv")
    method = Grouped(Split()).fit(cal[["y_pred"]], abs(cal.y - cal.y_pred), groups=cal.site)
    with pytest.warns(UserWarning, match="'c' has 0"):
        radius = method.predict_radius(new[["y_pred"]], 0.9, groups=new.site)
    read = pd.read_csv if output.endswith("csv") else pd.read_parquet
    np.testing.assert_allclose(read(sites / output)["upper"] - new.y_pred, radius)
    assert "'c' has 0 (9 more needed)" in done.stderr
    assert "Split in each of the 2 groups" in done.stderr


def test_a_confidence_is_that_of_python_or_refused(calliper, sites):
    how = [*ASK, "--output", "out.csv", "--confidence", "0.95"]
    done = calliper(*how, "--method", "split")
    assert done.returncode == 0 and "95 % of draws" in done.stderr
    cal, out = pd.read_csv(sites / "cal.csv"), pd.read_csv(sites / "out.csv")
    expected = np.sort(abs(cal.y - cal.y_pred))[confident_rank(0.9, 60, 0.95) - 1]
    np.testing.assert_allclose(out.upper - out.y_pred, expected)
    done = calliper(*how)
    assert done.returncode != 0 and "does not support confidence" in done.stderr
    assert "Leave out --confidence" in done.stderr and "'calliper methods'" in done.stderr


def test_bad_groups(calliper, sites):
    how = [*ASK, "--output", "out.csv", "--group"]
    done = calliper(*how, "town")
    assert done.returncode != 0 and "no column 'town'" in done.stderr
    text = (sites / "new.csv").read_text()
    (sites / "new.csv").write_text(text.replace(",b", ",", 1))
    done = calliper(*how, "site")
    assert done.returncode != 0 and "at position 1" in done.stderr


@pytest.fixture
def shifted(tmp_path):
    """train.csv and cal.csv around 0, new.csv around 1; errors grow with x, w is the weight."""
    rng = np.random.default_rng(0)
    for name, n, centre in (("train", 300, 0.0), ("cal", 200, 0.0), ("new", 150, 1.0)):
        x = centre + rng.normal(size=n)
        frame = pd.DataFrame({"x": x, "y_pred": 2 * x, "w": np.exp(x), "site": np.arange(n) % 2})
        frame["y"] = frame["y_pred"] + rng.normal(size=n) * np.exp(x)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def test_weights_from_a_column_are_those_of_python(calliper, shifted):
    how = [*ASK, "--features", "x", "--output", "out.csv"]
    done = calliper(*how, "--method", "split", "--weight", "w", "--coverage", 0.8)
    assert done.returncode == 0, done.stderr
    cal, out = pd.read_csv(shifted / "cal.csv"), pd.read_csv(shifted / "out.csv")
    split = Split().fit(cal[["x"]], abs(cal.y - cal.y_pred), weights=cal.w)
    expected = split.predict_radius(out[["x"]], 0.8, weights=out.w)
    np.testing.assert_allclose(out.upper - out.y_pred, expected)
    assert "With these weights, 200 calibration rows are worth" in done.stderr
    done = calliper(*how, "--weight", "w", "--group", "site", "--explain")
    assert "density of new inputs" in done.stderr
    assert done.returncode == 0 and "in each of the 2 groups" in done.stderr
    done = calliper(*how, "--weight", "w", "--method", "lcp", "--training", "train.csv")
    assert done.returncode != 0 and "--method lcp does not use --weight: see" in done.stderr


def test_weights_are_learnt_from_rows_of_now(calliper, shifted):
    how = [*ASK, "--features", "x", "--output", "out.csv", "--shifted-to", "new.csv"]
    assert "needs --training" in calliper(*how).stderr
    how += ["--training", "train.csv"]
    assert "cannot be combined" in calliper(*how, "--weight", "w").stderr
    same = [*how[:-3], "train.csv", *how[-2:]]
    assert "is also a file of calibration or training rows" in calliper(*same).stderr
    done = calliper(*how, "--method", "split")
    assert done.returncode == 0, done.stderr
    out = pd.read_csv(shifted / "out.csv")
    inside = (out.lower <= out.y) & (out.y <= out.upper)
    assert inside.mean() > 0.9 - 4 * np.sqrt(0.09 / 150) and "are worth" in done.stderr
    plain = calliper(*ASK, "--features", "x", "--output", "plain.csv", "--method", "split")
    assert plain.returncode == 0
    out = pd.read_csv(shifted / "plain.csv")
    assert ((out.lower <= out.y) & (out.y <= out.upper)).mean() < inside.mean() - 0.05
