"""What a caller may want to catch by name."""


class EmbeddingWarning(UserWarning):
    """A space in which nearness can be judged, but not well: the message says why."""
