"""Where nearness is judged: from inputs to the space where the error lives."""

from calliper.embedding._embedding import Embedding, refuse_changing, warn_if_poor
from calliper.embedding._fit import fit_embedding
from calliper.embedding._layer import Layer
from calliper.embedding._left_out import LeftOut, left_out
from calliper.embedding._training import LEFT_OUT, SEEN, Learnt, Training, check_folds
from calliper.embedding._warning import EmbeddingWarning

__all__ = [
    "LEFT_OUT",
    "SEEN",
    "Embedding",
    "EmbeddingWarning",
    "Layer",
    "Learnt",
    "LeftOut",
    "Training",
    "check_folds",
    "fit_embedding",
    "left_out",
    "refuse_changing",
    "warn_if_poor",
]
