"""How a model is calibrated: a score turns predictions into errors, a calibrator is fitted to them.

``calibrate`` takes errors however they came about. ``calibrate_model`` does all that comes before
for a model: it makes the space where nearness is judged, and learns how the model errs.
"""

from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing, indexable

from calliper import _validation as valid
from calliper import calibrators, models
from calliper import space as spaces
from calliper._answering import Calibration as Calibration
from calliper._row_checks import refuse_seen
from calliper._types import AgeingWeights, FloatArray, IntArray
from calliper.calibrators import Calibrator, FullRescaled, Split, as_calibrator, takers_of_weights
from calliper.exceptions import CalliperError, SplitGroupsWarning, UnusedWarning, unheard, warn
from calliper.quantile import effective_size
from calliper.rows import (
    N_PROBES,
    Rows,
    RowSources,
    rows_again,
    rows_of_groups,
    state_of,
    warn_of_errors,
    warn_of_times,
)
from calliper.scores import AbsoluteError, DistributionError, QuantileError, Score
from calliper.shift import check_weights

#: Rows that are needed to tell copies from chance.
ENOUGH_TO_COMPARE = 5
#: Parameters of the regressor that a calibration follows; others may be set later.
FOLLOWED = ("calibrator", "embed", "score_function", "error_model", "learning_part")


def calibrate_model(
    front: Any,
    model: Any,
    X: Any,
    y: FloatArray,
    training: spaces.Training,
    per_row: RowSources,
    order: Any = None,
    lazy: Any = None,
) -> Calibration:
    """Calibrate a fitted model on rows that it has not seen, as the parameters of ``front`` say.

    ``order`` are the numbers of the rows where they were drawn from more; ``lazy`` predicts rows
    that are not all in memory, of which X and y are the first.
    """
    asked, score = models.asked_as(model, front.score_function)
    if isinstance(score, DistributionError):
        score = models.with_usual_slope(score, asked, training.X)
    method: Any = FullRescaled(random_state=front.random_state)
    if front.calibrator is not None:
        method = with_random_state(as_calibrator(front.calibrator), front.random_state)
    if isinstance(method, calibrators.Grouped):  # the method inside is used, and groups separately
        per_row = replace(per_row, groups=method.asked(per_row.groups))
        method = as_calibrator(method.calibrator)
    if isinstance(score, QuantileError) and not method.takes_any_score:
        what = f"{type(method).__name__} does not support QuantileError, which may be negative"
        raise CalliperError(f"{what}: pass calibrator=Split(), or leave score_function out.")
    given = per_row.of_calibration(X)
    if given.groups is not None:  # checked while rows still have the numbers of the user
        rows_of_groups(given.groups)
    if given.weights is not None:
        check_weights(given.weights, some=False)
    # Which rows calibrate must not depend on them. Weights of age follow from their number; other
    # weights are functions of the inputs, so rows that weigh little count like any others here.
    ageing = isinstance(per_row.weights, AgeingWeights)
    n = int(effective_size(given.weights)) if ageing else len(y)
    space, score, left_out, (taught, kept) = _learn(
        front, asked, method, score, X, y, training, given, n
    )
    on_all, at_hand, targets = None, len(y), y
    if len(taught):
        if _alike(given) and lazy is None and y.ndim == 1:
            on_all = _plain(space, X, y)
        X, y, given = _safe_indexing(indexable(X)[0], kept), y[kept], given.take(kept)
        order = kept if order is None else order[kept]
    y_pred, Z = space.predict_and_transform(X)
    slack = slack_of(score, y, y_pred, *space.refuse_changing(X, y_pred, Z))
    probe, said = state_of(X), y_pred[:N_PROBES]
    if probe and valid.is_frame(X):  # without labels, which no file keeps, and a model may read
        with suppress(Exception):
            said, _ = space.predict_and_transform(rows_again(probe))
    if lazy is not None:
        y_pred, given = lazy.located(space)
        targets = given.targets
        if ageing:  # a partition does not know how many rows come after it
            given = replace(given, weights=per_row.weights.of_age(len(targets)))
        # The rows in memory are the first of the collection; all later ones calibrate.
        kept = order = np.append(kept, np.arange(at_hand, len(targets)))
        y_pred, given = y_pred[kept], given.take(kept)
        y, Z = given.targets, given.Z
        columns = [valid.check_vector(each, "y") for each in np.reshape(y, (len(y), -1)).T]
        y = np.stack(columns, axis=1) if len(columns) > 1 else columns[0]
    if method.judges_nearness and _inputs_of(method) is None:
        spaces.warn_if_poor(space, Z)
    tails, length = measured(score, Z, y, y_pred, given), space.length_scale(len(y))
    seen = None if training.X is None else training.seen(space, score, method.uses)
    made = calibrate(method, score, tails, training=seen, left_out=left_out, length_scale=length)
    centre = y_pred if y_pred.ndim == 1 else score.centre(y_pred)
    errors = score.signed(y, y_pred) if y.ndim == 2 else y - centre
    plain = None if on_all is None else on_all.signed_thresholds(np.zeros((1, 1)))[0]
    return replace(
        made,
        model=model,
        space=space,
        left_out=left_out,
        per_row=per_row.remembered(),
        row_trend=warn_of_errors(errors, order, plain, in_time=front.shuffle is False),
        probe=probe,
        predicted=(said, spaces.repeatable(y_pred)),
        chosen=chosen_of(front),
        has_training=training.X is not None,
        n_taught=len(taught),
        on_all=on_all,
        slack=slack,
        target_range=range_of(targets),
    )


