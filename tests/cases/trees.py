"""Fewer trees for the model of errors: all of them take a second each time."""

from calliper import ErrorModel

DEFAULTS = ErrorModel.__init__.__kwdefaults__
#: Trees of the shift and of each side.
ALL = DEFAULTS["shift_trees"], DEFAULTS["side_trees"]
FEW = (4,), 4


def with_trees(patch, shift_trees, side_trees):
    """Have ``ErrorModel()`` grow so many trees unless it is told how many."""
    patch.setitem(DEFAULTS, "shift_trees", shift_trees)
    patch.setitem(DEFAULTS, "side_trees", side_trees)
