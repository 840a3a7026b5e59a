"""Measures of intervals and comparison of methods; the core never imports it.

``metrics`` (of intervals and distributions), ``evaluation`` (methods × problems × splits),
``comparison`` (a verdict on one test set), ``report`` (figures and the page), ``bounds`` (coverage
near one input), ``tuning`` (what a length scale does), ``datasets`` (with known truth). Each is
loaded on first use.
"""

from calliper._handlers import on_demand

__all__ = ["bounds", "comparison", "datasets", "evaluation", "metrics", "report", "tuning"]

__getattr__ = on_demand(__name__, dict(zip(__all__, __all__, strict=True)))
