"""Capture trap 10: collectives held by a live graph keep the process group from being taken down."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import brim
from brim.engine.captured.exchanged_gradients import ExchangedGradients
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.no_exchange import exchanges_made
from brim.engine.captured.optimizers import LearningRates
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.distributed.ranks import Ranks
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.replicated_step import ReplicatedStep

CPU = torch.device("cpu")
PROGRAM = """\
import socket, torch, brim
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
torch.cuda.set_device(0)
torch.distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
torch.distributed.all_reduce(torch.ones(4, device="cuda"))
data = brim.Loader((torch.randn(640, 16), torch.randn(640, 1)), 32)
trainer = brim.Trainer(
    torch.nn.Linear(16, 1), data, loss_fn=torch.nn.MSELoss(), capture="require", epochs=3, run_dir="run"
)
trainer.fit()
assert trainer.captured.replays > 0
torch.distributed.destroy_process_group()
print("ended")
"""


@pytest.mark.gpu
def test_a_process_with_a_process_group_ends_while_its_graphs_live(tmp_path):
    if not torch.distributed.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    path = os.pathsep.join([str(Path(brim.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("ended\n")


def test_no_graph_of_a_rank_holds_collectives(alone_in_a_group):
    """What is recorded exchanges nothing; what is exchanged lies between the two graphs."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    eager = EagerStep(loss_of(model, nn.MSELoss()), optimizer, Precision("32", CPU))
    replicated = ReplicatedStep(eager, Ranks())
    rates, exchanged = LearningRates(optimizer, CPU, False), ExchangedGradients(replicated)
    graph = StepGraph(eager, [(torch.randn(8, 4), torch.randn(8, 1))], rates, exchanged=exchanged)
    before = exchanges_made()
    graph.make_step()
    assert exchanges_made() == before
    exchanged.all_reduce()
    assert exchanges_made() == before + 2  # the status tensor and one bucket
