"""Train a model, calibrate it, and keep both: the folder that the service starts from.

    python examples/service/train.py FOLDER

``model.skops`` is the model, in scikit-learn's safe format; ``intervals.calliper`` is what was
calibrated. Neither runs anything when it is opened.
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import pandas  # noqa: F401 (the rows are a frame)
    import skops.io
except ImportError as error:
    raise SystemExit(f"{error}: the service needs pip install 'calliper[service]'.") from error
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

import calliper
from calliper import ConformalRegressor


def train(folder: Path) -> None:
    """Write both files."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X_train, X_cal, y_train, y_cal = train_test_split(X.astype(float), y, random_state=0)
    model = HistGradientBoostingRegressor(max_iter=60, random_state=0).fit(X_train, y_train)
    conformal = ConformalRegressor(model, random_state=0).calibrate(X_cal, y_cal)
    folder.mkdir(parents=True, exist_ok=True)
    skops.io.dump(model, folder / "model.skops")
    calliper.save(conformal, folder / "intervals.calliper")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("name the folder to write to: python examples/service/train.py FOLDER")
    train(Path(sys.argv[1]))
    print(f"model.skops and intervals.calliper are in {sys.argv[1]}")
