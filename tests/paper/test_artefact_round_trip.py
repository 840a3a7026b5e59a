import numpy as np
import pytest

from studies.experiments.deutschmann2024.artefact import Rows, load, save


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    Z = 20 + rng.normal(size=(300, 6)) * [5, 4, 3, 0.01, 0.01, 0.01] @ turn
    y = Z[:, 0] + rng.normal(size=300)
    return Rows(y + rng.normal(size=300), Z, y, np.arange(300))


def test_round_trip_keeps_rows_and_distances(tmp_path, rows):
    train = Rows(rows.y_pred[:200], rows.Z[:200], rows.y[:200], rows.index[:200])
    held_out = Rows(rows.y_pred[200:], rows.Z[200:], rows.y[200:], rows.index[200:])
    path = tmp_path / "deep" / "some.npz"
    save(path, held_out, train, dimensions=3, note={"encoder": "none"})
    read = load(path)
    assert read.held_out.Z.shape == (100, 3)
    np.testing.assert_array_equal(read.held_out.y, held_out.y)
    np.testing.assert_allclose(read.train.y_pred, train.y_pred, rtol=1e-6)
    np.testing.assert_array_equal(read.train.index, train.index)
    np.testing.assert_allclose(
        read.train.Z.mean(axis=0), 0, atol=0.01
    )  # half precision has few digits
    before = np.linalg.norm(held_out.Z[0] - held_out.Z[1:], axis=1)
    after = np.linalg.norm(read.held_out.Z[0] - read.held_out.Z[1:], axis=1)
    np.testing.assert_allclose(after, before, rtol=5e-3, atol=0.05)  # half precision, three axes


def test_the_note_says_what_was_kept_and_how_good_the_predictions_are(tmp_path, rows):
    save(tmp_path / "a.npz", rows, rows, dimensions=3, note={"encoder": "none"})
    note = load(tmp_path / "a.npz").note
    assert note["encoder"] == "none"
    assert note["embedding"]["variance kept"] > 0.999
    residual = np.mean((rows.y - rows.y_pred) ** 2)
    assert note["held out"]["r2"] == pytest.approx(1 - residual / rows.y.var())


def test_nothing_is_left_behind_by_a_save(tmp_path, rows):
    save(tmp_path / "a.npz", rows, rows, dimensions=2, note={})
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
