import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as torch_optimizer

from brim.hardware.cards import H200
from brim.memory.as_cuda.optimizers import optimizers_as_on_cuda
from brim.memory.forecast import make_job
from brim.memory.trace.steps import trace_steps


def operators(optimizer) -> set[str]:
    """What the steps of an optimizer allocate with."""
    job = make_job(lambda: nn.Linear(8, 8), lambda n: ((torch.randn(n, 8),), {}), None, optimizer)
    trace = trace_steps(job, 4, H200, (2, 11))
    return {storage.operator for storage in trace.storages if storage.phase == "optimizer"}


@pytest.mark.parametrize(
    "optimizer",
    [
        torch.optim.AdamW,
        torch.optim.Adam,
        torch.optim.NAdam,
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.RAdam,
    ],
)
def test_many_tensors_are_stepped_at_once_where_the_user_did_not_choose(optimizer) -> None:
    assert any("_foreach_" in operator for operator in operators(optimizer))


@pytest.mark.parametrize("settings", [{"foreach": False}, {"fused": True}])
def test_what_the_user_chose_is_kept(settings: dict) -> None:
    assert not any("_foreach_" in operator for operator in operators(lambda p: torch.optim.AdamW(p, **settings)))


@pytest.mark.parametrize("name", ["Adadelta", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"])
@pytest.mark.parametrize("foreach", [True, False])
def test_steps_that_a_cuda_graph_may_capture_are_taken_as_on_a_card(name: str, foreach: bool) -> None:
    kind = getattr(torch.optim, name)
    made = operators(lambda p: kind(p, capturable=True, foreach=foreach))
    assert any("_foreach_" in operator for operator in made) == foreach


def test_afterwards_everything_is_as_before() -> None:
    types, devices = (
        list(torch_optimizer._foreach_supported_types),
        torch_optimizer._get_foreach_kernels_supported_devices,
    )
    with pytest.raises(KeyError), optimizers_as_on_cuda():
        assert FakeTensor in torch_optimizer._foreach_supported_types
        assert "cpu" in torch_optimizer._get_foreach_kernels_supported_devices()
        raise KeyError
    assert torch_optimizer._foreach_supported_types == types
    assert torch_optimizer._get_foreach_kernels_supported_devices is devices
