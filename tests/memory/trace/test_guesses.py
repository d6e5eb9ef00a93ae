"""Loops that end when the data says so end in a forecast too."""

import pytest
import torch
from torch import nn

from brim.errors import ModelError
from brim.hardware.cards import H200
from brim.memory import forecast
from brim.memory.trace import guesses
from brim.memory.trace.guesses import Guesses


class Loops(nn.Module):
    """A layer that is applied in a loop."""

    def __init__(self, loop) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.loop = loop

    def forward(self, x):
        return self.loop(self.layer, x)


def predict(loop):
    return forecast(lambda: Loops(loop), lambda n: ((torch.randn(n, 8),), {}), batch_size=4, card=H200)


def adaptive(layer, x):
    """An integrator: where the error is too large it takes a smaller step, and again."""
    time, step = 0.0, 0.1
    while time < 1:
        tried = x + step * layer(x)
        error = (tried - x).abs().max().item()
        if error < 1e-2:
            x, time = tried, time + step
        step = min(0.5, step * 0.9 * (1e-2 / max(error, 1e-8)) ** 0.5)
    return layer(x)


def until_large(layer, x):
    while (size := x.norm().item()) < 100:
        x = x + layer(x).abs() * size
    return layer(x)


def until_set(layer, x):
    y = layer(x)
    while not (y > 0).any():
        y = y + 1
    return y


def until_some(layer, x):
    while int((layer(x) * 10).sum()) < 2:
        x = x + 1
    return layer(x)


@pytest.mark.parametrize("loop", [adaptive, until_large, until_set, until_some])
def test_a_loop_until_the_data_is_as_it_shall_be_ends(loop, monkeypatch) -> None:
    monkeypatch.setattr(guesses, "PATIENCE", 20)
    assert predict(loop).allocated > 0


def test_a_loop_that_never_ends_is_told_with_its_line(monkeypatch) -> None:
    monkeypatch.setattr(guesses, "OF_FLOATS", 5)
    monkeypatch.setattr(guesses, "MOST", 20)

    def forever(layer, x):
        while x.sum().item() != 0.123:
            x = layer(x)
        return x

    line = f"{__file__}:{forever.__code__.co_firstlineno + 1}"
    with pytest.raises(ModelError, match=f"^{line} asks for a number that only the data knows, over and over"):
        predict(forever)


def test_rows_of_a_batch_are_told_the_same() -> None:
    asked = Guesses()
    assert {asked.answer(False) for _ in range(guesses.PATIENCE)} == {False}


def test_each_pass_begins_anew(monkeypatch) -> None:
    monkeypatch.setattr(guesses, "PATIENCE", 1)
    asked, told = Guesses(), []
    for _ in range(2):
        told.append([asked.answer(False) for _ in range(2)])
        asked.begin_pass()
    assert told == [[False, True]] * 2


def test_what_is_no_number_is_never_another() -> None:
    asked = Guesses()
    assert {asked.answer("text") for _ in range(guesses.PATIENCE + 1)} == {"text"}
