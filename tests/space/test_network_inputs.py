"""Inputs of networks: by name, a dict for each row, and from a DataLoader."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from calliper import CalliperError, ConformalRegressor, FullRescaled, Split, load, save
from calliper.exceptions import UnusedWarning

torch = pytest.importorskip("torch", reason="torch is not installed: networks are not tested")
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

nn = torch.nn
N, CAL, NEW = 140, slice(0, 100), slice(100, 140)
torch.manual_seed(0)
IDS = torch.randint(0, 30, (N, 6))
MASK = (torch.arange(6) < torch.randint(2, 7, (N, 1))).long()
Y = np.random.default_rng(0).normal(size=N).astype(np.float32)


class Texts(nn.Module):
    """Called, and answers, as models of Hugging Face do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.words = nn.Embedding(30, 5)
        self.body = nn.Sequential(nn.Linear(5, 4), nn.Tanh())
        self.head = nn.Linear(4, 1)

    def forward(self, input_ids, attention_mask, labels=None):
        kept = attention_mask[..., None] * self.words(input_ids)
        return SimpleNamespace(logits=self.head(self.body(kept.sum(1))))


class Whole(Texts):
    """Takes the dict as one argument, and answers with a tensor."""

    def forward(self, inputs):
        return super().forward(**inputs).logits


def named(rows):
    return {"input_ids": IDS[rows], "attention_mask": MASK[rows]}


def listed(rows):
    """A dict for each row, of lists and of tensors."""
    pairs = zip(IDS[rows].tolist(), MASK[rows], strict=True)
    return [{"input_ids": ids, "attention_mask": mask} for ids, mask in pairs]


def loader(rows, **how):
    dataset = [
        {**row, "input_ids": np.array(row["input_ids"]), "labels": float(y)}
        for row, y in zip(listed(rows), Y[rows], strict=True)
    ]
    return DataLoader(dataset, batch_size=7, **how)


@pytest.mark.parametrize("kind", [Texts, Whole])
def test_however_inputs_come_the_answer_is_the_same(kind):
    net = kind()
    expected = net.body((MASK[..., None] * net.words(IDS)).sum(1))
    y_pred = net.head(expected).detach().numpy()[:, 0]
    by_name = ConformalRegressor(net).calibrate(named(CAL), Y[CAL])
    np.testing.assert_allclose(
        by_name.embedding_.transform(named(CAL)), expected.detach()[CAL], rtol=1e-5
    )
    np.testing.assert_allclose(by_name.predict(named(NEW)), y_pred[NEW], rtol=1e-5)
    intervals = by_name.predict_interval(named(NEW))
    arrays = {name: part.numpy() for name, part in named(NEW).items()}
    by_row = ConformalRegressor(net).calibrate(listed(CAL), Y[CAL])
    loaded = ConformalRegressor(net).calibrate(loader(CAL))
    for other, rows in ((by_name, arrays), (by_row, listed(NEW)), (loaded, loader(NEW))):
        found = other.predict_interval(rows)
        np.testing.assert_allclose(found.lower, intervals.lower, rtol=1e-5)
        np.testing.assert_allclose(found.upper, intervals.upper, rtol=1e-5)
    again = pickle.loads(pickle.dumps(by_name)).predict_interval(named(NEW))
    np.testing.assert_array_equal(again.lower, intervals.lower)


def test_pairs_of_a_loader_are_inputs_and_targets():
    net = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 1))
    X, column = IDS.float(), torch.as_tensor(Y)[:, None]
    plain = ConformalRegressor(net).calibrate(X[CAL], Y[CAL])
    batches = DataLoader(TensorDataset(X[CAL], column[CAL]), batch_size=32)
    loaded = ConformalRegressor(net).calibrate(batches)
    expected = plain.predict_interval(X[NEW]).lower
    for rows in (TensorDataset(X[NEW]), TensorDataset(X[NEW], column[NEW]), X[NEW]):
        new = DataLoader(rows, batch_size=9)
        np.testing.assert_allclose(loaded.predict_interval(new).lower, expected, rtol=1e-5)
    grown = loaded.extend(DataLoader(TensorDataset(X[NEW], column[NEW])), None)
    assert grown.calibrator_.n_calibration_ == N

    class Stream(IterableDataset):
        def __iter__(self):
            return zip(X[CAL], Y[CAL], strict=True)

    streamed = ConformalRegressor(net).calibrate(DataLoader(Stream(), batch_size=32))
    np.testing.assert_allclose(streamed.predict_interval(X[NEW]).lower, expected, rtol=1e-5)


