"""Recommendation from implicit feedback: data, loaders with exact negatives, models and full-ranking evaluation.

In: interactions, with texts about people and items. Out: a model that ranks all items, and its metrics beside
popularity and EASE.
"""

from brim.workloads.recommender.baselines import EASE, Popularity
from brim.workloads.recommender.bpr import BPR
from brim.workloads.recommender.dataset import RecommenderDataset
from brim.workloads.recommender.embedded import EmbeddedDataset
from brim.workloads.recommender.files.atomic_files import AtomicDataset
from brim.workloads.recommender.gpt2_recommender import GPT2RecommenderEnhanced
from brim.workloads.recommender.history import Histories, HistoryLoader, HistoryRecommender
from brim.workloads.recommender.interactions import Interactions
from brim.workloads.recommender.linear import LinearRecommender, LinearSettings
from brim.workloads.recommender.loaders import EvalDataLoader, TrainDataLoader, Triples
from brim.workloads.recommender.movielens import ML1MDataset

__all__ = [
    "BPR",
    "EASE",
    "AtomicDataset",
    "EmbeddedDataset",
    "EvalDataLoader",
    "GPT2RecommenderEnhanced",
    "Histories",
    "HistoryLoader",
    "HistoryRecommender",
    "Interactions",
    "LinearRecommender",
    "LinearSettings",
    "ML1MDataset",
    "Popularity",
    "RecommenderDataset",
    "TrainDataLoader",
    "Triples",
]
