"""How fast, as ratios measured in one run."""
