"""Samples that weigh differently: a loss over tokens, sliced without changing it. python examples/ragged_tokens.py"""

import torch
from torch import Tensor, nn

import brim

VOCABULARY, PADDING = 50, 0


class NextToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.rnn = nn.GRU(32, 64, batch_first=True)
        self.out = nn.Linear(64, VOCABULARY)

    def calculate_loss(self, tokens: Tensor) -> brim.Loss:
        logits = self.out(self.rnn(self.embed(tokens[:, :-1]))[0])
        target = tokens[:, 1:]
        total = nn.functional.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=PADDING, reduction="sum"
        )
        return brim.Loss(total, (target != PADDING).sum())


torch.manual_seed(0)
tokens = (torch.arange(20) * torch.randint(1, 5, (1_000, 1)) + torch.randint(49, (1_000, 1))) % 49 + 1
tokens[torch.arange(20) >= torch.randint(5, 21, (1_000, 1))] = PADDING

trainer = brim.Trainer(NextToken(), brim.Loader(tokens[:900], 100), tokens[900:], micro_batch=32, epochs=5, lr=1e-2)
print(trainer.fit().metrics)
