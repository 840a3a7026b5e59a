"""How the space is chosen where nearness is judged.

``embed="auto"`` looks at the fitted model: a network has its penultimate layer, a model of a family
that knows its own spread (``models/``) prediction and spread; any other has standardised inputs and
prediction. Without training rows, a linear model has what each input adds, any other the prediction
alone, as where inputs have no columns. One input stands for itself.

``_spaces.py`` has the coordinates. Of calibration rows only the layout is used.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from calliper import models
from calliper._handlers import in_memory
from calliper._types import FloatArray
from calliper._validation import shape_of
from calliper.exceptions import EmbeddingWarning, UnscaledFeaturesWarning, warn
from calliper.space import _spaces as spaces
from calliper.space._encoding import ColumnEncoder
from calliper.space._spaces import Embedding, InputsAndPrediction, Prediction, Space

#: Ratio of the spreads of two raw inputs beyond which the larger alone decides who is near.
SPREAD_RATIO = 100.0


def fit_embedding(embed: Any, X_train: Any, X_calibration: Any, **known: Any) -> Embedding:
    """The map that ``embed`` names; the rest is what :class:`SpaceChoice` takes."""
    choice = SpaceChoice(X_train, X_calibration, **known)
    return Embedding(choice.space(embed), choice.n_outputs, model=choice.model)


def check_embed(embed: Any, model: Any) -> None:
    """Refuse what names no space of this model."""
    known = embed is None or callable(embed) or _is_transformer(embed)
    if isinstance(embed, str) and embed:
        known = embed in ("auto", "inputs", "prediction")
        known = known or models.is_module(models.open_model(models.without_asking(model)).core)
    if not known:
        what = "embed must be a function of the inputs, a transformer with a transform method"
        named = "'inputs', 'prediction', or the name of a layer if the model is a PyTorch module"
        raise TypeError(f"{what}, 'auto', {named}; got {embed!r}.")


@dataclass(frozen=True)
class SpaceChoice:
    """Chooses a space for the rows that a model was trained on and those that calibrate it.

    A row has ``n_outputs`` predictions, with ``units`` if these differ. ``raw`` is what "auto" and
    "inputs" mean where no distance between inputs is needed, ``RAW`` for numbers (kernels with a
    model of their own) or ``UNTOUCHED``; None elsewhere. Without any ``nearness``, the prediction
    takes the place of inputs.
    """

    X_train: Any
    X_calibration: Any
    model: Any = None
    n_outputs: int = 1
    units: Any = None
    y_train: FloatArray | None = None
    raw: Space | None = None
    nearness: bool = True

    @property
    def bare(self) -> Prediction:
        """The space of predictions."""
        return Prediction(units=None if self.units is None else np.asarray(self.units, dtype=float))

    def space(self, embed: Any) -> Space:
        """What ``embed`` means."""
        name = "inputs" if embed is None else embed if isinstance(embed, str) else ""
        if self.raw is not None and name in ("auto", "inputs"):
            return self.raw
        if name == "inputs":
            return self._inputs() if self.nearness else self.bare
        if name == "auto":
            return self._auto()
        if name == "prediction":
            return self.bare
        if name:
            asked = models.open_model(models.without_asking(self.model))
            return spaces.Network(models.Layer(asked.core, name))
        if isinstance(embed, models.Layer) and embed.module is self.model:
            return spaces.Network(embed)
        if _is_transformer(embed):
            fitted = _fit_transformer(embed, self.X_train)
            return spaces.Mapped(type(fitted).__name__, fitted)
        return spaces.Mapped(_name_of(embed), embed)

    @property
    def _target(self) -> FloatArray | None:
        return None if self.y_train is None else spaces.one_target(self.y_train)

    def _inputs(self) -> Space:
        if self.X_train is not None:
            # Numbers that are too large are refused here, not moved: they may decide who is near.
            encode = replace(ColumnEncoder.learn(self.X_train, self._target), largest=np.inf)
            features = spaces.as_features(encode(self.X_train), self.X_train)
            return spaces.Inputs(encode, spaces.Scaling.learn(features))
        spread = spaces.as_features(self.X_calibration, self.X_calibration).std(axis=0)
        spread = spread[spread > 0]
        if len(spread) > 1 and spread.max() > SPREAD_RATIO * spread.min():
            warn(
                "Distances are measured on raw inputs whose standard deviations range from "
                f"{spread.min():.3g} to {spread.max():.3g}: the widest dominate. Pass X_train to "
                "calibrate (it standardises the inputs), or embed=.",
                UnscaledFeaturesWarning,
            )
        return spaces.RAW

    def _auto(self) -> Space:
        """The first of these spaces that fits the model."""
        opened = models.open_model(self.model)
        if models.is_module(opened.core):
            return spaces.Network(models.Layer(opened.core)) if self.nearness else self.bare
        family = models.family_of(opened.core)
        if self.n_outputs == 1 and family is not models.ModelFamily:
            try:
                space = spaces.PredictionAndSpread(opened=opened, family=family.__name__)
                space.learn_unit(self.X_train, self._target)
                # A linear model has coordinates with a unit.
                if space.unit is not None or spaces.coefficients(opened.core) is None:
                    return space
            except models.UnreadableError as reason:
                kind = type(opened.core).__name__
                what = f"The trees of this {kind} cannot be used to adapt widths, because {reason}"
                why = "Distances are measured without them"
                warn(f"{what}. {why}; pass embed= to choose a space.", EmbeddingWarning)
        return self._untrained(opened) if self.X_train is None else self._trained(opened)

    def _trained(self, opened: models.OpenedModel) -> Space:
        """The space of a model without a spread."""
        try:
            rows = opened.prepare(self.X_train)
            encode = ColumnEncoder.learn(rows, self._target)
            features = encode(rows)
        except (TypeError, ValueError) as error:  # inputs without columns
            return self._prediction_alone(f"the inputs cannot be turned into numbers ({error})")
        inputs, outputs = spaces.Scaling.learn(features), None
        if features.shape[1] > 1:
            y_pred = opened.predict_prepared(rows, self.n_outputs)
            outputs = spaces.Scaling.learn(y_pred.reshape(len(y_pred), -1))
        return InputsAndPrediction(
            opened=opened, n_outputs=self.n_outputs, encode=encode, inputs=inputs, outputs=outputs
        )

    def _untrained(self, opened: models.OpenedModel) -> Space:
        """The space of a model without a spread and without training rows."""
        d = _n_inputs(opened, self.X_calibration)
        if d == 1:
            return InputsAndPrediction(opened=opened, encode=ColumnEncoder.of_numbers(1))
        weights = spaces.coefficients(opened.core)
        if self.n_outputs == 1 and weights is not None and len(weights) == d and weights.any():
            return spaces.Contributions(opened)
        return self._prediction_alone("there are no training rows (pass X_train and y_train)")

    def _prediction_alone(self, why: str) -> Prediction:
        """The space that is left, with a warning if it matters."""
        if self.nearness:
            warn(
                f"Widths depend on the prediction alone, since {why}. Pass embed='prediction' if "
                "this is intended, or another embed= to measure distances in another space.",
                EmbeddingWarning,
            )
        return self.bare


def _is_transformer(embed: Any) -> bool:
    return hasattr(embed, "transform") and not isinstance(embed, models.Layer)


def learnt_from_training(space: Space) -> bool:
    """Whether training rows had a part in a space that was chosen with them."""
    if isinstance(space, spaces.PredictionAndSpread):
        return space.reader.unit() is None
    if isinstance(space, spaces.Mapped):
        return _is_transformer(space.mapping)
    standardised = isinstance(space, spaces.Inputs) and space.scaling is not None
    return standardised or isinstance(space, InputsAndPrediction)


def _fit_transformer(transformer: Any, X_train: Any) -> Any:
    if X_train is not None:
        return clone(transformer).fit(X_train)
    try:
        check_is_fitted(transformer)
    except NotFittedError as error:
        raise NotFittedError(
            f"{type(transformer).__name__} is not fitted: fit it on training inputs, or pass "
            "X_train to calibrate. Fitting it to the calibration rows would break the guarantee."
        ) from error
    return transformer


def _name_of(mapping: Any) -> str:
    """What a function calls itself; a ``Layer`` has a name in words, a module its class."""
    if isinstance(mapping, models.Layer):
        return mapping.name_in_words
    if models.is_module(mapping):
        return f"output of {type(mapping).__name__}"
    name = str(getattr(mapping, "__name__", "<lambda>"))
    return "function" if name == "<lambda>" else name


def _n_inputs(opened: models.OpenedModel, X: Any) -> int | None:
    """The number of inputs of the core by the layout of rows; None unless all are numbers."""
    rows = opened.prepare(_safe_indexing(X, [0])) if opened.steps else X
    if isinstance(rows, list):  # scikit-learn converts it to an array of numbers
        return models.learnt(opened.core, "n_features_in_")  # type: ignore[no-any-return]
    if sparse.issparse(rows) or len(shape_of(rows)) != 2:
        return None
    first = in_memory(rows[:1])
    types = [first.dtype] if isinstance(first, np.ndarray) else list(rows.dtypes)
    numbers = all(
        each.is_numeric() if models.comes_from(each, "polars") else each.kind in "biuf"
        for each in types
    )
    return int(rows.shape[1]) if numbers else None


def warn_if_poor(embedding: Embedding, Z: FloatArray) -> None:
    """Warn of coordinates that say little: all the same, or more of them than rows."""
    (n, d), space = Z.shape, embedding.space
    if n > 1 and not np.ptp(Z, axis=0).any():
        problem = (
            f"gives all {n} calibration rows the same coordinates: all are equally near, and "
            f"widths do not adapt. Pass embed= with something that varies."
        )
    elif d > n:
        pca = f"PCA({min(5, d // 2)})"
        code = f"make_pipeline(Layer(module), {pca})" if isinstance(space, spaces.Network) else pca
        todo = f"Pass X_train and, for example, embed={code}, or use embed='prediction'"
        if isinstance(space, Prediction):
            todo = "Calibrate on more rows, predict fewer quantiles, or use Split()"
        problem = (
            f"has {d} dimensions for {n} calibration rows, so all rows are about equally far from "
            f"one another. {todo}."
        )
    else:
        return
    warn(f"The feature space ({space.name}) {problem}", EmbeddingWarning)
