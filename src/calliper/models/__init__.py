"""Models: how predictions are made, and what each model family says about its own uncertainty.

``_asking.py`` opens a model to its core, asks it for predictions and trains it again. The rest
depends on the family, one file each:

| file | models |
|---|---|
| ``_forests.py`` | forests, extra trees, bagging, votes: a plain mean of members |
| ``_boosting.py`` | gradient boosting of scikit-learn, XGBoost, LightGBM, CatBoost |
| ``_networks.py`` | modules of PyTorch, and their layers |
| ``_distributions.py`` | models that predict quantiles, a distribution, or a standard deviation |

``CONTRIBUTING.md`` shows how to add one: a file with a subclass of ``ModelFamily``, and a line in
``FAMILIES``, in whose order they are tried. It answers four questions and no others, each with a
default: is it mine (``is_mine``), its spread (``measure``, ``unit``, ``describe``), its left-out
rows (``left_out``), and how to train it again (``retrain``). Import no library: a model of one
implies that it is imported.
"""

from calliper.models._asking import (
    AroundModel,
    ModelFamily,
    OpenedModel,
    PredictWith,
    UnreadableError,
    check_sample_weight,
    comes_from,
    families,
    family_of,
    fit_params_of,
    fresh,
    is_fitted,
    is_frozen,
    is_module,
    is_tensor,
    learnt,
    open_model,
    predictions,
    predicts_as,
    refuse_crashing,
    routed,
    trainable,
    unwrapped,
    without_names,
)
from calliper.models._distributions import (
    QuantileModel,
    asked_as,
    quantiles_out_of_bag,
    with_usual_slope,
    without_asking,
)
from calliper.models._forests import was_trained_on
from calliper.models._networks import Layer, as_array, as_tensor
