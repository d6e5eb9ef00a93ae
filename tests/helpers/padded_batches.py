"""Batches of sequences that are padded to the longest of them."""

import torch


def tokens(length, size=4, seed=0, pad=7, **more):
    """A batch of a tokenizer: the first row is as long as the batch, the others are padded."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.tensor([length, *torch.randint(1, length + 1, (size - 1,), generator=generator).tolist()])
    mask = (torch.arange(length) < own[:, None]).long()
    ids = torch.randint(8, 50, (size, length), generator=generator)
    return {"input_ids": ids * mask + pad * (1 - mask), "attention_mask": mask, **more}
