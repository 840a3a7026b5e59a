"""The space in which distances are measured, and what is learnt of the model's errors."""

from calliper.space._embedding import check_embed, fit_embedding, learnt_from_training, warn_if_poor
from calliper.space._error_model import ErrorModel, Expected
from calliper.space._learnt_error import learn_errors
from calliper.space._left_out import (
    FEWEST_KEPT,
    FEWEST_TAUGHT,
    LearningPart,
    LeftOut,
    Training,
    deal,
    knows_left_out,
    n_teaching,
    teaching_distributions,
    train_apart,
    why_no_refit,
)
from calliper.space._spaces import RAW, UNTOUCHED, Embedding, repeatable
