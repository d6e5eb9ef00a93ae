"""The workloads that ``workload: NAME`` starts. Each owns its configuration and its program; here is only the list."""

from brim.config.recommender import TRAINER_DEFAULTS, RecommenderConfig
from brim.config.recommender_workload import RecommenderWorkload
from brim.workloads import classifier
from brim.workloads.forecaster.config import TRAINER_DEFAULTS as FORECASTER_DEFAULTS
from brim.workloads.forecaster.config import ForecasterConfig
from brim.workloads.forecaster.workload import ForecasterWorkload
from brim.workloads.workload import NamedWorkload

WORKLOADS: dict[str, NamedWorkload] = {
    "classifier": NamedWorkload(
        classifier.ClassifierConfig, classifier.ClassifierWorkload, classifier.TRAINER_DEFAULTS
    ),
    "forecaster": NamedWorkload(ForecasterConfig, ForecasterWorkload, FORECASTER_DEFAULTS),
    "recommender": NamedWorkload(RecommenderConfig, RecommenderWorkload, TRAINER_DEFAULTS),
}
