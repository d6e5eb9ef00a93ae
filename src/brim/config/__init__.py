"""The typed configuration."""

from brim.config.load import load_config, show_config
from brim.config.recommender import RecommenderConfig

__all__ = ["RecommenderConfig", "load_config", "show_config"]
