"""Models for benchmarks/capture_proof.py: what people train, each with some batches of one shape on the GPU.

Nothing is downloaded: weights are random, tokens and pixels too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCHES = 8
Batch = Any


@dataclass(frozen=True)
class Model:
    """Something to capture. ``precisions`` are brim's; ``is_compiled``: by torch.compile, before anything else.

    ``is_refused``: rightly so.
    """

    make: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Batch], Tensor] | None
    batch: Callable[[int], Batch]  # the number of the batch
    precisions: tuple[str, ...] = ("32", "bf16")
    is_compiled: bool = False
    is_refused: bool = False

    def batches(self) -> list[Batch]:
        return [_on_gpu(self.batch(number)) for number in range(BATCHES)]


def _on_gpu(batch: Batch) -> Batch:
    if isinstance(batch, dict):
        return {name: tensor.cuda() for name, tensor in batch.items()}
    return tuple(tensor.cuda() for tensor in batch)


class Masked(nn.Module):
    """A small encoder with everything that a graph can get wrong: dropout, a padding mask, statistics, a clip."""

    def __init__(self, width: int = 64, vocabulary: int = 100) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.norm, self.statistics = nn.LayerNorm(width), nn.BatchNorm1d(width)
        self.heads, self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 10)
        self.noise = nn.Dropout(0.2)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.table(tokens))
        parts = self.heads(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, attn_mask=mask[:, None, None, :].bool())
        x = x + self.noise(self.mixed(seen.transpose(1, 2).flatten(2)))
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        logits: Tensor = self.out(self.noise(F.gelu(self.statistics(mean))))
        return logits


def masked_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["tokens"], batch["mask"]).float(), batch["labels"])


def masked_batch(number: int, samples: int = 32, length: int = 24) -> dict[str, Tensor]:
    """The mask is the last tensor: the one that mutations make stale."""
    generator = torch.Generator().manual_seed(number)
    tokens = torch.randint(100, (samples, length), generator=generator)
    lengths = torch.randint(3, length, (samples, 1), generator=generator)
    labels = torch.randint(10, (samples,), generator=generator)
    return {"tokens": tokens, "labels": labels, "mask": (torch.arange(length) < lengths).float()}


def text_batch(number: int, samples: int, length: int, vocabulary: int, is_padded: bool, classes: int | None) -> Batch:
    generator = torch.Generator().manual_seed(number)
    tokens = torch.randint(5, vocabulary, (samples, length), generator=generator)
    lengths = torch.randint(length // 4, length, (samples, 1), generator=generator)
    mask = (torch.arange(length) < lengths).long() if is_padded else torch.ones(samples, length, dtype=torch.long)
    tokens = tokens * mask + (1 - mask)
    labels = tokens.masked_fill(mask == 0, -100)
    if classes is not None:
        labels = torch.randint(classes, (samples,), generator=generator)
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def own_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    loss: Tensor = model(**batch).loss
    return loss


def language_models(size: str) -> dict[str, Model]:
    """Encoders with a padding mask, a vision transformer, decoders with and without padding; tiny, or of their size."""
    import transformers as hf

    tiny = size == "tiny"
    encoder = (
        {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128} if tiny else {}
    )
    decoder = {"n_embd": 64, "n_layer": 2, "n_head": 4} if tiny else {}
    samples, length = (8, 32) if tiny else (32, 128)

    def text(vocabulary: int, is_padded: bool = True, classes: int | None = None) -> Callable[[int], Batch]:
        return lambda number: text_batch(number, samples, length, vocabulary, is_padded, classes)

    def pictures(number: int) -> Batch:
        generator = torch.Generator().manual_seed(number)
        side = 32 if tiny else 224
        return {
            "pixel_values": torch.randn(samples, 3, side, side, generator=generator),
            "labels": torch.randint(10, (samples,), generator=generator),
        }

    def llama() -> nn.Module:
        import peft

        shape = {"intermediate_size": 128, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
        if not tiny:
            shape = {"intermediate_size": 2048, "num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
        config = hf.LlamaConfig(vocab_size=1000, num_key_value_heads=4, use_cache=False, **shape)
        adapters = peft.LoraConfig(r=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        return peft.get_peft_model(hf.LlamaForCausalLM(config), adapters)

    vit = {**encoder, "image_size": 32, "patch_size": 8} if tiny else {}
    gpt2 = Model(
        lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=1000, use_cache=False, **decoder)), own_loss, text(1000)
    )
    return {
        "BERT, two classes": Model(
            lambda: hf.BertForSequenceClassification(hf.BertConfig(**encoder)), own_loss, text(30000, classes=2)
        ),
        "BERT, masked tokens": Model(
            lambda: hf.BertForMaskedLM(hf.BertConfig(vocab_size=1000, **encoder)), own_loss, text(1000)
        ),
        "RoBERTa, labels of tokens": Model(
            lambda: hf.RobertaForTokenClassification(hf.RobertaConfig(vocab_size=1000, num_labels=1000, **encoder)),
            own_loss, text(1000),
        ),
        "ViT": Model(lambda: hf.ViTForImageClassification(hf.ViTConfig(num_labels=10, **vit)), own_loss, pictures),
        "GPT-2, padded": gpt2,
        "GPT-2, padded, compiled": Model(gpt2.make, own_loss, gpt2.batch, ("bf16",), is_compiled=True),
        "Llama + LoRA, padded": Model(llama, own_loss, text(1000)),
        "Llama + LoRA, no padding": Model(llama, own_loss, text(1000, is_padded=False)),
    }  # fmt: skip


class Forecaster(nn.Module):
    """``between`` is the dropout of cuDNN's between the layers, ``after`` that of torch's behind them."""

    def __init__(self, hidden: int, layers: int, between: float = 0.0, after: float = 0.0) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, hidden, layers, batch_first=True, dropout=between)
        self.noise, self.out = nn.Dropout(after), nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.out(self.noise(self.lstm(x)[0][:, -1]))
        return value


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.BatchNorm2d(32),
            nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found


def squared_error(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(batch[0]).float(), batch[1])


def classified(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]).float(), batch[1])


def series(number: int, samples: int) -> Batch:
    x = torch.randn(samples, 30, 16, generator=torch.Generator().manual_seed(number))
    return x, x[:, -5:, 0].sum(1, keepdim=True)


def small_pictures(number: int) -> Batch:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(32, 3, 16, 16, generator=generator), torch.randint(10, (32,), generator=generator)


def other_models() -> dict[str, Model]:
    """Those of benchmarks/step.py, and a convolution."""
    from step import wide_recommender

    from brim.workloads.recommender import BPR

    def pairs(number: int) -> Batch:
        generator = torch.Generator().manual_seed(number)
        return tuple(torch.randint(rows, (2048,), generator=generator) for rows in (6040, 3706, 3706))

    return {
        "LSTM 64 x 2, batch 128": Model(lambda: Forecaster(64, 2), squared_error, lambda n: series(n, 128)),
        "LSTM 256 x 3, batch 512": Model(lambda: Forecaster(256, 3), squared_error, lambda n: series(n, 512)),
        "LSTM 64 x 2, nn.Dropout": Model(lambda: Forecaster(64, 2, after=0.2), squared_error, lambda n: series(n, 128)),
        "LSTM 64 x 2, dropout of cuDNN": Model(  # torch draws its seed on the GPU and reads it on the host
            lambda: Forecaster(64, 2, between=0.2), squared_error, lambda n: series(n, 128), is_refused=True
        ),
        "BPR, batch 2,048": Model(lambda: BPR(6040, 3706, embed_dim=64), None, pairs, ("32",)),
        "recommender, 768-wide texts": Model(wide_recommender, None, pairs, ("tf32",)),
        "convolutions with BatchNorm": Model(Convolved, classified, small_pictures),
        "masked encoder": Model(Masked, masked_loss, masked_batch, ("32", "bf16", "fp16")),
    }
