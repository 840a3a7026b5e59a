"""Layers of PyTorch modules."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from calliper import CalliperError, ConformalRegressor
from calliper.exceptions import EmbeddingWarning
from calliper.models import Layer

torch = pytest.importorskip("torch", reason="torch is not installed: layers are not tested")
nn = torch.nn

rng = np.random.default_rng(0)
X = rng.normal(size=(260, 4))
Y = X[:, 0] + rng.normal(size=260)
X_CAL, X_NEW, Y_CAL = X[:200], X[200:], Y[:200]


@pytest.fixture
def net():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5))
    return nn.Sequential(body, nn.BatchNorm1d(6), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))


def in_evaluation(part, rows):
    """Slow and plain: all rows at once, one part after another."""
    part.eval()
    with torch.no_grad():
        return part(torch.as_tensor(rows, dtype=torch.float32)).numpy()


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_layers(net, batch_size):
    named = Layer(net, "0.1", batch_size=batch_size)(X_NEW)
    last = Layer(net, batch_size=batch_size)(X_NEW)
    assert net.training and net[0][2].training
    np.testing.assert_allclose(named, in_evaluation(net[0][:2], X_NEW), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, in_evaluation(net[:4], X_NEW), rtol=1e-5, atol=1e-6)
    assert named.shape == (60, 6) and last.shape == (60, 5) and named.dtype == np.float64


def test_each_part_returns_to_its_own_mode(net):
    net[0].eval()
    modes = [part.training for part in net.modules()]
    Layer(net)(X_NEW)
    assert [part.training for part in net.modules()] == modes
    with pytest.raises(RuntimeError):
        Layer(net)(X_NEW[:, :2])
    assert [part.training for part in net.modules()] == modes
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())


def test_modules_predict_and_are_their_own_space(net):
    model = ConformalRegressor(net).calibrate(X_CAL, Y_CAL)
    assert repr(model.embedding_) == "penultimate layer of Sequential (5 dimensions)"
    lower, upper = model.predict_interval(X_NEW)
    y_pred = in_evaluation(net, X_NEW)[:, 0]
    np.testing.assert_allclose((lower + upper) / 2, y_pred, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.predict(X_NEW), y_pred, rtol=1e-5, atol=1e-6)
    tensors = ConformalRegressor(net).calibrate(torch.as_tensor(X_CAL), Y_CAL)
    np.testing.assert_allclose(tensors.predict_interval(torch.as_tensor(X_NEW)).lower, lower)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict_interval(X_NEW).lower, lower)


def test_a_module_is_asked_once(net):
    passes = []
    net.register_forward_hook(lambda *_: passes.append(1))
    for embed in ("auto", Layer(net, "0")):
        model = ConformalRegressor(net, embed=embed).calibrate(X_CAL, Y_CAL)
        passes.clear()
        model.predict_interval(X_NEW)
        assert len(passes) == 1


def test_a_function_that_predicts_beside_a_layer(net):
    model = ConformalRegressor(lambda X: X[:, 0], embed=Layer(net, "2")).calibrate(X_CAL, Y_CAL)
    assert repr(model.embedding_) == "layer '2' of Sequential (5 dimensions)"
    assert clone(model).embed is model.embed  # a trained module is not copied
    assert repr(model.embed) == "Layer(Sequential, '2')"


def test_dropout_left_on_is_found_out(net):
    def embed(rows):
        return net[0](torch.as_tensor(rows, dtype=torch.float32))

    net.train()
    with pytest.raises(CalliperError, match=r"differs between calls.*module\.eval"):
        ConformalRegressor(lambda X: X[:, 0], embed=embed).calibrate(X_CAL, Y_CAL)
    net.eval()
    ConformalRegressor(lambda X: X[:, 0], embed=embed).calibrate(X_CAL, Y_CAL)


def test_images_are_flattened_and_integers_stay_integers():
    torch.manual_seed(0)
    images = rng.normal(size=(9, 1, 6, 6)).astype(np.float32)
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 1))
    assert Layer(convolution, "0")(images).shape == (9, 2 * 4 * 4)
    words = nn.Sequential(nn.Embedding(11, 3), nn.Flatten(), nn.Linear(6, 1))
    assert Layer(words)(rng.integers(0, 11, size=(9, 2))).shape == (9, 6)


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(4, 3, batch_first=True)
        self.spare = nn.Linear(4, 2)

    def forward(self, rows):
        return self.memory(rows[:, None])[0][:, 0, 0]


def test_bad_layers(net):
    with pytest.raises(CalliperError, match=r"no layer 'head'; .*: '0', '0\.0', '0\.1'"):
        Layer(net, "head")
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module; got int"):
        Layer(3)
    with pytest.raises(CalliperError, match="batch_size must be an integer of at least 1; got 0"):
        Layer(net, batch_size=0)
    with pytest.raises(CalliperError, match=r"must be a tensor .* got a tuple"):
        Layer(Odd(), "memory")(X_NEW)
    with pytest.raises(CalliperError, match="does not use layer 'spare' of Odd"):
        Layer(Odd(), "spare")(X_NEW)
    with pytest.raises(CalliperError, match=r"no linear layer.*name one of \['0'\]"):
        Layer(nn.Sequential(nn.Tanh()))(X_NEW)


def test_a_later_layer_that_writes_in_place_does_not_change_the_place():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 1))
    places = Layer(net, "0")(X_NEW)
    assert places.min() < 0
    np.testing.assert_allclose(places, in_evaluation(net[0], X_NEW), rtol=1e-5, atol=1e-6)


def test_linear_layers_that_are_called_by_name():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(4, 1)

        def forward(self, rows):
            return self.last(input=2 * rows)

    np.testing.assert_allclose(Layer(Named())(X_NEW), 2 * X_NEW, rtol=1e-6)


def test_threads_do_not_see_each_others_rows(net):
    from concurrent.futures import ThreadPoolExecutor

    layer, parts = Layer(net, "0.1", batch_size=5), np.array_split(X, 13)
    expected = [layer(part) for part in parts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for found, place in zip(pool.map(layer, parts), expected, strict=True):
                np.testing.assert_array_equal(found, place)
    assert net.training


def test_a_module_that_answers_with_a_tuple():
    class Two(nn.Module):
        def forward(self, rows):
            return rows[:, 0], rows[:, 1]

    with pytest.raises(CalliperError, match=r"must be a tensor .*; got a tuple"):
        ConformalRegressor(Two(), embed="prediction").calibrate(X_CAL, Y_CAL)


def test_a_layer_is_a_transformer(net):
    embed = make_pipeline(Layer(net), PCA(2))
    assert clone(embed)[0].module is net  # a trained module is used as it is
    model = ConformalRegressor(net, embed=embed)
    model.calibrate(X_CAL, Y_CAL, X_train=X_NEW, y_train=Y[200:])
    assert repr(model.embedding_) == "Pipeline (2 dimensions)"
    places = PCA(2).fit(Layer(net)(X_NEW)).transform(Layer(net)(X_CAL))
    np.testing.assert_allclose(model.embedding_.transform(X_CAL), places, atol=1e-6)


def test_a_wide_layer_is_reduced_after_the_layer(net):
    with pytest.warns(EmbeddingWarning, match=r"make_pipeline\(Layer\(module\), PCA\(2\)\)"):
        ConformalRegressor(net).calibrate(X_CAL[:4], Y_CAL[:4])


def test_frames_bring_no_warning_of_torch(net):
    frame = pd.DataFrame(X, columns=list("abcd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ConformalRegressor(net).calibrate(frame[:200], Y_CAL)
        model.predict_interval(frame[200:])


def test_a_module_that_works_in_place_on_its_input_is_noticed():
    net = torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Linear(4, 1)).double()
    with pytest.raises(CalliperError, match="the model modifies the rows that are passed to it"):
        ConformalRegressor(net, embed="inputs").calibrate(X_CAL.copy(), Y_CAL)
