"""The typed configuration."""

from brim.config.load import load_config
from brim.config.recommender import RecommenderConfig
from brim.workloads.sections import show_config

__all__ = ["RecommenderConfig", "load_config", "show_config"]
