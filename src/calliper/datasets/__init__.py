"""Problems to try intervals on, with the best intervals known."""

from calliper.datasets._one_dimensional import OneDimensional, one_dimensional

__all__ = ["OneDimensional", "one_dimensional"]
