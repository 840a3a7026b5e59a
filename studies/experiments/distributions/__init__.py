"""Predictive distributions beside those of a peer."""
