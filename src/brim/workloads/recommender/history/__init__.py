"""Recommending from what people watched: a model without user parameters, and the loader that hides items from it.

In: interactions, and encodings of the items' texts. Out: batches of histories in two parts, a model that ranks items.
"""

from brim.workloads.recommender.history.history_loader import Histories, HistoryLoader
from brim.workloads.recommender.history.history_recommender import HistoryRecommender

__all__ = ["Histories", "HistoryLoader", "HistoryRecommender"]
