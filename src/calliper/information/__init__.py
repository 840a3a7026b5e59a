"""How much do scores still depend on the input?"""

from calliper.information._estimate import MutualInformation, mutual_information
from calliper.information._rank_ksg import random_ranks, rank_ksg

__all__ = ["MutualInformation", "mutual_information", "random_ranks", "rank_ksg"]
