import pytest
import torch
from torch import nn

from brim.memory.as_cuda.devices import GpuMeansHere

X = torch.ones(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: X.cuda(),
        lambda: X.cuda("cuda:1"),
        lambda: X.to("cuda"),
        lambda: X.to("cuda:3", torch.float64),
        lambda: X.to(device=torch.device("cuda")),
        lambda: X.pin_memory(),
        lambda: torch.zeros(3, device="cuda"),
        lambda: torch.zeros(3, pin_memory=True),
        lambda: torch.tensor([1, 2], device=torch.device("cuda", 1)),
        lambda: torch.rand(3, device="cuda"),
        lambda: nn.Linear(2, 2).cuda().weight,
        lambda: nn.Linear(2, 2).to("cuda").weight,
        lambda: nn.Linear(2, 2, device="cuda").weight,
    ],
)
def test_the_gpu_is_here(make) -> None:
    with GpuMeansHere():
        assert make().device.type == "cpu"


def test_types_are_still_changed() -> None:
    with GpuMeansHere():
        assert X.to("cuda", torch.float64).dtype == torch.float64
        assert X.to("cuda").dtype == torch.float32


def test_other_devices_stay_what_they_are() -> None:
    with GpuMeansHere():
        assert torch.zeros(2, device="meta").device.type == "meta"
        assert X.to("cpu") is X


@pytest.mark.parametrize(
    "make", [lambda: X.to(0), lambda: torch.zeros(2, device=0), lambda: nn.Linear(2, 2).to(0).weight]
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU of that number")
def test_the_gpu_is_here_by_its_number(make) -> None:
    with GpuMeansHere():
        assert make().device.type == "cpu"
