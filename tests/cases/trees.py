"""Fewer trees for the model of errors: all of them take a second each time."""

from calliper import ErrorModel


def with_few_trees(patch, shift_trees=(10,), side_trees=10):
    """Have ``ErrorModel()`` grow so many trees unless it is told how many."""
    defaults = ErrorModel.__init__.__kwdefaults__
    patch.setitem(defaults, "shift_trees", shift_trees)
    patch.setitem(defaults, "side_trees", side_trees)