def test_loaders_that_are_refused():
    net, rows = nn.Linear(6, 1), TensorDataset(IDS.float(), torch.as_tensor(Y))

    def refused(match, rows=rows, y=None, **how):
        with pytest.raises(CalliperError, match=match):
            ConformalRegressor(net).calibrate(DataLoader(rows, **how), y)

    model = ConformalRegressor(net).calibrate(DataLoader(rows))
    with pytest.raises(CalliperError, match=r"order of its rows \(by a RandomSampler\).*shuffle"):
        model.predict_interval(DataLoader(rows, shuffle=True))
    refused("by a RandomSampler", shuffle=True)
    refused("by a RandomSampler", batch_sampler=BatchSampler(RandomSampler(rows), 5, False))
    refused("by a list", batch_sampler=[[1, 0], [2, 3]])
    refused("DataLoader drops the last rows.* drop_last=False", batch_size=100, drop_last=True)
    refused("drops the last", batch_sampler=BatchSampler(SequentialSampler(rows), 100, True))
    refused("y was passed too", y=Y)
    refused(r"must be \(inputs, targets\).* got a list", TensorDataset(IDS, MASK, MASK))
    refused("without batches", TensorDataset(IDS[:0], MASK[:0]))
    ragged = [(torch.zeros(k), 0.0) for k in (3, 4)]
    refused(r"have one shape.* \(3,\), \(4,\): pad them", ragged, batch_size=1)
    for calibrator in (FullRescaled(), Split()):
        with pytest.raises(CalliperError, match="got a DataLoader"):
            calibrator.fit(DataLoader(rows), np.abs(Y))


def test_inputs_by_name_that_are_refused():
    net = Texts()
    with pytest.raises(CalliperError, match=r"one entry per row; .*'b': \(3, 6\)"):
        ConformalRegressor(net).calibrate({"a": IDS, "b": IDS[:3]}, Y)
    for nothing in ({}, {"a": 3.0}):
        with pytest.raises(CalliperError, match="named inputs must be arrays or tensors"):
            ConformalRegressor(net).calibrate(nothing, Y)
    with pytest.raises(CalliperError, match=r"got \['input_ids', .* and \['ids'\]"):
        ConformalRegressor(net).calibrate([listed(CAL)[0], {"ids": 1}] * 9, Y[:18])
    with pytest.raises(CalliperError, match="pad them"):
        ConformalRegressor(Whole()).calibrate([{"a": [1, 2]}, {"a": [1]}] * 9, Y[:18])
    with pytest.raises(CalliperError, match=r"got a dict \({'input_ids'(.|\n)*for calibrate"):
        ConformalRegressor(LinearRegression()).fit(named(CAL), Y[CAL])


def test_functions_get_the_dict():
    seen = []

    def predict(inputs):
        seen.append(isinstance(inputs, dict) and [*inputs])
        return inputs["input_ids"][:, 0] + 0.0 * len([*inputs.items()])

    def place(inputs):
        return (lambda input_ids, attention_mask: input_ids[:, :2].double())(**inputs)

    known = {"X_train": named(NEW), "y_train": Y[NEW]}
    model = ConformalRegressor(predict, embed=place).calibrate(named(CAL), Y[CAL], **known)
    np.testing.assert_array_equal(model.predict(named(NEW)), IDS[NEW, 0])
    assert model.embedding_.n_dimensions == 2
    assert seen and all(each == ["input_ids", "attention_mask"] for each in seen)
    inputs = ConformalRegressor(Texts(), embed="inputs").calibrate(named(CAL), Y[CAL])
    assert inputs.embedding_.n_dimensions == 12  # parts side by side


def test_dicts_for_each_row_stay_what_they_are_for_other_models():
    rows = [{"a": a, "b": b} for a, b in IDS[:, :2].tolist()]
    model = make_pipeline(DictVectorizer(), LinearRegression())
    fitted = ConformalRegressor(model, random_state=0).fit(rows, Y)
    assert fitted.predict_interval(rows[:3]).lower.shape == (3,)
    table = ConformalRegressor(LinearRegression().fit(IDS, Y)).calibrate(IDS.numpy(), Y)
    with pytest.raises(
        CalliperError, match=r"got a list of dicts, one for each row\. Convert it first"
    ):
        table.predict_interval(rows)


