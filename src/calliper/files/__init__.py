"""Save and load calibrated objects, as one file that every version reads or rejects.

``save`` writes what was calibrated, ``load`` gives it back beside the model, ``inspect`` says what
a file is and promises. Nothing in a file runs when it is opened; see ``_file.py`` for its parts.
"""

from calliper.files._saving import Kept, inspect, load, save

__all__ = ["Kept", "inspect", "load", "save"]
