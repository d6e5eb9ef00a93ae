"""What is another training is told with what it would save."""

import pytest
import torch
from torch import nn

from brim.frontier.leaner import leaner
from brim.memory.forecast import forecast, make_job, make_setting


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(500, 256), nn.Linear(256, 256)

    def forward(self, words):
        return self.out(torch.tanh(self.words(words)))


def sentences(n):
    return (torch.ones(n, 256, dtype=torch.long),), {}


@pytest.fixture(scope="module")
def saved():
    job = make_job(Tagger, sentences, lambda output: output.square().mean())
    return {change.name: change.saves for change in leaner(job, make_setting("NVIDIA A10G", None, None), 64)}


def by(saved, word):
    return next(saves for name, saves in saved.items() if word in name)


def test_each_change_is_told_once_with_what_it_saves_the_most_first(saved):
    assert len(saved) == 5
    assert list(saved.values()) == sorted(saved.values(), reverse=True)


def test_half_the_words_and_half_the_bytes_save_what_a_forecast_of_them_says(saved):
    def reserved(batch=sentences, **more):
        loss = lambda output: output.square().mean()  # noqa: E731
        return forecast(Tagger, batch, loss, batch_size=64, card="NVIDIA A10G", **more).reserved

    assert by(saved, "bf16-true") == reserved() - reserved(precision="bf16-true")
    shorter = lambda n: ((torch.ones(n, 128, dtype=torch.long),), {})  # noqa: E731
    assert by(saved, "half the length") == reserved() - reserved(shorter)


def test_optimizer_state_is_that_of_the_job(saved):
    weights = 500 * 256 + 256 * 256 + 256
    assert by(saved, "host memory") == pytest.approx(2 * 4 * weights, rel=0.02)
    assert by(saved, "8 bits") == pytest.approx(0.75 * 2 * 4 * weights, rel=0.02)
    assert by(saved, "LoRA") >= 0.97 * 2 * 4 * weights
