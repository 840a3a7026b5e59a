"""The version, for those below the front door."""

__version__ = "1.0.0"
