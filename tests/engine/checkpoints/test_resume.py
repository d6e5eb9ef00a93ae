"""A resumed run goes on with its own samples, order and schedule, or says in a sentence why it does not."""

import json

import pytest
import torch
from helpers.callbacks import StopAt
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

import brim
from brim.errors import RunFolderError

pytestmark = pytest.mark.usefixtures("own_folder")

SAMPLES = 80


def numbers(samples=SAMPLES):
    return torch.arange(float(samples))[:, None]


def loader(samples=SAMPLES, batch_size=8, **settings):
    return brim.Loader((numbers(samples), numbers(samples)), batch_size, **settings)


def train(data, stop_at=None, resume=None, **settings):
    """The samples that were trained on, in the order of steps."""
    seen = []

    def loss(model, batch):
        seen.extend(batch[0].flatten().int().tolist())
        return model(batch[0] * 0).square().mean()

    brim.Trainer(
        nn.Linear(1, 1), data, loss_fn=loss, device="cpu", threads=1, run_dir="run", callbacks=[StopAt(stop_at)],
        **{"optimizer": "SGD", **settings},
    ).fit(resume=resume)  # fmt: skip
    return seen


class Stream(IterableDataset):
    def __init__(self, samples=SAMPLES):
        self.samples = samples

    def __iter__(self):
        return iter([(n, n) for n in numbers(self.samples)])


def weighted(batch_size=8, samples=SAMPLES):
    data = TensorDataset(numbers(samples), numbers(samples))
    return DataLoader(data, batch_size, sampler=WeightedRandomSampler(torch.ones(samples), samples))


def chunks(size=8):
    return list(zip(numbers().split(size), numbers().split(size), strict=True))


