"""What losses of one kernel allocate beside their number, and the storage that the number lies in."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from brim.hardware.cards import H200
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.trace import Recorder

ELEMENTS = 512 * 384 * 4


def meta(shape: list[int]) -> Tensor:
    return torch.empty(shape, device="meta")


def test_binary_cross_entropy_of_logits(ran: Callable[..., list[str]]) -> None:
    """As measured."""
    logits = meta([512, 384])
    done = ran("aten.binary_cross_entropy_with_logits.default", logits, logits, outputs=(meta([]),))
    assert done == [f"t{ELEMENTS}", f"t{ELEMENTS}", "o0", "t96", "t4", "f4", "f96", f"f{ELEMENTS}", f"f{ELEMENTS}"]


def test_elements_go_once_their_mean_is_there(ran: Callable[..., list[str]]) -> None:
    values, loss = meta([512, 384]), meta([])
    done = ran("aten.mse_loss.default", values, values, outputs=(loss,))
    assert loss.untyped_storage().nbytes() == ELEMENTS
    assert (done[0], done[1], done[-1]) == ("o0", f"t{ELEMENTS}", f"f{ELEMENTS}")
    done = ran("aten.huber_loss.default", values, values, outputs=(meta([]),))
    assert (done[0], done[1], done[-1]) == (f"t{ELEMENTS}", "o0", f"f{ELEMENTS}")
    assert ran("aten.mse_loss.default", values, values, 0, outputs=(values,)) == ["o0"]


@pytest.mark.parametrize(
    "loss",
    [
        functional.mse_loss,
        functional.smooth_l1_loss,
        functional.soft_margin_loss,
        functional.huber_loss,
        functional.l1_loss,
        lambda a, b: functional.binary_cross_entropy(a.sigmoid(), b.sigmoid()),
        lambda a, b: functional.mse_loss(a, b, reduction="sum"),
        lambda a, b: functional.mse_loss(a, b, reduction="none"),
        lambda a, b: functional.mse_loss(a[:1], b),
        lambda a, b: functional.mse_loss(a, b.double()),
    ],
)
def test_a_loss_lies_in_the_storage_that_torch_gives_it(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    def storage_after_backward() -> int:
        values, target = nn.Parameter(torch.rand(64, 48)), torch.rand(64, 48)
        made = loss(values, target)
        made.sum().backward()
        assert values.grad is not None
        return made.untyped_storage().nbytes()

    recorder = Recorder(H200, (2, 11))
    recorder.watching = True
    with as_cuda(H200, (2, 11), recorder), recorder:
        forecast = storage_after_backward()
    assert forecast == storage_after_backward()
