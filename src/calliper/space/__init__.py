"""Where nearness is judged: from inputs to the space where the error lives."""

from calliper.space._embedding import (
    RAW,
    UNTOUCHED,
    Embedding,
    fit_embedding,
    learnt_from_training,
    refuse_changing,
    warn_if_poor,
)
from calliper.space._error_model import ErrorModel, Expected
from calliper.space._learnt_error import learn_errors
from calliper.space._left_out import (
    LearningPart,
    LeftOut,
    Training,
    checked_gap,
    deal,
    knows_left_out,
    n_teaching,
    split_rows,
    teaching_distributions,
    train_apart,
    why_no_refit,
)
