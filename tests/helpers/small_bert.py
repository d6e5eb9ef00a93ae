"""A BERT of a few thousand weights with dropout, data for it, and the arguments of a transformers.Trainer on a CPU."""

from typing import Any

import torch

WORDS = 64


def bert() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForSequenceClassification(BertConfig(vocab_size=WORDS, max_position_embeddings=16, **sizes))


def samples(count: int = 20) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    return [{"input_ids": torch.randint(0, WORDS, (8,), generator=generator), "labels": n % 2} for n in range(count)]


def arguments(folder: Any, **more: Any) -> Any:
    from transformers import TrainingArguments

    chosen = {
        "num_train_epochs": 1, "per_device_train_batch_size": 4, "logging_steps": 1, "report_to": [], "use_cpu": True,
        "save_strategy": "no", "disable_tqdm": True, "learning_rate": 0.01, **more,
    }  # fmt: skip
    return TrainingArguments(str(folder), **chosen)
