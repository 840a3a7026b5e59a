"""What cannot be saved, read or matched is refused by name; nothing is left behind."""

import errno
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import calliper
from calliper import KNN, ConformalRegressor, JackknifeRescaled, Split, _writing
from calliper.calibrators import MADSplit
from calliper.exceptions import (
    CalliperError,
    DamagedFileError,
    NewerFormatError,
    OtherModelError,
)
from cases import kept

X, Y = kept.rows(120)
RIDGE = Ridge().fit(X[:60], Y[:60])


def halves(X):
    """A space of the user's own."""
    return np.asarray(X)[:, :1] / 2


class Shift(TransformerMixin, BaseEstimator):
    """A transformer of the user's own."""

    def fit(self, X, y=None):
        self.mean_ = np.mean(X, axis=0)
        return self

    def transform(self, X):
        return np.asarray(X) - self.mean_


class OwnKNN(KNN):
    """A kernel of the user's own."""


def ends(made, X=X, **asked):
    return np.array([*made.predict_interval(X, **asked)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept.calliper"


@pytest.fixture
def ridge(path):
    made = ConformalRegressor(RIDGE).calibrate(X[60:], Y[60:])
    made.predict_interval(X[:5])
    calliper.save(made, path)
    return made


def rewritten(path, change):
    """The file again, with its JSON changed and a hash that is right."""
    from checks.fuzzing.files import members_of, rehashed

    members = members_of(path.read_bytes())
    header, whole = (json.loads(members[name]) for name in ("header", "object"))
    change(header, whole)
    members["header"], members["object"] = (json.dumps(each).encode() for each in (header, whole))
    path.write_bytes(rehashed(members))


def test_three_lines(ridge, path):
    again = calliper.load(path, RIDGE)
    assert np.array_equal(ends(again), ends(ridge))
    calliper.save(again, path)  # what was loaded can be saved, and is still compared
    with pytest.raises(OtherModelError):
        calliper.load(path, Ridge(alpha=99).fit(X, Y))


@pytest.mark.parametrize(
    "other",
    [
        Ridge(alpha=50.0).fit(X[:60], Y[:60]),
        Ridge().fit(X[:40], Y[:40]),
        RandomForestRegressor(5, random_state=0).fit(X[:60], Y[:60]),
    ],
    ids=["parameters", "retrained", "class"],
)
@pytest.mark.usefixtures("ridge")
def test_another_model(path, other):
    with pytest.raises(
        OtherModelError,
        match=r"(differently|failed).*made for Ridge\(alpha=1|made for a .*Ridge: pass",
    ):
        calliper.load(path, other)


def test_an_object_that_is_no_estimator(path):
    boosted = GradientBoostingRegressor(n_estimators=5).fit(X[:60], Y[:60])
    calliper.save(ConformalRegressor(boosted).calibrate(X[60:], Y[60:]), path)
    with pytest.raises(OtherModelError, match=r"Namespace, .*made for a .*Gradient") as refused:
        calliper.load(path, SimpleNamespace(predict=len))
    assert "__sklearn_tags__" not in str(refused.value)


def test_another_class_that_lacks_what_is_read_from_the_model(path):
    forest = RandomForestRegressor(5, random_state=0).fit(X[:60], Y[:60])
    calliper.save(ConformalRegressor(forest).calibrate(X[60:], Y[60:]), path)
    with pytest.raises(OtherModelError, match=r"is a .*Ridge, .* made for a .*RandomForest"):
        calliper.load(path, RIDGE)


@pytest.mark.usefixtures("ridge")
def test_other_columns(path):
    wider = Ridge().fit(np.hstack([X, X])[:60], Y[:60])
    with pytest.raises(OtherModelError, match=r"failed on the rows.*4 features"):
        calliper.load(path, wider)


def test_another_class_where_no_row_could_be_kept(path):
    times = pd.DataFrame({"x": X[:, 0], "at": pd.date_range("2024", periods=120, tz="UTC")})
    calliper.save(
        ConformalRegressor(kept_model, Split(), embed="prediction").calibrate(times, Y), path
    )
    calliper.load(path, kept_model)
    with pytest.raises(OtherModelError, match=r"is a sklearn.*made for a .*kept_model"):
        calliper.load(path, RIDGE)


def kept_model(X):
    return np.asarray(X["x"], dtype=float)


@pytest.mark.usefixtures("ridge")
def test_models_that_are_missing_or_not_needed(path, tmp_path):
    with pytest.raises(CalliperError, match=r"but not its model: pass the fitted"):
        calliper.load(path)
    alone = tmp_path / "alone.calliper"
    calliper.save(Split().fit(X, np.abs(Y)), alone)
    with pytest.raises(CalliperError, match=r"without a model: leave out model="):
        calliper.load(alone, RIDGE)


@pytest.mark.usefixtures("ridge")
def test_a_newer_format(path):
    rewritten(path, lambda header, whole: header.update(format=99))
    with pytest.raises(NewerFormatError, match=r"has format 99.*reads formats up to 4: update"):
        calliper.load(path, RIDGE)


def test_what_was_never_calibrated(path):
    for each in (ConformalRegressor(RIDGE), Split()):
        with pytest.raises(NotFittedError):
            calliper.save(each, path)
    with pytest.raises(TypeError, match=r"needs a calibrated ConformalRegressor.*got a Ridge"):
        calliper.save(RIDGE, path)
    with pytest.raises(TypeError, match=r"as in load\(path, model\); got Ridge"):
        calliper.load(RIDGE, path)
    assert not list(path.parent.iterdir())


def test_functions_are_brought_again_and_known_by_their_answers(path):
    made = ConformalRegressor(RIDGE, embed=lambda X: np.asarray(X)[:, :1])
    made.calibrate(X[60:], Y[60:])
    calliper.save(made, path)
    with pytest.raises(
        CalliperError,
        match=r"as embed, which cannot be stored in a file: pass the same again as "
        r"embed=",
    ):
        calliper.load(path, RIDGE)
    again = calliper.load(path, RIDGE, embed=lambda X: np.asarray(X)[:, :1])
    assert np.array_equal(ends(again), ends(made))
    with pytest.raises(OtherModelError, match="locates the 5 rows"):
        calliper.load(path, RIDGE, embed=halves)
    assert any("embed=" in line for line in calliper.files.inspect(path).describe())


def test_classes_of_ones_own(path):
    shifted = ConformalRegressor(RIDGE, embed=Shift())
    shifted.calibrate(X[60:], Y[60:], X_train=X[:60], y_train=Y[:60])
    calliper.save(shifted, path)
    again = calliper.load(path, RIDGE, embed=shifted.embedding_.transformer)
    assert np.array_equal(ends(again), ends(shifted))
    near = ConformalRegressor(RIDGE, JackknifeRescaled(OwnKNN(5))).calibrate(X[60:], Y[60:])
    calliper.save(near, path)
    with pytest.raises(CalliperError, match=r"pass the same again as bring=\{'kernel"):
        calliper.load(path, RIDGE)
    with pytest.raises(TypeError, match=r"bring must be a dict"):
        calliper.load(path, bring=["Split"])


def test_a_regressor_of_ones_own_is_brought_fitted_or_as_it_was(path):
    tree = DecisionTreeRegressor(max_depth=2, random_state=0)
    known = {"training": (X[:60], np.abs(Y[:60]))}
    made = MADSplit(tree).fit(X[60:], np.abs(Y[60:]), **known)
    expected = made.predict_radius(X, 0.8)
    calliper.save(made, path)
    for brought in (tree, made.scale_):
        again = calliper.load(path, bring={"scale": brought})
        assert np.array_equal(again.predict_radius(X, 0.8), expected)
    with pytest.raises(OtherModelError, match=r"gives radii .*Pass what it was calibrated with"):
        calliper.load(path, bring={"scale": DecisionTreeRegressor(max_depth=5, random_state=0)})


@pytest.mark.parametrize("fails_at", range(0, 13, 2))
def test_a_full_disk_leaves_the_old_file_and_nothing_else(ridge, path, monkeypatch, fails_at):
    before = path.read_bytes()

    class Full(io.FileIO):
        left = fails_at

        def write(self, data):
            if Full.left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            Full.left -= 1
            return super().write(data)

    monkeypatch.setattr(_writing, "open", Full, raising=False)
    other = ConformalRegressor(RIDGE, Split()).calibrate(X[60:], Y[60:])
    with pytest.raises(CalliperError, match=r"No space left"):
        calliper.save(other, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_no_permission(ridge, path):
    path.parent.chmod(0o500)
    try:
        with pytest.raises(CalliperError, match=r"Permission denied.*write permission"):
            calliper.save(ridge, path.parent / "other.calliper")
    finally:
        path.parent.chmod(0o700)


def test_permission_is_refused_by_name(ridge, path, monkeypatch):
    def forbidden(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "open", forbidden)
    monkeypatch.setattr(_writing, "open", forbidden, raising=False)
    with pytest.raises(CalliperError, match=r"Permission denied.*write permission"):
        calliper.save(ridge, path)
    with pytest.raises(CalliperError, match=r"cannot be read: Permission denied"):
        calliper.load(path, RIDGE)


def test_paths_that_lead_nowhere(ridge, tmp_path):
    for bad in (tmp_path / "no" / "x", tmp_path, "", ".", "a\0b", "/", tmp_path / ("x" * 300)):
        with pytest.raises(CalliperError, match=r"cannot write"):
            calliper.save(ridge, bad)
    for bad in (tmp_path, "a\0b"):
        with pytest.raises(CalliperError, match=r"cannot be read"):
            calliper.load(bad, RIDGE)
    for read in (calliper.load, calliper.files.inspect):
        with pytest.raises(FileNotFoundError, match=r"there is no file .*no': check the path"):
            read(tmp_path / "no")
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n")
    with pytest.raises(DamagedFileError, match="it is truncated, or it was not written by"):
        calliper.files.inspect(tmp_path / "rows.csv")
    assert not list(tmp_path.glob(".*"))


def test_a_link_stays_a_link(ridge, path, tmp_path):
    link = tmp_path / "current"
    link.symlink_to(path)
    path.write_bytes(b"old")
    calliper.save(ridge, link)
    assert link.is_symlink() and path.stat().st_size > 1000
    calliper.load(link, RIDGE)


@pytest.mark.skipif(os.name == "nt", reason="there are no such modes")
def test_a_private_file_is_private_while_it_is_rewritten_too(tmp_path):
    before = os.umask(0o022)
    try:
        for mode in (0o600, 0o640, 0o400, 0o666, None):  # None: there is no file yet
            path = tmp_path / str(mode)
            if mode is not None:
                path.touch()
                path.chmod(mode)
            with _writing.whole_file(path) as handle:
                handle.write(b"secret")
                open_to = stat.S_IMODE(os.stat(handle.name).st_mode)
                assert not open_to & ~(0o644 if mode is None else mode | 0o600)
            assert stat.S_IMODE(path.stat().st_mode) == (0o644 if mode is None else mode)
    finally:
        os.umask(before)


@pytest.mark.parametrize("what", ["text", "empty", "npz", "zip", "cut", "flipped"])
def test_other_files(ridge, path, what):
    data = bytearray(path.read_bytes())
    if what == "npz":
        np.savez(path.with_suffix(".npz"), a=np.arange(3))
    elif what == "zip":
        with zipfile.ZipFile(path.with_suffix(".zip"), "w") as archive:
            archive.writestr("../../x", b"x")
    made = {
        "text": lambda: path.write_text("a,b\n1,2\n"),
        "empty": lambda: path.write_bytes(b""),
        "npz": lambda: path.with_suffix(".npz").replace(path),
        "zip": lambda: path.with_suffix(".zip").replace(path),
        "cut": lambda: path.write_bytes(data[:-300]),
        "flipped": lambda: path.write_bytes(data.replace(b"Ridge", b"Rigde", 1)),
    }
    made[what]()
    for read in (lambda: calliper.load(path, RIDGE), lambda: calliper.files.inspect(path)):
        with pytest.raises(DamagedFileError, match=re.escape(path.name)):
            read()


SAVING = """
import sys, numpy as np, calliper
rng = np.random.default_rng(0)
Z = rng.normal(size=(30_000, 4))
made = [calliper.Split().fit(Z[:n], np.abs(Z[:n, 0])) for n in (20_000, 30_000)]
calliper.save(made[0], sys.argv[1])
print("ready", flush=True)
while True:
    for each in made:
        calliper.save(each, sys.argv[1])
"""


@pytest.mark.long
def test_a_process_that_dies_while_saving_leaves_a_whole_file(path):
    environment = {**os.environ, "PYTHONPATH": str(Path(calliper.__file__).parents[1])}
    command = [sys.executable, "-c", SAVING, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as first:
        first.stdout.readline()
        first.send_signal(signal.SIGSTOP)
        sizes = set()
        for pause in np.linspace(0.001, 0.02, 15):  # stopped at many moments, whole at each
            first.send_signal(signal.SIGCONT)
            time.sleep(pause)
            first.send_signal(signal.SIGSTOP)
            sizes.add(calliper.load(path).n_calibration_)
        first.kill()
    assert sizes <= {20_000, 30_000}
    left = [each for each in path.parent.iterdir() if each != path]
    assert len(left) <= 1 and all(each.name.startswith(".calliper-") for each in left)
    calliper.save(Split().fit(X, np.abs(Y)), path)
    assert [*path.parent.iterdir()] == [path]
    assert calliper.load(path).n_calibration_ == 120


def test_save_while_others_predict(path):
    from concurrent.futures import ThreadPoolExecutor

    made = ConformalRegressor(RIDGE).calibrate(X[60:], Y[60:])
    expected = ends(made, coverage=0.8)

    def ask(number):
        made.predict_interval(X[: 1 + number % 7], coverage=0.5 + number / 1000)

    def save(number):
        place = path.with_name(f"{number % 3}.calliper")
        calliper.save(made, place)
        return np.array_equal(ends(calliper.load(place, RIDGE), coverage=0.8), expected)

    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ask, number) for number in range(120)]
        assert all(pool.map(save, range(24)))
        for each in asked:
            each.result()


def test_levels_and_words_of_a_file(ridge, path):
    said = calliper.files.inspect(path)
    assert said.header["levels"] == [0.9] and said.n_bytes == path.stat().st_size
    text = "\n".join(said.describe())
    for words in (
        "ConformalRegressor calibrated on 60 rows",
        "Ridge(alpha=1.0",
        "probability at least",
    ):
        assert words in text
