"""The forecast of a language model whose logits are computed in chunks."""

import pytest
import torch

import brim
from brim.errors import ConfigError

WORDS, TOKENS = 20_000, 64


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=1, n_head=2, n_positions=TOKENS))


def batch(n):
    words = torch.zeros(n, TOKENS, dtype=torch.long)
    return (), {"input_ids": words, "labels": words}


def test_logits_of_all_tokens_are_not_in_it():
    job = {"model": gpt2, "batch": batch, "batch_size": 64, "precision": "bf16", "card": "NVIDIA H200"}
    whole, chunked = (brim.forecast(**job, logits=logits) for logits in ("whole", "chunked"))
    logits = 64 * TOKENS * WORDS
    assert whole.allocated > 8 * logits
    assert chunked.allocated < 5 * logits
    # a chunk of 32 million logits: the product in 2 bytes beside float32, or float32 twice, and then in 2 bytes again
    assert chunked.allocated > 8 * 1664 * WORDS
    assert chunked.notes == whole.notes


def test_the_loss_of_ones_own_is_followed():
    def forecast(loss_of):
        job = {"model": lambda: _Own(loss_of), "batch": lambda n: ((torch.empty(n, 16),), {})}
        return brim.forecast(**job, batch_size=8192, card="NVIDIA H200").allocated

    chunked = forecast(lambda hidden, weight, targets: brim.linear_cross_entropy(hidden, weight, targets, chunk=256))
    whole = forecast(lambda hidden, weight, targets: torch.nn.functional.cross_entropy(hidden @ weight.T, targets))
    assert whole - chunked > 8 * (8192 - 256) * WORDS - (64 << 20)


class _Own(torch.nn.Module):
    def __init__(self, loss_of):
        super().__init__()
        self.head = torch.nn.Linear(16, WORDS, bias=False)
        self.loss_of = loss_of

    def forward(self, hidden):
        targets = torch.zeros(len(hidden), dtype=torch.long)
        return self.loss_of(hidden, self.head.weight, targets)


def test_a_model_without_such_a_layer_is_refused():
    with pytest.raises(ConfigError, match="linear_cross_entropy"):
        brim.forecast(
            lambda: torch.nn.Linear(2, 2), lambda n: ((torch.empty(n, 2),), {}), batch_size=2, logits="chunked"
        )


@pytest.mark.slow
def test_a_configuration_is_forecast_as_it_is_trained(tmp_path, monkeypatch):
    from brim.config import load_config
    from brim.config.workload import open_workload

    (tmp_path / "words.py").write_text(
        "import torch\n"
        "from transformers import GPT2Config, GPT2LMHeadModel\n"
        "def build():\n"
        f"    config = GPT2Config(vocab_size={WORDS}, n_embd=32, n_layer=1, n_head=2, n_positions={TOKENS})\n"
        f"    words = torch.zeros(64, {TOKENS}, dtype=torch.long)\n"
        "    data = [{'input_ids': words, 'labels': words}]\n"
        "    return {'model': GPT2LMHeadModel(config), 'train_data': data}\n"
    )
    (tmp_path / "words.yaml").write_text("workload: words.py:build\n")
    monkeypatch.chdir(tmp_path)
    peaks = []
    for logits in ("whole", "chunked"):
        config = load_config("words.yaml", [f"trainer.logits={logits}", "trainer.precision=bf16-mixed"])
        job = open_workload(config).plan_job()
        peaks.append(brim.plan(**job, card="NVIDIA H200").forecast.allocated)
    assert peaks[1] < 0.7 * peaks[0]
