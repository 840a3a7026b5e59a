"""A predicted distribution in its normal units, in fractions: written from the definition.

The curve q(z) goes through (z_k, q_k) piecewise linearly, and on beyond both ends with slopes that
are no less than half of its mean slope, which is moved a quarter of the way to a usual one.
"""

from fractions import Fraction
from itertools import pairwise

from scipy.special import ndtri


class Curve:
    def __init__(self, probabilities, quantiles, slope=None):
        self.z = sorted(Fraction(float(ndtri(p))) for p in probabilities)
        self.q = sorted(Fraction(q) for q in quantiles)
        knots = list(zip(self.z, self.q, strict=True))
        slopes = [(b - a) / (w - v) for (v, a), (w, b) in pairwise(knots)]
        mean = (self.q[-1] - self.q[0]) / (self.z[-1] - self.z[0])
        least = mean / 2 if slope is None else (mean * 3 / 4 + Fraction(slope) / 4) / 2
        #: Pieces as (from z, to z, a point on it, slope); None where there is no end.
        self.pieces = [
            (None, self.z[0], knots[0], max(slopes[0], least)),
            *(
                (v, w, (v, a), s)
                for ((v, a), (w, _)), s in zip(pairwise(knots), slopes, strict=True)
            ),
            (self.z[-1], None, knots[-1], max(slopes[-1], least)),
        ]

    def at(self, z):
        """q(z)."""
        for low, high, (v, a), slope in self.pieces:
            if (low is None or z >= low) and (high is None or z <= high):
                return a + slope * (z - v)
        raise AssertionError(z)

    def score(self, y):
        """The z of least size with q(z) = y; None if there is none."""
        found = []
        for low, high, (v, a), slope in self.pieces:
            if slope:
                z = v + (y - a) / slope
                if (low is None or z >= low) and (high is None or z <= high):
                    found.append(z)
            elif y == a:
                nearest = Fraction(0)
                nearest = nearest if low is None else max(nearest, low)
                found.append(nearest if high is None else min(nearest, high))
        return min(found, key=abs) if found else None
