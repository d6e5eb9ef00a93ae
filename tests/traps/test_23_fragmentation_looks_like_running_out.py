"""Trap 23: the card has enough memory, in pieces; the message must let one see it."""

import torch
from torch import nn

from brim.engine.oom.out_of_memory import Shortage, held_by_part


def test_what_is_reserved_and_unused_stands_in_the_message(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 5 << 30)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 7 << 30)
    model = nn.Linear(512, 512, bias=False)

    class OnCuda:
        """The model, as it would say of itself on a GPU."""

        def parameters(self):
            parameter = next(model.parameters())
            return [Parameter(parameter)]

        def buffers(self):
            return []

    class Parameter:
        device, grad = torch.device("cuda", 0), None

        def __init__(self, parameter):
            self.numel, self.element_size = parameter.numel, parameter.element_size

    held = held_by_part(OnCuda(), None)
    assert held["reserved and unused"] == 2 << 30
    assert held["activations and the rest"] == (5 << 30) - (1 << 20)
    assert "reserved and unused 2.00 GiB" in Shortage("forward pass", 1, "", held).sentence()
