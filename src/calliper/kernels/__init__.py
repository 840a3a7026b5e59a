"""Nearness: who speaks for a point, and how loudly."""

from calliper.kernels._forest import ForestProximity
from calliper.kernels._knn import KNN
from calliper.kernels._mahalanobis import Mahalanobis
from calliper.kernels._rbf import RBF
from calliper.kernels._tuned import TunedKNN, TunedRBF

__all__ = ["KNN", "RBF", "ForestProximity", "Mahalanobis", "TunedKNN", "TunedRBF"]
