"""ctc_loss: the results of torch in shape, and what its CUDA kernel keeps."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from brim.hardware.cards import H200
from brim.memory import forecast
from brim.memory.as_cuda.lengths import UNKNOWN_LENGTHS
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.trace import Recorder

TIME, BATCH, CLASSES, LONGEST = 50, 4, 8, 10


def trace_of(lengths, reduction: str = "mean", concatenated: bool = False):
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        scores = torch.empty(TIME, BATCH, CLASSES, requires_grad=True)
        targets = torch.ones((BATCH * LONGEST,) if concatenated else (BATCH, LONGEST), dtype=torch.long)
        recorder.watching = True
        loss = functional.ctc_loss(scores, targets, [TIME] * BATCH, lengths(), reduction=reduction)
        loss.sum().backward()
        assert scores.grad.shape == scores.shape
        return tuple(loss.shape), recorder.finish()


@pytest.mark.parametrize(("reduction", "shape"), [("mean", ()), ("sum", ()), ("none", (BATCH,))])
def test_the_loss_has_the_shape_of_its_reduction(reduction: str, shape: tuple[int, ...]) -> None:
    assert trace_of(lambda: [5] * BATCH, reduction)[0] == shape


@pytest.mark.parametrize(
    "lengths",
    [lambda: [3, 5, 2, 1], lambda: torch.tensor([3, 5, 2, 1]), lambda: torch.arange(BATCH) + 2],
    ids=["list", "tensor", "computed"],
)
@pytest.mark.parametrize("concatenated", [False, True])
def test_prefixes_are_kept_up_to_the_longest_target(lengths, concatenated: bool) -> None:
    trace = trace_of(lengths, concatenated=concatenated)[1]
    assert [storage.size for storage in trace.storages].count(BATCH * TIME * (2 * 5 + 1) * 4) == 2  # forward, backward
    assert trace.notes == []


@pytest.mark.parametrize(("concatenated", "most"), [(False, LONGEST), (True, BATCH * LONGEST)])
def test_unknown_lengths_are_the_longest_with_a_note(concatenated: bool, most: int) -> None:
    trace = trace_of(lambda: torch.empty(BATCH, dtype=torch.long), concatenated=concatenated)[1]
    assert BATCH * TIME * (2 * most + 1) * 4 in [storage.size for storage in trace.storages]
    assert trace.notes == [UNKNOWN_LENGTHS]


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize("criterion", [nn.CTCLoss(), nn.CTCLoss(zero_infinity=True, reduction="sum")])
def test_a_model_is_trained_with_it(criterion: nn.Module, precision: str) -> None:
    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, CLASSES)

        def forward(self, sound, text, sound_lengths, text_lengths):
            scores = self.layer(sound).log_softmax(-1).transpose(0, 1)
            return criterion(scores, text, sound_lengths, text_lengths)

    def batch(n: int):
        text = torch.ones(n, LONGEST, dtype=torch.long)
        return (torch.randn(n, TIME, 16), text, torch.full((n,), TIME), torch.randint(1, LONGEST, (n,))), {}

    assert forecast(Speech, batch, batch_size=BATCH, card=H200, precision=precision).notes == ()


def test_one_sequence_needs_no_batch() -> None:
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        scores = torch.empty(TIME, CLASSES)
        loss = torch.ctc_loss(scores, torch.ones(3, dtype=torch.long), torch.tensor([TIME]), torch.tensor([3]), 0, 0)
        assert loss.shape == ()
