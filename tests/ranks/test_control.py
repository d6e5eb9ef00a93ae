"""What a user says about the course of a run, over ranks: limits of batches, dry runs, callbacks with a state."""

import json
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from rank_training import ROUNDING, X, Y, columns, difference, net, this_rank, train
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset

import brim
from brim.engine.checkpoints.weights import save_weights
from brim.engine.run import assembly, fit
from brim.record import MetricsFile
from brim.replaced import replaced


class Counts(brim.Callback):
    """Its state is that of the first rank, on all of them, after a resume."""

    def __init__(self, start=0):
        self.epochs = start

    def on_epoch_start(self, trainer, epoch):
        self.epochs += 1

    def state_dict(self):
        return {"epochs": self.epochs}

    def load_state_dict(self, state):
        self.epochs = state["epochs"]


def train_limited(strategy="auto", **limits):
    held_out = brim.Loader((X[:50], Y[:50]), 8)
    settings = {"max_steps": None, "epochs": 3, "eval_data": held_out, "limit_eval_batches": 2, "keep_best": 2}
    found = train(model=net(), strategy=strategy, scheduler=halves, **settings, **limits)
    return found, sorted(path.name for path in Path(found["run"], "checkpoints").glob("best*"))


def halves(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


FEW, SAME = {"limit_train_batches": 4}, {"overfit_batches": 3}


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    ("strategy", "limits"),
    [
        ("ddp", FEW), ("fsdp", SAME),
        pytest.param("ddp", SAME, marks=pytest.mark.slow), pytest.param("fsdp", FEW, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_limited_runs_are_those_of_one_rank(launch, strategy, limits):
    expected, kept = launch(1, train_limited, **limits)[0]
    for found, own in launch(2, train_limited, strategy=strategy, **limits):
        assert difference(found, expected) <= ROUNDING
        assert found["metrics"]["loss"] == pytest.approx(expected["metrics"]["loss"], rel=1e-4)
        assert own == kept and found["steps"] == expected["steps"]


def dry_run(strategy):
    model = net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = train(columns(), model, strategy=strategy, fast_dev_run=True, eval_data=columns())
    torch.distributed.barrier()
    left = [path.name for path in Path().iterdir() if "dry-run" in path.name or path.name == "run"]
    same = all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return found["steps"], same, left


@pytest.mark.matrix(1)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_dry_run_leaves_nothing_on_any_rank(launch, strategy):
    for steps, same, left in launch(2, dry_run, strategy=strategy):
        assert steps == 1 and same and left == []


def test_callbacks_have_the_state_of_the_first_rank_after_a_resume(launch):
    assert launch(2, resumed_counts) == [4, 4]


def resumed_counts():
    counts = Counts(start=100 * this_rank())
    train(callbacks=[counts], max_steps=None, epochs=2, checkpoint_every=None)
    again = Counts()
    train(callbacks=[again], max_steps=None, epochs=4, resume="run", checkpoint_every=None)
    return again.epochs


class SlowFile(MetricsFile):
    """Of a first rank that is slow to write its last numbers."""

    def close(self):
        time.sleep(0.5)
        super().close()


def save_slowly(model, path):
    time.sleep(0.5)
    save_weights(model, path)


def files_after_fit():
    """The lines and the weights that this rank finds as soon as its fit returns."""
    first = this_rank() == 0
    files = (assembly, "MetricsFile", SlowFile), (fit, "save_weights", save_slowly)
    with replaced(*files) if first else nullcontext():
        trainer = brim.Trainer(net(), columns(), loss_fn=nn.MSELoss(), max_steps=3, run_dir="run", device="cpu")
        trainer.fit(save_model=True, model_path="model.safetensors")
    lines = Path("run", "metrics.jsonl").read_text().splitlines()
    return sum("samples_per_second" in json.loads(line) for line in lines), len(load_file("model.safetensors"))


def test_what_the_first_rank_writes_is_there_when_fit_returns_on_any_rank(launch):
    assert launch(2, files_after_fit) == [(3, 4)] * 2


class Noise(brim.Callback):
    """Adds random numbers to the weights: of the rank, or of a generator that all ranks seed alike."""

    def __init__(self, generator):
        self.generator = generator

    def on_step_end(self, trainer, step, loss):
        with torch.no_grad():
            for weight in trainer.model.parameters():
                weight.add_(torch.randn(weight.shape, generator=self.generator) * 1e-3)


class Counting(Dataset):
    def __init__(self):
        self.reads = 0

    def __len__(self):
        return 32

    def __getitem__(self, index):
        self.reads += 1
        return X[index] * (1 + self.reads / 1000), Y[index]


def said_of(data, own_generator):
    noise = Noise(torch.Generator().manual_seed(3) if own_generator else None)
    data = brim.Loader(Counting(), 8, num_workers=0) if data == "counting" else columns()
    train(data, callbacks=[noise], max_steps=6, checkpoint_every=2)
    return Path("run", "log.txt").read_text().replace("\n", " ")


def test_ranks_whose_weights_or_data_come_apart_say_so_once(launch):
    said = launch(2, said_of, data="counting", own_generator=False)[0]
    assert said.count("not the same on all ranks. Something changes them on each rank for itself") == 1
    assert "Counting.reads: changed by reading, which each rank does to a data set of its own" in said


def test_ranks_that_draw_alike_are_left_alone(launch):
    said = launch(2, said_of, data="columns", own_generator=True)[0]
    assert "not the same on all ranks" not in said and "changed by reading" not in said
