"""Models: how any model is asked, and what each family knows of its own uncertainty.

``_asking.py`` opens a model to its core, asks it for predictions and trains it again. The rest
depends on the family, one file each:

| file | models |
|---|---|
| ``_forests.py`` | forests, extra trees, bagging, votes: a plain mean of members |
| ``_boosting.py`` | gradient boosting of scikit-learn, XGBoost, LightGBM, CatBoost |
| ``_linear.py`` | linear models and others that state a standard deviation |
| ``_networks.py`` | modules of PyTorch, and their layers |
| ``_distributions.py`` | models that predict quantiles or a distribution |

**Add a model family.** Write one file with a subclass of ``ModelFamily`` (``_asking.py``), and add
one line with its file and name to ``FAMILIES`` there; families are tried in that order. It answers
four questions, each a method with a default: is it mine (``is_mine``), its doubt (``measure``,
``unit``, ``describe``), its left-out rows (``left_out``), and how to train it again (``retrain``).
Import no library: a model of one implies that it is imported. Nothing else changes: spaces,
left-out errors and files ask these questions and no others.
"""

from typing import TYPE_CHECKING

from calliper._lazy import on_demand
from calliper.models._asking import (
    ModelFamily,
    OpenedModel,
    PredictWith,
    UnreadableError,
    asked_as,
    check_sample_weight,
    comes_from,
    families,
    family_of,
    fit_params_of,
    fit_router,
    fresh,
    is_frozen,
    is_module,
    learnt,
    open_model,
    predictions,
    predicts_as,
    refuse_crashing,
    routed,
    takes_sparse,
    trainable,
    untrained_core,
    unwrapped,
    without_names,
)
from calliper.models._networks import Layer

if TYPE_CHECKING:
    from calliper.models._distributions import (
        AskedForQuantiles,
        QuantileModel,
        model_of_quantiles,
        with_usual_slope,
    )

__getattr__ = on_demand(
    __name__,
    dict.fromkeys(
        ("AskedForQuantiles", "QuantileModel", "model_of_quantiles", "with_usual_slope"),
        "_distributions",
    ),
)
