"""The local scale: a mean of scores without one point, without two points, and over a bag.

Each kernel registers what it can do here; calibrators ask by kernel and know no closed form.
"""

from calliper.scale._choice import choose_locality
from calliper.scale._dispatch import bag_scale, leave_two_out, local_mean
from calliper.scale._locality import Locality
from calliper.scale._ratio import rescale
from calliper.scale._resolve import resolve_kernel
from calliper.scale._shrunk import ShrunkBag
from calliper.scale._tune import fixed_kernel

__all__ = [
    "Locality",
    "ShrunkBag",
    "bag_scale",
    "choose_locality",
    "fixed_kernel",
    "leave_two_out",
    "local_mean",
    "rescale",
    "resolve_kernel",
]
