"""The typed configuration.

In: YAML, overrides, or a function of the user's. Out: a checked configuration, and the workload that it names, ready
to train or to plan.
"""

from brim.config.load import load_config
from brim.config.recommender import RecommenderConfig
from brim.workloads.sections import show_config

__all__ = ["RecommenderConfig", "load_config", "show_config"]
