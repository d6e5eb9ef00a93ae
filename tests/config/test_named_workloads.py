import pytest

from brim.config import load_config
from brim.config.named_workloads import WORKLOADS


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_found_by_its_name_with_its_own_defaults(name):
    named = WORKLOADS[name]
    config = load_config(None, [f"workload={name}"])
    assert type(config) is named.config and config.workload == name
    assert {key: getattr(config.trainer, key) for key in named.trainer_defaults} == dict(named.trainer_defaults)
