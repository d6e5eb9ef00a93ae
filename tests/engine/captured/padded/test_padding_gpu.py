"""Ragged batches in real graphs: BERT as transformers has it, beside the same training with eager steps."""

import pytest
import torch
from helpers.padded_batches import tokens

import brim

pytestmark = pytest.mark.gpu
LENGTHS = (40, 17, 63, 33, 52, 28, 61, 45)


def data(batches=120):
    found = []
    for number in range(batches):
        batch = tokens(LENGTHS[number % len(LENGTHS)], size=8, seed=number, pad=0)
        found.append({**batch, "labels": (batch["input_ids"].sum(1) % 2).long()})
    return found


def trained(folder, capture, dropout=0.0, **settings):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=60, **sizes, **rates))
    trainer = brim.Trainer(
        model, data(), optimizer="SGD", lr=0.05, epochs=2, capture=capture, run_dir=folder, **settings
    )  # fmt: skip
    trainer.fit()
    return torch.cat([p.detach().double().flatten() for p in model.parameters()]), trainer


@pytest.mark.parametrize("precision", ["32", "bf16-mixed", "16-mixed"])
def test_a_few_graphs_serve_all_lengths_and_the_training_is_the_same(tmp_path, precision):
    plain, _ = trained(tmp_path / "eager", "off", precision=precision)
    found, trainer = trained(tmp_path / "padded", "padded", precision=precision)
    report = trainer.captured
    assert report.captured and 2 <= report.graphs <= 4, report
    assert report.replays > report.eager
    assert float((found - plain).norm() / plain.norm()) <= (1e-5 if precision == "32" else 1e-2)


def test_with_dropout_it_is_captured_too(tmp_path):
    found, trainer = trained(tmp_path / "padded", "padded", dropout=0.1)
    assert trainer.captured.captured and trainer.captured.replays > trainer.captured.eager
    assert bool(found.isfinite().all())


def test_without_the_name_nothing_is_padded(tmp_path):
    plain, _ = trained(tmp_path / "eager", "off")
    found, trainer = trained(tmp_path / "auto", "auto")
    assert trainer.captured.graphs <= 4
    assert float((found - plain).norm() / plain.norm()) <= 1e-5