def chosen_of(front: Any) -> dict[str, Any]:
    """The parameters that a calibration follows, by name."""
    own = vars(front)
    return {name: own[name] for name in FOLLOWED if name in own}


def slack_of(
    score: Score, y: FloatArray, y_pred: FloatArray, few: IntArray, answers: list[FloatArray]
) -> float | None:
    """Twice the most that a score moves if the model predicts ``few`` rows in another batch.

    A target that ties with the threshold then lies in its interval whatever rows are predicted with
    it. Each row's prediction is scored with the targets of all of them, so that both sides of it
    count. None if the model could not predict one row.
    """
    if len(answers) < 2:
        return None
    if all(np.array_equal(each, y_pred[few]) for each in answers):
        return 0.0
    row, target = np.indices((len(few), len(few))).reshape(2, -1)
    with unheard(Warning):  # the same are raised where scores count
        first, *later = [score.measure(y[few[target]], p[row]) for p in (y_pred[few], *answers)]
    return 2 * float(max(np.abs(each - first).max() for each in later))


def _learn(
    front: Any,
    model: Any,
    method: Calibrator,
    score: Score,
    X: Any,
    y: FloatArray,
    training: spaces.Training,
    given: Rows,
    n: int,
) -> tuple[spaces.Embedding, Score, spaces.LeftOut | None, tuple[IntArray, IntArray]]:
    """The space, the score, left-out errors if used; rows that taught, and rows that calibrate.

    ``n`` is the number of rows by which it is decided whether some of them teach.
    """
    uses, known, part = method.uses, training.X is not None, front.learning_part
    local, chosen = "left_out" in uses, part is not None and part != "auto"
    if local and part == "auto" and _alike(given) and isinstance(score, DistributionError):
        part = spaces.teaching_distributions(len(y))
    elif not chosen and not (local and n >= spaces.FEWEST_KEPT + spaces.FEWEST_TAUGHT):
        part = None  # "auto" is for calibrators that use left-out errors, and for rows to spare
    learns = (local and known) or part is not None
    errors = _checked_error_model(front.error_model, score, learns=learns)
    adjusts = errors is not None and errors.adjusts
    located = method.judges_nearness or local or adjusts or "training" in uses
    spaces.check_embed(front.embed, model)
    auto = isinstance(front.embed, str) and front.embed == "auto"
    # Predictions suffice where rows are only counted; quantiles also show uncertainty.
    bare = not located or (auto and isinstance(score, DistributionError))

    def space_of(rows: spaces.Training) -> spaces.Embedding:
        return spaces.fit_embedding(
            "prediction" if bare else front.embed,
            rows.X,
            X,
            model=model,
            n_outputs=score.n_outputs,
            units=score.units,
            y_train=rows.y,
            raw=_inputs_of(method),
            nearness=method.judges_nearness,
        )

    space, unseen = space_of(training) if known else None, None
    if space is not None and (local or adjusts):
        unseen = training.left_out(space)
    if chosen and errors is None and unseen is None:
        warn(
            f"learning_part={part!r} is not used: {score!r} does not support learning from errors, "
            "or error_model is None. All rows are used to calibrate.",
            UnusedWarning,
        )
    taught, kept = np.empty(0, dtype=np.intp), np.arange(len(y))
    if part is not None and (errors is not None if unseen is None else chosen):
        how: Any = {"shuffle": front.shuffle is not False, "random_state": front.random_state}
        taught, kept = spaces.deal(len(y), part, labels=given.groups, gap=training.gap, **how)
    if len(taught):
        own = spaces.LearningPart(X=_safe_indexing(indexable(X)[0], taught), y=y[taught])
        space = space_of(own) if space is None else space
        errs = own.left_out(space)
        training, unseen = (own, errs) if unseen is None else training.beside(unseen, own, errs)
    space = space_of(training) if space is None else space
    if unseen is None:
        return space, score, None, (taught, kept)
    errors = spaces.ErrorModel(recentre=False, units=False) if errors is None else errors
    made = spaces.learn_errors(training, unseen, space, score, errors, chosen=auto and local)
    return *made, (taught, kept)


