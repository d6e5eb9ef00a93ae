"""Ranks that gather on a GPU which they share over gloo: one of them under a cap, and none of them captured."""

import pytest
import torch
import torch.nn.functional as F
from rank_training import this_rank
from torch import nn

import brim
from brim.engine.trainer import run_now

pytestmark = pytest.mark.gpu
WIDTH, LENGTH, BATCH, STEPS = 256, 64, 512, 6
TIGHT = 200 << 20  # bytes of a rank, whose part of the batch takes some 400 MiB
CLOSE = 1e-4  # matrix products of other sizes round differently


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(16, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(4))
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        x = self.first(x).unsqueeze(1).expand(-1, LENGTH, -1)
        for block in self.blocks:
            x = x + block(x)
        return F.normalize(x.mean(1), dim=1)


def encode(model, batch):
    return model(batch[0]), model(batch[1])


def contrast(left, right, model):
    left, right = brim.gather(left), brim.gather(right)
    found = left @ right.T * model.scale.exp()
    return F.cross_entropy(found, torch.arange(len(found), device=found.device))


def train(limit=None):
    x = torch.randn(BATCH * 2 + 3, 16, generator=torch.Generator().manual_seed(0))
    if limit is not None and this_rank() == 1:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info(0)[1], 0)
    model = Clip()
    trainer = brim.Trainer(
        model, brim.Loader((x, x.sin()), BATCH), loss_fn=brim.TwoPass(encode, contrast), device="cuda:0",
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05), max_steps=STEPS, run_dir="run",
    )  # fmt: skip
    trainer.fit()
    weights = torch.cat([value.cpu().double().flatten() for value in model.state_dict().values()])
    return weights, run_now(trainer).guard.micro_batch, trainer.captured.reason


@pytest.mark.slow
def test_a_rank_under_a_cap_lets_both_go_on_with_as_many_micro_batches(launch, own_folder):
    expected, _, _ = train()
    for limit in (None, TIGHT):
        found = launch(2, train, limit=limit)
        for weights, _, reason in found:
            assert (weights - expected).norm() <= CLOSE * expected.norm()
            assert "brim.gather" in reason
        sizes = {size for _, size, _ in found}
        assert len(sizes) == 1 and (sizes == {None}) is (limit is None)
