"""Will GPT-2 fit, with which batch, and what holds the memory? Nothing is allocated, and no GPU is needed."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import brim


def batch(n: int):
    tokens = torch.zeros(n, 512, dtype=torch.long)
    return (), {"input_ids": tokens, "labels": tokens}


job = {
    "model": lambda: GPT2LMHeadModel(GPT2Config()),
    "batch": batch,
    "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=3e-4),
    "precision": "bf16",
    "card": "NVIDIA A10G",
}

f = brim.forecast(**job, batch_size=4)
print(f"{f.reserved / 2**30:.2f} GiB reserved of {f.limit / 2**30:.2f}; by part:")
for part, size in f.parts.items():
    print(f"  {part:<14} {size / 2**20:9.1f} MiB")
print(f.explain())
print("largest micro-batch:", brim.largest_batch(**job))
for reason in brim.plan(**job, batch_size=128).reasons:
    print(reason)