def _inputs_of(method: Calibrator) -> Any:
    """The inputs as they are, if the method or its kernel takes them so."""
    if method.takes_inputs:
        return spaces.UNTOUCHED
    return spaces.RAW if method.kernel is not None and method.kernel.takes_inputs else None


def _checked_error_model(given: Any, score: Score, *, learns: bool) -> spaces.ErrorModel | None:
    """What to learn from left-out errors, or None; by default it is learnt if rows allow it."""
    learnable = isinstance(score, AbsoluteError | DistributionError)
    if isinstance(given, str) and given == "auto":
        return spaces.ErrorModel() if learns and learnable else None
    if given is None:
        return None
    if not isinstance(given, spaces.ErrorModel):
        raise TypeError(f"error_model must be 'auto', None or an ErrorModel; got {given!r}.")
    if given.adjusts and not learnable:
        raise CalliperError(
            f"an ErrorModel works only with the absolute error, but score_function is {score!r}. "
            "Leave out one of them."
        )
    return given


def calibrate(method: Calibrator, score: Score, tails: list[Rows], **apart: Any) -> Calibration:
    """Fit a copy to each tail of the errors, by group if rows have groups.

    ``apart`` is what else :meth:`Calibrator.fit_to` takes, such as training rows.
    """
    if tails[0].weights is not None and "weights" not in method.uses:
        raise CalliperError(
            f"{type(method).__name__} does not support weights: {takers_of_weights()}."
        )
    if tails[0].groups is not None:
        method = calibrators.Grouped(method)
    fitted = tuple(clone(method).fit_to(rows, **apart) for rows in tails)
    return Calibration(score=score, calibrators=fitted)


def _alike(rows: Rows) -> bool:
    return rows.groups is None and rows.weights is None