REFUSED = {
    "seed": (loader, loader, {"seed": 1}, "seed 0 then and 1 now"),
    "longer": (loader, lambda: loader(96), {}, "number of samples 80 then and 96 now"),
    "shorter": (loader, lambda: loader(72), {}, "number of samples 80 then and 72 now"),
    "shuffle off": (loader, lambda: loader(shuffle=False), {}, "shuffle True then and False now"),
    "shuffle on": (lambda: loader(shuffle=False), loader, {}, "shuffle False then and True now"),
    "sampler": (loader, weighted, {}, "data as samples then and batches now"),
    "batches of a sampler": (weighted, lambda: weighted(16), {}, "batch_size 8 then and 16 now"),
    "seed of a sampler": (weighted, weighted, {"seed": 1}, "seed 0 then and 1 now"),
    "ready batches": (chunks, lambda: chunks(16), {}, "batches 10 then and 5 now"),
    "stream": (lambda: brim.Loader(Stream(), 8), lambda: brim.Loader(Stream(), 8), {"seed": 1}, "seed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_another_order_within_an_epoch_is_refused_and_changes_nothing(case, tmp_path):
    before, after, settings, says = REFUSED[case]
    train(before(), stop_at=5)
    (path,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    files = [*path.iterdir(), *(tmp_path / "run" / name for name in ("result.json", "config.yaml"))]
    kept = [file.read_bytes() for file in files]
    with pytest.raises(RunFolderError, match=says):
        train(after(), resume="run", **settings)
    assert [file.read_bytes() for file in files] == kept


@pytest.mark.matrix(3)
@pytest.mark.parametrize("case", REFUSED)
def test_at_the_end_of_an_epoch_it_is_done_with_a_warning(case, capsys):
    before, after, settings, says = REFUSED[case]
    train(before(), epochs=1)
    seen = train(after(), resume="run", epochs=2, **settings)
    assert len(seen) == {"longer": 96, "shorter": 72}.get(case, SAMPLES)
    assert says in " ".join(capsys.readouterr().err.split())


SAME_PLACE = {
    "batch_size": (loader, lambda: loader(batch_size=16), {}),
    "drop_last": (loader, lambda: loader(drop_last=True), {}),
    "accumulation": (loader, loader, {"gradient_accumulation_steps": 3}),
    "accumulation of ready batches": (chunks, chunks, {"gradient_accumulation_steps": 2}),
    "seed without shuffling": (lambda: loader(shuffle=False), lambda: loader(shuffle=False), {"seed": 3}),
    "seed of ready batches": (chunks, chunks, {"seed": 3}),
    "more samples without shuffling": (lambda: loader(shuffle=False), lambda: loader(96, shuffle=False), {}),
    "batches of a stream": (lambda: brim.Loader(Stream(), 8), lambda: brim.Loader(Stream(), 20), {}),
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("case", SAME_PLACE)
def test_what_leaves_the_order_as_it_is_goes_on_with_each_sample_once(case):
    before, after, settings = SAME_PLACE[case]
    seen = train(before(), stop_at=5) + train(after(), resume="run", **settings)
    assert sorted(seen) == list(range(96 if "more" in case else SAMPLES))


LIMITS = {
    "shorter": (9, 7),
    "shorter than what is done": (9, 3),
    "longer": (6, 8),
    "none now": (6, None),
    "none": (None, 6),
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("data", [loader, chunks])
@pytest.mark.parametrize("case", LIMITS)
def test_another_limit_of_batches_within_an_epoch_is_told(case, data, capsys):
    then, now = LIMITS[case]
    first = train(data(), stop_at=5, limit_train_batches=then)
    rest = train(data(), resume="run", limit_train_batches=now)
    batches = max(5, now or 10)
    assert (len(first), len(rest)) == (40, 8 * (batches - 5))
    said = f"the rest of the epoch goes on with limit_train_batches {then} then and {now} now"
    assert said in " ".join(capsys.readouterr().err.split())


def test_every_way_to_hand_over_the_same_data_is_the_same_order():
    first = train(loader(), stop_at=5)
    second = train(DataLoader(TensorDataset(numbers(), numbers()), 8, shuffle=True), resume="run")
    assert sorted(first + second) == list(range(SAMPLES))


def test_data_that_has_grown_between_epochs_is_resumed_within_the_next(tmp_path):
    class Growing(torch.utils.data.Dataset):
        def __init__(self):
            self.samples = SAMPLES

        def __len__(self):
            return self.samples

        def __getitem__(self, index):
            return torch.tensor([float(index)]), torch.tensor([0.0])

    class Grow(brim.Callback):
        def __init__(self, data):
            self.data = data

        def on_epoch_end(self, trainer, epoch):
            self.data.samples = 96

    data = Growing()
    brim.Trainer(
        nn.Linear(1, 1), brim.Loader(data, 8), loss_fn=nn.MSELoss(), optimizer="SGD", lr=1e-6, device="cpu",
        epochs=2, run_dir="run",
        callbacks=[Grow(data), StopAt(15)],
    ).fit()  # fmt: skip
    (path,) = (tmp_path / "run" / "checkpoints").glob("step-000000015")
    assert json.loads((path / "progress.json").read_text())["order"]["samples"] == 96
    assert len(train(brim.Loader(data, 8), resume="run", epochs=2, lr=1e-6)) == 96 - 40


SCHEDULES = {
    "another name": ("cosine", "linear", "the schedule cosine, and this run has linear"),
    "none now": ("cosine", None, "the schedule cosine, and this run has constant"),
    "none before": (None, "cosine", "the schedule constant, and this run has cosine"),
    "another warm-up": ({"name": "linear", "warmup": 2}, {"name": "linear", "warmup": 4}, r"linear \(warmup=2\)"),
    "another class": (
        lambda o: torch.optim.lr_scheduler.StepLR(o, 3),
        lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
        "StepLR, and this run has ExponentialLR",
    ),
    "by name and by class": ("cosine", lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda s: 1.0), "LambdaLR"),
}


@pytest.mark.matrix(4)
@pytest.mark.parametrize("case", SCHEDULES)
@pytest.mark.parametrize("stop_at", [5, None])
def test_another_kind_of_schedule_is_refused(case, stop_at):
    before, after, says = SCHEDULES[case]
    train(loader(), stop_at, scheduler=before)
    with pytest.raises(RunFolderError, match=says):
        train(loader(), resume="run", scheduler=after, epochs=2)


@pytest.mark.parametrize("same", [None, "cosine", lambda o: torch.optim.lr_scheduler.StepLR(o, 3)])
def test_the_same_schedule_is_resumed_without_a_word(same, capsys):
    train(loader(), 5, scheduler=same)
    train(loader(), resume="run", scheduler=same)
    assert "warning" not in capsys.readouterr().err


def test_a_run_can_be_extended_and_is_told_what_becomes_of_its_curve(capsys):
    train(loader(), scheduler="cosine", epochs=1)
    train(loader(), resume="run", scheduler="cosine", epochs=2)
    assert "was to end at step 10 and ends at step 20 now" in " ".join(capsys.readouterr().err.split())


def test_settings_of_a_schedule_of_ones_own_are_those_of_the_checkpoint(capsys):
    def steps(size):
        return lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, size)

    train(loader(), 5, scheduler=steps(3))
    train(loader(), resume="run", scheduler=steps(4))
    assert "the schedule of the checkpoint (step_size 3)" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("scheduler", [None, "cosine"])
def test_another_learning_rate_is_said_to_be_the_checkpoints(scheduler, capsys):
    train(loader(), 5, scheduler=scheduler, lr=0.5)
    train(loader(), resume="run", scheduler=scheduler, lr=0.25)
    assert "the checkpoint's learning rate, 0.5, not with lr=0.25" in " ".join(capsys.readouterr().err.split())


def test_other_settings_of_an_optimizer_are_said_to_be_the_checkpoints(capsys):
    def decayed(by, **more):
        return lambda parameters: torch.optim.AdamW(
            [{"params": [one], "weight_decay": by} for one in parameters], **more
        )

    train(loader(), 5, optimizer=decayed(0.5))
    train(loader(), resume="run", optimizer=decayed(0.25, foreach=False))
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("going on with the checkpoint's weight_decay=0.5, not with 0.25") == 1
    assert "foreach" not in said


def test_momentum_that_a_schedule_has_moved_is_not_told(capsys):
    def cycle(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)

    settings = {"optimizer": "AdamW", "scheduler": cycle}
    train(loader(), 5, **settings)
    train(loader(), resume="run", **settings)
    assert "not with" not in capsys.readouterr().err


def test_a_checkpoint_that_was_being_replaced_when_the_run_was_killed_is_found(tmp_path):
    train(loader(), stop_at=5)
    (path,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    path.rename(path.with_name(f".{path.name}.old"))
    assert len(train(loader(), resume="run")) == SAMPLES - 40


def test_a_run_that_goes_on_elsewhere_than_at_run_dir_is_told(capsys, tmp_path):
    train(loader(), stop_at=5)
    model = nn.Linear(1, 1)
    settings = {
        "loss_fn": lambda model, batch: model(batch[0] * 0).square().mean(),
        "optimizer": "SGD",
        "device": "cpu",
    }
    result = brim.Trainer(model, loader(), run_dir="other", **settings).fit(resume="run")
    assert result.run.name == "run" and not (tmp_path / "other").exists()
    assert "the run goes on in run, which resume= names; run_dir='other' is not used" in capsys.readouterr().err
    brim.Trainer(model, loader(), run_dir="run", epochs=2, **settings).fit(resume="auto")
    assert "is not used" not in capsys.readouterr().err


class Counts(torch.optim.SGD):
    """Keeps in its groups where it stands, as schedule-free optimizers and Prodigy do."""

    def __init__(self, params, lr=0.1, **more):
        super().__init__(params, lr, **more)
        self.defaults |= {"steps": 0, "estimate": 1e-6}
        for group in self.param_groups:
            group |= {"steps": 0, "estimate": 1e-6}

    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] += 1
            group["estimate"] *= 2
        return super().step(closure)


def test_what_an_optimizer_counts_in_its_groups_is_no_setting(capsys):
    train(loader(), 5, optimizer=lambda parameters: Counts(parameters))
    train(loader(), resume="run", optimizer=lambda parameters: Counts(parameters, weight_decay=0.25))
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("not with") == 1 and "the checkpoint's weight_decay=0, not with 0.25" in said


def test_settings_that_an_optimizer_takes_in_one_piece_are_told(capsys):
    class Configured(torch.optim.SGD):
        def __init__(self, params, config):
            torch.optim.Optimizer.__init__(self, params, {**torch.optim.SGD([torch.zeros(1)]).defaults, **config})

    train(loader(), 5, optimizer=lambda parameters: Configured(parameters, {"weight_decay": 0.5}))
    train(loader(), resume="run", optimizer=lambda parameters: Configured(parameters, {"weight_decay": 0.25}))
    assert "weight_decay=0.5, not with 0.25" in " ".join(capsys.readouterr().err.split())
