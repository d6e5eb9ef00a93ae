"""Recommendation from implicit feedback: data, loaders with exact negatives, models and full-ranking evaluation."""

from brim.workloads.recommender.embedded import EmbeddedDataset
from brim.workloads.recommender.interactions import Interactions
from brim.workloads.recommender.loaders import EvalDataLoader, TrainDataLoader, Triples
from brim.workloads.recommender.models import BPR, Popularity

__all__ = ["BPR", "EmbeddedDataset", "EvalDataLoader", "Interactions", "Popularity", "TrainDataLoader", "Triples"]
