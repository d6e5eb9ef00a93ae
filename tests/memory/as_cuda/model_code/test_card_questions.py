"""Model code asks torch.cuda which card it is on, and is answered with the card of the forecast."""

import pytest
import torch
from torch import nn

from brim.hardware.cards import find_card
from brim.memory import forecast


class Asks(nn.Module):
    """Chooses its width by what the card is."""

    def __init__(self, answers: list) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.answers = answers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        properties = torch.cuda.get_device_properties(x.device)
        torch.cuda.synchronize()
        self.answers.append(
            (
                torch.cuda.get_device_capability(x.device), torch.cuda.get_device_name(),
                properties.multi_processor_count, properties.total_memory, torch.cuda.is_bf16_supported(),
                torch.cuda.current_device(),
            )
        )  # fmt: skip
        return self.layer(x)


@pytest.mark.parametrize("name", ["NVIDIA H200", "T4"])
def test_the_answers_are_those_of_the_card(name: str) -> None:
    card, answers = find_card(name), []
    forecast(lambda: Asks(answers), lambda n: ((torch.empty(n, 8),), {}), batch_size=2, card=card)
    assert set(answers) == {
        (card.capability, card.name, card.multiprocessors, card.memory, card.is_capable_of_bf16, 0)
    }  # fmt: skip


def test_afterwards_torch_answers_for_itself() -> None:
    asked = torch.cuda.get_device_capability, torch.cuda.get_device_properties
    forecast(lambda: Asks([]), lambda n: ((torch.empty(n, 8),), {}), batch_size=2, card="T4")
    assert (torch.cuda.get_device_capability, torch.cuda.get_device_properties) == asked
