"""Artefacts of trained networks: what is kept, and that it comes back."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA
from sklearn.metrics import r2_score, root_mean_squared_error

from studies.experiments.deutschmann2024 import artefact
from studies.experiments.deutschmann2024.artefact import Rows


def rows(n: int, seed: int, *, d: int = 6) -> Rows:
    rng = np.random.default_rng(seed)
    Z = 3 + rng.normal(size=(n, d)) * np.arange(1, d + 1) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    y = rng.normal(size=n)
    return Rows((y + 0.3 * rng.normal(size=n)).astype(np.float32), Z, y, rng.permutation(n))


@pytest.fixture
def saved(tmp_path):
    held_out, train = rows(40, 0), rows(90, 1)
    path = tmp_path / "new folder" / "task.npz"
    artefact.save(path, held_out, train, dimensions=6, note={"seed": 3, "task": "τ"})
    return path, held_out, train


def test_what_was_saved_comes_back(saved):
    path, held_out, train = saved
    loaded = artefact.load(path)
    assert loaded.note["seed"] == 3 and loaded.note["task"] == "τ"
    for before, after in ((held_out, loaded.held_out), (train, loaded.train)):
        np.testing.assert_array_equal(after.y, before.y)
        np.testing.assert_array_equal(after.y_pred, before.y_pred)
        np.testing.assert_array_equal(after.index, before.index)
        assert after.Z.dtype == after.y_pred.dtype == after.y.dtype == float
    assert [file.name for file in path.parent.iterdir()] == ["task.npz"]


def test_with_all_axes_kept_nearness_is_that_of_the_embedding(saved):
    path, held_out, train = saved
    loaded = artefact.load(path)
    together = np.vstack([loaded.held_out.Z, loaded.train.Z])
    # Half precision keeps 11 binary digits of coordinates up to about 20.
    np.testing.assert_allclose(pdist(together), pdist(np.vstack([held_out.Z, train.Z])), atol=0.04)
    assert loaded.note["embedding"] == {"from": 6, "to": 6, "variance kept": pytest.approx(1)}


def test_the_axes_are_the_principal_ones_of_the_training_rows(tmp_path):
    held_out, train = rows(40, 0), rows(90, 1)
    artefact.save(tmp_path / "a.npz", held_out, train, dimensions=2, note={})
    loaded, pca = artefact.load(tmp_path / "a.npz"), PCA(2).fit(train.Z)
    for before, after in ((held_out, loaded.held_out), (train, loaded.train)):
        assert after.Z.shape == (len(before.y), 2)
        # The direction of an axis is anyone's choice.
        np.testing.assert_allclose(abs(after.Z), abs(pca.transform(before.Z)), atol=0.02)
    kept = loaded.note["embedding"]["variance kept"]
    assert kept == pytest.approx(pca.explained_variance_ratio_.sum()) and kept < 0.99


def test_the_note_says_how_well_the_network_fits(saved):
    path, held_out, train = saved
    note = artefact.load(path).note
    for name, part in (("held out", held_out), ("train", train)):
        assert note[name]["rows"] == len(part.y)
        assert note[name]["rmse"] == pytest.approx(root_mean_squared_error(part.y, part.y_pred))
        assert note[name]["r2"] == pytest.approx(r2_score(part.y, part.y_pred))


def test_a_write_that_breaks_leaves_the_old_file(saved, monkeypatch):
    path, held_out, train = saved

    def half(file, **arrays):
        file.write_bytes(b"PK")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", half)
    with pytest.raises(OSError, match="no space"):
        artefact.save(path, train, held_out, dimensions=6, note={})
    assert len(artefact.load(path).held_out.y) == 40
