import pytest
import torch

from brim.errors import ConfigError
from brim.integrations.lightning.modules.epoch_value import EpochValue, as_float, reduction_of


@pytest.mark.parametrize(("reduction", "result"), [("mean", 4.0), ("sum", 6.0), ("min", 1.0), ("max", 5.0)])
def test_numbers_become_one(reduction, result):
    value = EpochValue(reduction)
    value.add(torch.tensor(1.0), 1)
    value.add(5, 3)
    assert value.result().item() == result


def test_half_precision_and_whole_numbers_are_added_up_in_single_precision():
    assert as_float(torch.tensor(1, dtype=torch.bfloat16)).dtype is torch.float32
    assert as_float(torch.tensor([3])).shape == () and as_float(1.0).dtype is torch.float32


def test_functions_of_the_users_own_are_refused():
    assert reduction_of("a", torch.max) == "max"
    with pytest.raises(ConfigError, match=r"self.log\('a'\) has reduce_fx="):
        reduction_of("a", lambda x: x)
