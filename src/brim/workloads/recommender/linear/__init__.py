"""Recommending by item-item weights that are solved in closed form, with texts as further evidence of what is alike.

In: interactions, and encodings of the items' texts. Out: a model that ranks items; there is nothing to be trained.
"""

from brim.workloads.recommender.linear.linear_recommender import LinearRecommender
from brim.workloads.recommender.linear.linear_settings import LinearSettings

__all__ = ["LinearRecommender", "LinearSettings"]
