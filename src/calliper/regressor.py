"""Model and method together: intervals around a model that is trained once."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

from calliper._answering import Answers
from calliper._estimator import CalibratedRegressor
from calliper.scores import Score


@dataclass(eq=False, repr=False)
class ConformalRegressor(CalibratedRegressor, Answers):
    """Prediction intervals for any regression model, wider where its errors are larger.

    Parameters
    ----------
    estimator : regressor or callable
        A scikit-learn regressor, fitted (for :meth:`calibrate`) or not (for :meth:`fit`), or any
        function from inputs to predictions (for :meth:`calibrate`). Pass fitted models of one
        quantile each as ``{0.05: low, 0.5: middle, 0.95: high}``, or as a list if their
        parameters say which quantile.
    calibrator : calibrator, default FullRescaled()
        The method that turns calibration errors into radii; see :class:`FullRescaled` for how its
        kernel and its locality are chosen, never from calibration errors.
    score_function : score, default AbsoluteError()
        How an error is measured. ``SignedError`` gives one-sided bounds or two radii,
        ``QuantileError`` takes a model of quantiles (with ``Split``, that is CQR). For known kinds
        of models that predict three quantiles or more, or a distribution, ``DistributionError``
        is the default. (The name ``score`` is taken by scikit-learn's method.)
    embed : "auto", "inputs", "prediction", layer name, transformer or callable, default "auto"
        The space where nearness is judged (not by ``Split``); calibration rows never determine it.

        ``"auto"`` looks at the fitted model: prediction and spread of the members for forests and
        bagging (of a class of your own, if their mean predicts as it does), how far the last
        stages move it for gradient boosting, standard deviation where the model states one, the
        penultimate layer of a network; for others standardised inputs and prediction (without
        training rows the prediction alone, for a linear model what each input adds). Where
        left-out errors are known, the expected error is a coordinate instead of the inputs.
        Categories, text, dates and sparse columns are turned into numbers by training rows.

        ``"inputs"`` (or None) are the inputs, standardised by training rows where there are any;
        methods that work on the inputs themselves (``ForestProximity(forest)``, the basis of
        ``ConditionalCalibration``) get them unchanged. Any other text names a layer of a PyTorch
        module, as ``module.named_modules()`` does. A transformer is fitted to training rows; a
        function, module or ``Layer`` is used as it is.
    calibration_size : float or int, default 0.25
        Share (or number) of the rows that :meth:`fit` holds out for calibration; of the groups,
        if :meth:`fit` is given ``split_groups``.
    shuffle : bool, optional
        Whether :meth:`fit` holds out rows at random. For rows in order of time choose False: the
        last rows are held out, and refits leave out blocks of consecutive rows. By default rows
        are drawn at random, with a ``RowOrderWarning`` if they carry times in order; True says
        that the order does not matter.
    gap : int, default 0
        With ``shuffle=False``, rows that are left out between the parts (training, held out,
        refitted, learnt from): for rows that overlap in time, such as targets of the next 24 hours.
    error_model : "auto", ErrorModel or None, default "auto"
        What is learnt from left-out errors besides nearness: where the model is biased, which
        moves the centre of the interval away from the prediction, and how large errors are on
        either side. ``"auto"`` learns both for absolute errors, and for models of distributions,
        with a calibrator that uses left-out errors, as the default does;
        ``ErrorModel(recentre=False)`` keeps the prediction inside its interval, None learns
        neither. Rows that calibrate are not used, so the guarantee is the same.
    learning_part : "auto", float, int or None, default "auto"
        Calibration rows from which to learn how the model errs; the others calibrate. A share, a
        number, or None for no row. They are drawn at random by ``random_state``, from each group by
        itself; with ``shuffle=False`` they are the first. ``"auto"``, for calibrators that use
        left-out errors, splits 300 rows or more: at least 200 rows and 35 % of all calibrate, and
        at most 8,000 are learnt from. For a model of distributions it splits 100 rows or more; of
        up to 500, at least 120 and 40 % calibrate, but no more than 60 %. If left-out errors of
        training rows are known, ``"auto"`` takes no calibration rows; a share or a number adds them
        to these. A level that only all rows together can support uses plain split on all rows, with
        a warning.
    refits : int, optional
        Refits for out-of-fold errors on training rows, for calibrators that use them; a model
        with bags has out-of-bag errors instead. By default :meth:`fit` refits 5 times and
        :meth:`calibrate` never; 0 never refits, nor is a frozen model ever refitted. A booster that
        stopped early is refitted with the ``eval_set`` of :meth:`fit`, else for as many rounds.
    random_state : int, RandomState or None
        Splits the data, and seeds a calibrator that has no ``random_state`` of its own.
    progress : callable or True, optional
        Is called with the share of training that is done; ``True`` shows it.

    Attributes
    ----------
    calibration_ : what :meth:`fit` or :meth:`calibrate` made; the other attributes are read from it
    estimator_ : the model whose predictions are the centre of the intervals
    calibrator_, calibrators_ : the fitted calibrator; one for each tail of the score
    embedding_ : the fitted map to the space where nearness is judged; its repr says which
    left_out_ : training rows with out-of-fold or out-of-bag predictions, or None
    error_model_ : the fitted model of errors, or None
    no_guarantee_ : why there is no guarantee, in words, or None
    score_ : how an error is measured

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 1))
    >>> y = X[:, 0] + X[:, 0] * rng.normal(size=1000)
    >>> model = ConformalRegressor(LinearRegression(), random_state=0).fit(X, y)
    >>> lower, upper = model.predict_interval([[0.1], [0.9]], coverage=0.9)
    >>> (upper - lower).round(1)
    array([0.3, 2.9])
    """

    _: KW_ONLY
    score_function: Score | None = None
    error_model: Any = "auto"
