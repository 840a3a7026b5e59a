"""Modules whose examples cannot be read without PyTorch, which is an extra."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/calliper/scale/_torch*.py"]
