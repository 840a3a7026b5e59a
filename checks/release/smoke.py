"""A first look at an installed calliper without any extra; run by check.py in a fresh environment.

``python -I smoke.py``: isolated, so that no checkout is imported by accident.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

EXTRAS = ("bokeh", "click", "dask", "jinja2", "matplotlib", "pandas", "pyarrow", "rich", "torch")


def library() -> None:
    """Calibrate, predict, save, load: the same intervals, and most targets inside."""
    import numpy as np
    from sklearn.ensemble import RandomForestRegressor

    import calliper

    assert "site-packages" in str(calliper.__file__), calliper.__file__
    assert Path(calliper.__file__).with_name("py.typed").is_file()
    for name in dir(calliper):  # every topic is loaded, none needs an extra
        getattr(calliper, name)
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1500, 2))
    y = X[:, 0] * rng.normal(size=1500)
    train, cal, new = np.split(np.arange(1500), [500, 1000])
    model = RandomForestRegressor(20, min_samples_leaf=10, random_state=0).fit(X[train], y[train])
    found = calliper.ConformalRegressor(model).calibrate(
        X[cal], y[cal], X_train=X[train], y_train=y[train]
    )
    intervals = found.predict_interval(X[new], coverage=0.9)
    assert 0.85 <= intervals.contains(y[new]).mean() <= 0.95
    assert np.ptp(intervals.width) > 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forest.calliper"
        calliper.save(found, path)
        again = calliper.load(path, model).predict_interval(X[new], coverage=0.9)
    assert np.array_equal(intervals.lower, again.lower)
    assert np.array_equal(intervals.upper, again.upper)


def command_line() -> None:
    """Without the extra, one line that names it, and code 2; as a module and as a script."""
    script = shutil.which("calliper", path=sysconfig.get_path("scripts"))
    for command in ([sys.executable, "-I", "-m", "calliper"], [str(script)]):
        done = subprocess.run([*command, "demo"], capture_output=True, text=True, check=False)
        assert done.returncode == 2, done
        assert 'pip install "calliper[cli]"' in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


if __name__ == "__main__":
    there = [name for name in EXTRAS if find_spec(name) is not None]
    assert not there, f"not a bare environment: it has {', '.join(there)}"
    library()
    command_line()
    print("import, calibrate, predict, save, load, command line: fine")
