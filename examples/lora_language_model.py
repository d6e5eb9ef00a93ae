"""A causal language model fine-tuned with LoRA (pip install peft): python examples/lora_language_model.py

It learns to continue Python: the text is that of torch's own modules, byte by byte. Checkpoints hold what is trained; a
base model of more than 1 MiB is in the run folder once.
"""

from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import brim

LENGTH = 64


def make_text(bytes_read: int) -> dict[str, Tensor]:
    folder = Path(torch.nn.__file__).parent / "modules"
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))[:bytes_read]
    ids = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    ids = ids[: len(ids) // LENGTH * LENGTH].view(-1, LENGTH)
    return {"input_ids": ids, "labels": ids.clone()}


def make_model(width: int = 64, layers: int = 2) -> PeftModel:
    torch.manual_seed(0)
    size = {"n_positions": LENGTH, "n_embd": width, "n_layer": layers, "n_head": 4}
    config = GPT2Config(vocab_size=256, use_cache=False, tie_word_embeddings=False, **size)  # yours is pretrained
    adapters = LoraConfig(
        r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["c_attn"], modules_to_save=["lm_head"],
        fan_in_fan_out=True,
    )  # fmt: skip
    return get_peft_model(GPT2LMHeadModel(config), adapters)


def make_trainer(bytes_read: int = 200_000, epochs: int = 2, **settings: object) -> brim.Trainer:
    text = make_text(bytes_read)
    split = len(text["input_ids"]) * 9 // 10
    train, valid = ({name: ids[part] for name, ids in text.items()} for part in (slice(split), slice(split, None)))
    loader = brim.Loader(train, batch_size=32)
    return brim.Trainer(make_model(), loader, valid, optimizer="AdamW", lr=3e-3, epochs=epochs, **settings)


if __name__ == "__main__":
    trainer = make_trainer()
    print(trainer.fit().metrics)
    trainer.model.save_pretrained("adapters")  # the best ones, without the base model
