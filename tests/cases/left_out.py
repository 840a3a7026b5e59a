"""Training rows as models see them that were not trained on them; and what that teaches."""

from types import SimpleNamespace

from calliper.scores import AbsoluteError
from calliper.space import Training, learn_errors


def left_out(embedding, X, y, *, n_folds=5, **how):
    """Left-out rows of a fitted model and its space, or None."""
    return Training(X=X, y=y, n_refits=n_folds, **how).left_out(embedding)


def learnt_errors(embedding, X, y, errors, *, chosen):
    """What left-out errors teach, by name."""
    training = Training(X=X, y=y, n_refits=5, random_state=0)
    unseen, score = training.left_out(embedding), AbsoluteError()
    rows = None
    if unseen is not None:
        found = learn_errors(training, unseen, embedding, score, errors, chosen=chosen)
        embedding, score, rows = found
    return SimpleNamespace(
        embedding=embedding, score=score, errors=embedding.space.errors, rows=rows
    )
