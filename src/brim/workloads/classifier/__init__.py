"""A classifier of pictures and sounds in tar shards: streamed, decoded in the workers, resumed where it was.

In come shards and a configuration (``workload: classifier``); out come a run folder and a model that knows its classes.
"""

from brim.workloads.classifier.classification import Classified, classify
from brim.workloads.classifier.config import TRAINER_DEFAULTS, ClassifierConfig
from brim.workloads.classifier.model import ConvClassifier
from brim.workloads.classifier.program import ClassifierWorkload

__all__ = ["TRAINER_DEFAULTS", "Classified", "ClassifierConfig", "ClassifierWorkload", "ConvClassifier", "classify"]