def measured(
    score: Score, Z: Any, y: FloatArray, y_pred: FloatArray, given: Rows | None = None
) -> list[Rows]:
    """Calibration rows as each tail of the score sees them, with groups and weights if given."""
    known = Rows(None) if given is None else given
    magnitudes = score.magnitude(y, y_pred)
    signs = np.sign(score.signed(y, y_pred)) if score.has_sides else None
    tails = score.measure(y, y_pred).reshape(len(y), -1).T
    return [Rows(Z, tail, magnitudes, signs, known.weights, known.groups, y) for tail in tails]


def extended(
    made: Calibration, X: Any, y: FloatArray, y_pred: FloatArray, new: Rows, window: int | None
) -> Calibration:
    """The same with further rows, which have groups and weights if those before had them."""
    enough = len(y) >= ENOUGH_TO_COMPARE
    seen = refuse_seen(made.sketch if enough else None, X, y)
    why = made.no_guarantee or seen
    n = made.n_calibration + len(y)
    n = n if window is None else min(n, valid.at_least(window, 1, "window"))
    ageing, before = made.per_row.weights, made.calibrators
    if isinstance(ageing, AgeingWeights):
        new = replace(new, weights=ageing.of_age(len(y)))
        before = tuple(each.aged(new.weights[0]) for each in before)
    if n < made.n_calibration + len(y) or isinstance(ageing, AgeingWeights):
        warn_of_times(X, y, "extend")
    tails = measured(made.score, new.Z, y, y_pred, new)
    if enough:
        if made.on_all is None:
            made.calibrators[0].warn_if_known(tails[0].scores)
        else:  # it also knows the rows that taught
            made.on_all.warn_if_known(np.abs(y - made.space.middle(X)))
    length = made.space.length_scale(n)
    grown = tuple(
        copy(calibrator).extend_by(rows, window=window, length_scale=length)
        for calibrator, rows in zip(before, tails, strict=True)
    )
    on_all = made.on_all
    if on_all is not None:  # with a window old rows are dropped, and those that taught are old
        on_all = None if window is not None else _plain(made.space, X, y, on_all)
    known = range_of(np.concatenate([made.target_range, y.reshape(len(y), -1)]))
    return replace(made, calibrators=grown, no_guarantee=why, on_all=on_all, target_range=known)


def range_of(targets: FloatArray) -> FloatArray:
    """(2, t) the lowest and the highest of each target, (n,) or (n, t)."""
    columns = targets.reshape(len(targets), -1)
    return np.stack([columns.min(axis=0), columns.max(axis=0)])


def _plain(space: spaces.Embedding, X: Any, y: FloatArray, before: Any = None) -> Any:
    """Plain split on these rows, and on those that it was on before."""
    (rows,) = measured(AbsoluteError(), np.zeros((len(y), 1)), y, space.middle(X))
    return Split().fit_to(rows) if before is None else copy(before).extend_by(rows)


def with_random_state(calibrator: Any, random_state: Any) -> Any:
    """A copy in which every ``random_state`` that is None, also nested, is the given one.

    What the copy shares with the calibrator, such as a trained forest, stays as it is.
    """
    copied = clone(calibrator)
    given, own = calibrator.get_params(), copied.get_params()

    def is_missing(name: str) -> bool:
        owner, _, last = name.rpartition("__")
        shared = owner in own and own[owner] is given[owner]
        return last == "random_state" and own[name] is None and not shared

    return copied.set_params(**dict.fromkeys(filter(is_missing, own), random_state))


def warn_of_groups(held_out: Any) -> str:
    """Why rows of groups promise nothing for rows of new ones, with a warning that says so."""
    n, n_groups = len(held_out), len({str(group) for group in held_out})
    why = (
        f"The {n:,} calibration rows come from {n_groups:,} groups, and rows of the same group are "
        "alike: they are not exchangeable with rows of new groups, for which coverage may be "
        "lower."
    )
    warn(
        f"There is no guarantee with split_groups=. {why} For a guarantee in each known group, "
        "pass groups= and leave split_groups out.",
        SplitGroupsWarning,
    )
    return why