def test_a_layer_by_its_name(tmp_path):
    net = Texts()
    model = ConformalRegressor(net, embed="body.0").calibrate(named(CAL), Y[CAL])
    assert repr(model.embedding_) == "layer 'body.0' of Texts (4 dimensions)"
    expected = net.body[0]((MASK[..., None] * net.words(IDS)).sum(1))[NEW].detach()
    np.testing.assert_allclose(model.embedding_.transform(named(NEW)), expected, rtol=1e-5)
    save(model, tmp_path / "net.calliper")
    again = load(tmp_path / "net.calliper", net).predict_interval(named(NEW))
    np.testing.assert_array_equal(again.lower, model.predict_interval(named(NEW)).lower)
    with pytest.raises(CalliperError, match=r"no layer 'tail'; .*'words', 'body', 'body\.0'"):
        ConformalRegressor(net, embed="tail").calibrate(named(CAL), Y[CAL])
    with pytest.raises(TypeError, match="name of a layer if the model is a PyTorch module"):
        ConformalRegressor(lambda X: X[:, 0], embed="body.0").calibrate(IDS.numpy(), Y)


def test_a_module_that_embeds_is_in_evaluation_mode(tmp_path):
    body = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)).train()
    net = nn.Sequential(body, nn.Linear(3, 1)).train()
    X = IDS.float()
    model = ConformalRegressor(net, embed=body).calibrate(X[CAL], Y[CAL])
    assert repr(model.embedding_) == "output of Sequential (3 dimensions)"
    expected = body[0](X[NEW]).detach()
    np.testing.assert_allclose(model.embedding_.transform(X[NEW]), expected, rtol=1e-5)
    assert body.training and body[1].training
    save(model, tmp_path / "net.calliper")
    again = load(tmp_path / "net.calliper", net, embed=body)
    np.testing.assert_allclose(again.embedding_.transform(X[NEW]), expected, rtol=1e-5)


def test_a_class_of_networks_is_no_network():
    with pytest.raises(TypeError, match="got the class Texts: pass an instance"):
        ConformalRegressor(Texts).calibrate(named(CAL), Y[CAL])
    with pytest.raises(TypeError, match=r"a fit method; got a Texts\. .* use calibrate"):
        ConformalRegressor(Texts()).fit(IDS.float(), Y)


@pytest.mark.parametrize("kind", [list, tuple])
def test_several_inputs_are_a_dict(kind):
    with pytest.raises(CalliperError, match=f"X is a {kind.__name__} of 2 inputs, .* pass a dict"):
        ConformalRegressor(Texts()).calibrate(kind(named(CAL).values()), Y[CAL])


def test_what_brings_targets_and_that_they_need_no_detaching():
    X, net = torch.randn(60, 2), nn.Linear(2, 1)
    y, model = X[:, 0].clone().requires_grad_(), ConformalRegressor(net, Split())
    dataset = TensorDataset(X)
    for given in (dataset, DataLoader(dataset), X):
        with pytest.raises(ValueError, match=r"y to be passed.* DataLoader of \(inputs, targets\)"):
            model.calibrate(given)
    ends = [model.calibrate(X, each).predict_interval(X).upper for each in (y, y.detach())]
    np.testing.assert_array_equal(*ends)
    with pytest.warns(UnusedWarning, match="to learn widths from: the model has no fit"):
        ConformalRegressor(net).calibrate(X, y, X_train=X + 1, y_train=y)


def test_the_order_of_names_means_nothing_and_other_names_are_refused(tmp_path):
    net, rows = Texts(), np.tile(np.arange(N), 3)  # from 300 rows on, errors are learnt of inputs
    y = np.tile(Y, 3) + np.random.default_rng(1).normal(size=3 * N)
    model = ConformalRegressor(net, random_state=0).calibrate(named(rows), y)
    expected = model.predict_interval(named(NEW)).lower
    turned = dict(reversed(named(NEW).items()))
    np.testing.assert_array_equal(model.predict_interval(turned).lower, expected)
    np.testing.assert_array_equal(model.predict_interval(listed(NEW)).lower, expected)
    by_row = ConformalRegressor(net, random_state=0).calibrate(listed(rows), y)
    np.testing.assert_array_equal(by_row.predict_interval(turned).lower, expected)
    save(model, tmp_path / "net.calliper")
    for each in (model, load(tmp_path / "net.calliper", net)):
        with pytest.raises(CalliperError, match=r"attention_mask, input_ids; got .*, more\."):
            each.predict_interval({**named(NEW), "more": IDS[NEW]})
    with pytest.raises(CalliperError, match=r"forward takes input_ids, .* named ids, attention"):
        ConformalRegressor(net).calibrate({"ids": IDS, "attention_mask": MASK}, Y)
