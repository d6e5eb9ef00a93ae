"""From a checked configuration to the workload that it names."""

from brim.config.load import RunConfig
from brim.config.named_workloads import WORKLOADS
from brim.config.own_model import OwnModelConfig
from brim.config.own_workload import OwnWorkload
from brim.workloads.workload import Workload


def open_workload(config: RunConfig) -> Workload:
    """The workload of a configuration. Where that is the user's code, this imports it: the one place that does."""
    return OwnWorkload(config) if isinstance(config, OwnModelConfig) else WORKLOADS[config.workload].program(config)
