import json

import lightning as L
import pytest
import torch
import torchmetrics
from helpers.faults import At, Gate
from helpers.lightning_training import Classifier, X, Y, loaders, train_both, train_ours
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import brim
from brim.engine.trainer import run_now
from brim.errors import ConfigError
from brim.integrations.lightning import train


def test_a_module_with_batch_norm_dropout_and_shuffled_data_ends_with_the_same_bits(tmp_path):
    both = train_both(Classifier, tmp_path)
    both.check()
    assert both.result.steps == 6


class PerEpoch(Classifier):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [StepLR(optimizer, 1, 0.5)]


class PerStep(Classifier):
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = OneCycleLR(optimizer, 0.1, total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Two(Classifier):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [StepLR(optimizer, 1, 0.5), CosineAnnealingLR(optimizer, 4)]


class OnPlateau(Classifier):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5)
        schedule = ReduceLROnPlateau(optimizer, mode="max", patience=0, threshold=1.0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_acc"}}


@pytest.mark.matrix(2)
@pytest.mark.parametrize("kind", [PerEpoch, PerStep, Two, OnPlateau])
def test_schedules_of_epochs_and_of_steps_give_the_same_bits(kind, tmp_path):
    both = train_both(kind, tmp_path, epochs=3)
    both.check()


@pytest.mark.parametrize("kind", [Classifier, PerEpoch, PerStep, Two, OnPlateau])
def test_lr_schedulers_gives_what_lightning_gives(kind, tmp_path):
    seen = []

    class Watched(kind):
        def on_train_epoch_start(self):
            self.look()

        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.look()

        def on_validation_epoch_end(self):
            self.look()

        def on_train_epoch_end(self):
            if kind is not OnPlateau:  # warned about
                self.look()

        def look(self):
            given = self.lr_schedulers()
            rates = [[group["lr"] for group in one.optimizer.param_groups] for one in listed(given)]
            counts = [one.last_epoch for one in listed(given)]
            configs = [
                (c.interval, c.frequency, c.monitor, c.name, c.strict, c.reduce_on_plateau)
                for c in self.trainer.lr_scheduler_configs
            ]
            seen.append(([type(given), *map(type, listed(given))], rates, counts, configs))

    def listed(given):
        return given if isinstance(given, list) else [given] if given is not None else []

    train_both(Watched, tmp_path, epochs=3)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert kind is not Two or seen[0][0] == [list, StepLR, CosineAnnealingLR]


class SetsRate(Classifier):
    """A hook that sets the rate of the next epoch, after a schedule that would set it anew."""

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch)]

    def on_train_epoch_end(self):
        for group in self.optimizers().param_groups:
            group["lr"] *= 0.1


def test_a_rate_that_a_hook_sets_at_the_end_of_an_epoch_stands(tmp_path):
    train_both(SetsRate, tmp_path, epochs=3).check()


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_hook_that_sees_the_rate_of_a_streams_last_epoch_is_warned_about(tmp_path, capsys, is_stream):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(list(zip(X, Y, strict=True)))

    class Looks(PerEpoch):
        def on_validation_epoch_end(self): ...

    data = Stream() if is_stream else TensorDataset(X, Y)
    train_ours(Looks(), tmp_path, lambda: (DataLoader(data, 8), DataLoader(TensorDataset(X, Y), 8)), epochs=3)
    told = "at the end of an epoch on_validation_epoch_end sees the rate of that epoch"
    assert capsys.readouterr().err.count(told) == int(is_stream)


def test_a_hook_after_a_plateau_has_lowered_the_rate_is_warned_about(tmp_path, capsys):
    class Looks(OnPlateau):
        def on_train_epoch_end(self): ...

    train_both(Looks, tmp_path, epochs=3)
    assert capsys.readouterr().err.count("on_train_epoch_end sees the rate that the ReduceLROnPlateau has lowered") == 1


@pytest.mark.parametrize("stop", [2, 3, 4])
def test_a_schedule_of_epochs_that_has_counted_with_the_last_batch_goes_on_to_the_bit(tmp_path, stop):
    """Three steps an epoch: the third has a checkpoint between the schedule's count and that of the epoch."""

    def run(folder, resume=None, **settings):
        torch.manual_seed(0)
        module = PerEpoch()
        loader, validation = loaders()
        given = {
            "max_epochs": 3,
            "accelerator": "cpu",
            "threads": 1,
            "run_dir": folder,
            "seed": 0,
            "checkpoint_every": 1,
        }
        train(module, loader, validation, resume=resume, **given, **settings)
        return module

    whole = run(tmp_path / "whole")
    with pytest.raises(ValueError, match="here"):
        run(tmp_path / "parts", callbacks=[FailsBeforeNext(stop)])
    again = run(tmp_path / "parts", resume=tmp_path / "parts")
    assert all(map(torch.equal, whole.state_dict().values(), again.state_dict().values()))


class FailsBeforeNext(brim.Callback):
    """After the step's own checkpoint, before anything else."""

    def __init__(self, step):
        self.step = step

    def on_evaluate_start(self, trainer):
        if run_now(trainer).state.progress.step == self.step:
            raise ValueError("here")

    def on_step_start(self, trainer, step):
        if step == self.step + 1:
            raise ValueError("here")


def test_the_rate_of_a_plateau_falls_as_in_lightning(tmp_path):
    rates = []

    class Watched(OnPlateau):
        def on_train_epoch_start(self):
            rates.append(self.optimizers().param_groups[0]["lr"])

    train_both(Watched, tmp_path, epochs=3)
    assert rates[:3] == rates[3:] and rates[2] < rates[0]


@pytest.mark.matrix(2)
@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_clip_val": 0.1},
        {"accumulate_grad_batches": 3},
        {"max_steps": 4},
        {"max_steps": 100},
        {"limit_train_batches": 2},
    ],
)
def test_settings_by_lightnings_names_mean_the_same(settings, tmp_path):
    in_order = (DataLoader(TensorDataset(X, Y), 8, generator=torch.Generator()), None)
    both = train_both(PerStep, tmp_path, lambda: in_order, **settings)
    for name, value in both.theirs.state_dict().items():
        assert torch.equal(value, both.ours.state_dict()[name]), name


class Named(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, place):
        return {"features": X[place], "label": Y[place]}


class OfDicts(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)
        self.others = torchmetrics.MetricCollection(
            [torchmetrics.Precision("multiclass", num_classes=3), torchmetrics.Recall("multiclass", num_classes=3)],
            prefix="val_",
        )

    def training_step(self, batch):
        out = self.layer(batch["features"])
        self.accuracy(out, batch["label"])
        self.log("train_acc", self.accuracy, on_step=True, on_epoch=True)
        loss = nn.functional.cross_entropy(out, batch["label"])
        self.log("loss", loss)  # a name of brim's own
        return {"loss": loss, "out": out.detach()}

    def validation_step(self, batch, batch_idx):
        self.others.update(self.layer(batch["features"]), batch["label"])
        self.log_dict(self.others, on_step=False, on_epoch=True)

    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), lr=0.1)]


def test_batches_that_are_dicts_and_metrics_of_torchmetrics_give_the_same_numbers(tmp_path):
    both = train_both(OfDicts, tmp_path, lambda: (DataLoader(Named(), 8), DataLoader(Named(), 10)))
    both.check()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    told = [line["train_acc_epoch"] for line in lines if "train_acc_epoch" in line]
    assert told[-1] == both.metrics["train_acc_epoch"].item()
    assert any("module/loss" in line for line in lines) and any("eval/val_MulticlassRecall" in line for line in lines)


class Data(L.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.calls = []

    def prepare_data(self):
        self.calls.append("prepare")

    def setup(self, stage):
        self.calls.append(stage)

    def train_dataloader(self):
        return loaders()[0]

    def val_dataloader(self):
        return [loaders()[1], loaders(12)[1]]

    def on_after_batch_transfer(self, batch, dataloader_idx):
        return batch[0] * 2, batch[1]

    def teardown(self, stage):
        self.calls.append(f"end of {stage}")


class OfTwoSets(Classifier):
    def validation_step(self, batch, batch_idx, dataloader_idx):
        self.log("val_loss", self.loss(self(batch[0]), batch[1]))


def test_a_data_module_with_two_validation_loaders_and_a_transfer_hook_means_the_same(tmp_path):
    both = train_both(OfTwoSets, tmp_path, Data)
    both.check()
    assert set(both.result.metrics) == {"val_loss/dataloader_idx_0", "val_loss/dataloader_idx_1"}
    data = Data()
    train_ours(OfTwoSets(), tmp_path / "again", lambda: data, epochs=1)
    assert data.calls == ["prepare", "fit", "end of fit"] and data.trainer is None


class Recording(Classifier):
    """Every hook that is translated, in the order in which it is called."""

    def __init__(self):
        super().__init__()
        self.told = []

    def training_step(self, batch, batch_idx):
        self.told.append(("training_step", batch_idx, self.current_epoch, self.global_step))
        return {"loss": super().training_step(batch, batch_idx), "size": len(batch[0])}

    def validation_step(self, batch, batch_idx):
        self.told.append(("validation_step", batch_idx, self.trainer.sanity_checking))
        return super().validation_step(batch, batch_idx)


def _recorded(name):
    def hook(self, *arguments):
        if name == "on_train_batch_end":
            arguments = (arguments[0]["size"], round(arguments[0]["loss"].item(), 6), arguments[2])
        shown = tuple(one for one in arguments if isinstance(one, int | float))
        self.told.append((name, *shown, self.current_epoch))

    return hook


HOOKS = (
    "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_after_backward",
    "on_before_optimizer_step", "on_train_batch_end", "on_validation_start", "on_validation_epoch_start",
    "on_validation_batch_start", "on_validation_batch_end", "on_validation_epoch_end", "on_validation_end",
    "on_train_epoch_end", "on_train_end", "on_fit_end",
)  # fmt: skip
for _name in HOOKS:
    setattr(Recording, _name, _recorded(_name))


def test_hooks_are_called_in_lightnings_order_with_its_arguments(tmp_path):
    both = train_both(Recording, tmp_path)
    both.check()
    # Lightning counts the epoch as done before the last hooks of the run.
    last = ("on_train_end", "on_fit_end")
    theirs = [one for one in both.theirs.told if one[0] not in last]
    assert [one for one in both.ours.told if one[0] not in last] == theirs
    assert [one[0] for one in both.ours.told[-2:]] == list(last)


class LogsEverywhere(Classifier):
    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.log("seen", float(batch_idx), on_epoch=True, on_step=False)

    def on_before_optimizer_step(self, optimizer):
        self.log("norm", self.net[0].weight.grad.norm(), on_epoch=True)

    def on_train_epoch_end(self):
        self.log("last", self.net[0].weight.norm())

    def on_validation_epoch_end(self):
        self.log("val_norm", self.net[0].weight.norm())


def test_what_hooks_log_has_lightnings_values(tmp_path):
    both = train_both(LogsEverywhere, tmp_path)
    both.check()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    newest = {name: value for line in lines for name, value in line.items()}
    for name, theirs in {"seen_epoch": "seen", "norm_epoch": "norm_epoch", "last": "last"}.items():
        assert newest[name] == pytest.approx(both.metrics[theirs].item(), rel=1e-6), name
    assert newest["train_loss_epoch"] == both.metrics["train_loss_epoch"].item()


class Gated(Classifier):
    """A module that may run out of memory in the second pass of its net in a step, when its metric has counted."""

    def __init__(self, fails):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), Gate(fails), nn.Linear(8, 3))
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)

    def training_step(self, batch, batch_idx):
        self.accuracy(self(batch[0]), batch[1])
        self.log("train_acc", self.accuracy, on_step=False, on_epoch=True)
        return super().training_step(batch, batch_idx)


def test_a_step_that_runs_out_of_memory_counts_once_in_metrics(tmp_path, capsys):
    told = []
    for name, fails in (("whole", At()), ("parts", At(4))):
        torch.manual_seed(1)
        train_ours(Gated(fails), tmp_path / name, epochs=1)
        lines = [json.loads(line) for line in (tmp_path / name / "run" / "metrics.jsonl").read_text().splitlines()]
        told.append(
            {key: line[key] for line in lines for key in ("train_acc_epoch", "train_loss_epoch") if key in line}
        )
    assert "out of memory" in capsys.readouterr().err
    assert told[0] == pytest.approx(told[1], rel=1e-6)


def test_a_resumed_run_ends_with_the_bits_of_one_that_never_stopped(tmp_path):
    torch.manual_seed(1)
    whole, stopped = PerStep(), PerStep()
    stopped.load_state_dict(whole.state_dict())
    torch.manual_seed(2)
    train_ours(whole, tmp_path / "whole", epochs=3, max_steps=8)

    class Stops(PerStep):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            if self.global_step == 4:
                self.trainer.should_stop = True

    halted = Stops()
    halted.load_state_dict(stopped.state_dict())
    torch.manual_seed(2)
    result = train_ours(halted, tmp_path / "stopped", epochs=3, max_steps=8)
    assert result.steps == 4 and "should_stop" in result.ended
    again = PerStep()
    train_ours(again, tmp_path / "stopped", epochs=3, max_steps=8, run_dir=None, resume=tmp_path / "stopped" / "run")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


class Counts(PerStep):
    def __init__(self):
        super().__init__()
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)

    def training_step(self, batch, batch_idx):
        self.accuracy(self(batch[0]), batch[1])
        self.log("train_acc", self.accuracy, on_step=False, on_epoch=True)
        return super().training_step(batch, batch_idx)


class StopsInTheMiddle(Counts):
    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.global_step == 2:
            self.trainer.should_stop = True


def test_metrics_of_an_epoch_go_on_where_a_run_is_resumed_in_its_middle(tmp_path, capsys):
    def numbers(folder):
        lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
        return [{name: line[name] for name in line if name.endswith("_epoch")} for line in lines]

    torch.manual_seed(1)
    whole = Counts()
    halted = StopsInTheMiddle()
    halted.load_state_dict(whole.state_dict())
    train_ours(whole, tmp_path / "whole", seed=1)
    train_ours(halted, tmp_path / "halted", seed=1)
    train_ours(Counts(), tmp_path / "halted", seed=1, run_dir=None, resume=tmp_path / "halted" / "run")
    told = [one for one in numbers(tmp_path / "halted") if one]
    assert told == [one for one in numbers(tmp_path / "whole") if one] and len(told) == 2
    assert "no checkpoint holds that" not in capsys.readouterr().err


def test_a_module_of_pytorch_lightning_is_trained_as_one_of_lightning(tmp_path):
    other = pytest.importorskip("pytorch_lightning")

    class Plain(other.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def training_step(self, batch, batch_idx):
            loss = nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
            self.log("train_loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    train_both(Plain, tmp_path, package=other).check()


def test_modules_in_eval_mode_stay_there_as_in_lightning(tmp_path):
    def make():
        module = Classifier()
        module.net[1].eval()
        return module

    both = train_both(make, tmp_path)
    both.check()
    assert both.ours.net[1].num_batches_tracked == 0


def test_hyperparameters_are_in_the_run_folder_and_the_module_is_left_as_it_was(tmp_path):
    module = Classifier(width=5)
    result = train_ours(module, tmp_path, epochs=1)
    assert "width: 5" in (result.run / "hparams.yaml").read_text()
    assert "log" not in vars(module) and module._trainer is None


def test_a_seed_makes_two_runs_the_same(tmp_path):
    first, second = Classifier(), Classifier()
    second.load_state_dict(first.state_dict())
    train_ours(first, tmp_path / "a", seed=5)
    torch.manual_seed(77)
    train_ours(second, tmp_path / "b", seed=5)
    assert torch.equal(first.net[0].weight, second.net[0].weight)


def test_without_a_length_of_the_run_nothing_is_trained():
    with pytest.raises(ConfigError, match="say how long to train"):
        train(Classifier(), loaders()[0])


def test_several_training_loaders_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="several training loaders"):
        train(Classifier(), {"a": loaders()[0], "b": loaders()[0]}, max_epochs=1, run_dir=tmp_path / "run")


def test_epochs_and_steps_of_a_stream_cannot_both_end_a_run(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(zip(X, Y, strict=True))

    stream = DataLoader(Stream(), 8)
    with pytest.raises(ConfigError, match="pass max_steps or max_epochs, not both"):
        train_ours(Classifier(), tmp_path, lambda: (stream, None), max_steps=2)


def test_loaders_that_lightning_combines_are_refused(tmp_path):
    combined = L.pytorch.utilities.CombinedLoader([loaders()[0]])
    with pytest.raises(ConfigError, match="several training loaders"):
        train_ours(Classifier(), tmp_path, lambda: (combined, None))
    with pytest.raises(ConfigError, match="CombinedLoader for validation"):
        train_ours(Classifier(), tmp_path, lambda: (loaders()[0], combined))


def test_a_plateau_waits_for_evaluations_so_these_come_every_epoch(tmp_path):
    with pytest.raises(ConfigError, match="eval_every=2: the ReduceLROnPlateau"):
        train_ours(OnPlateau(), tmp_path, check_val_every_n_epoch=2)
    with pytest.raises(ConfigError, match=r"monitor='val_loss', and the ReduceLROnPlateau .* follows 'val_acc'"):
        train_ours(OnPlateau(), tmp_path, monitor="val_loss")


def test_a_hook_that_would_see_batches_too_early_is_refused(tmp_path):
    kind = type("Own", (Classifier,), {"on_train_batch_start": lambda self, batch, batch_idx: None})
    with pytest.raises(ConfigError, match="would see batches before on_after_batch_transfer"):
        train_ours(kind(), tmp_path, Data)


@pytest.mark.gpu
def test_on_a_gpu_a_module_is_captured_and_ends_where_lightning_ends(tmp_path):
    x = torch.randn(2_048, 4)
    data = TensorDataset(x, (x.sum(1) > 0).long())

    class Plain(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

        def training_step(self, batch, batch_idx):
            loss = nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
            self.log("train_loss", loss, on_epoch=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    torch.manual_seed(1)
    theirs, ours = Plain(), Plain()
    ours.load_state_dict(theirs.state_dict())
    trainer = L.Trainer(
        max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(theirs, DataLoader(data, 16))
    result = train_ours(ours, tmp_path, lambda: (DataLoader(data, 16), None), accelerator="gpu", capture="require")
    for name, value in theirs.state_dict().items():
        assert torch.allclose(value.cpu(), ours.state_dict()[name].cpu(), atol=1e-4), name
    assert json.loads((result.run / "plan.json").read_text())["choices"]["capture"]["captured"]
    lines = [json.loads(line) for line in (result.run / "metrics.jsonl").read_text().splitlines()]
    told = [line["train_loss_epoch"] for line in lines if "train_loss_epoch" in line]
    assert told[-1] == pytest.approx(trainer.callback_metrics["train_loss_epoch"].item(), rel=1e-3)


def test_uneven_windows_are_warned_about(tmp_path, capsys):
    train_ours(Classifier(), tmp_path, lambda: (loaders(20)[0], None), epochs=1, accumulate_grad_batches=2)
    assert "Lightning divides it as if it were whole" in capsys.readouterr().err


def test_callbacks_of_lightning_are_refused_with_what_to_use_instead(tmp_path):
    stopping = L.pytorch.callbacks.EarlyStopping("val_loss")
    with pytest.raises(ConfigError, match="EarlyStopping is a callback of Lightning's trainer; use monitor="):
        train_ours(Classifier(), tmp_path, callbacks=[stopping])


class SeedsItself(Classifier):
    def on_fit_start(self):
        L.seed_everything(11, verbose=False)


class DrawsLoaders(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Subset(TensorDataset(X, Y), torch.randperm(22).tolist()), 8, generator=torch.Generator())

    def val_dataloader(self):
        return DataLoader(Subset(TensorDataset(X, Y), torch.randperm(22).tolist()), 8, generator=torch.Generator())


@pytest.mark.parametrize(("kind", "data"), [(SeedsItself, loaders), (Classifier, DrawsLoaders)])
def test_what_hooks_and_data_modules_draw_at_random_counts_as_in_lightning(kind, data, tmp_path):
    train_both(kind, tmp_path, data).check()


def test_bf16_weights_are_validated_before_the_training_as_they_are_trained(tmp_path):
    train_both(Classifier, tmp_path, precision="bf16-true").check()


class SkipsSanityCheck(Classifier):
    def validation_step(self, batch, batch_idx):
        if not self.trainer.sanity_checking:
            super().validation_step(batch, batch_idx)


def test_a_validation_that_skips_the_sanity_check_is_trained_and_asked_what_decides(tmp_path):
    both = train_both(SkipsSanityCheck, tmp_path)
    assert both.result.metrics["val_loss"] == both.metrics["val_loss"].item()
    with pytest.raises(ConfigError, match=r"patience= asks which weights are best.*pass monitor="):
        train_ours(SkipsSanityCheck(), tmp_path / "other", patience=1)


def test_no_batches_of_validation_are_no_validation(tmp_path):
    class Fails(Classifier):
        def on_validation_start(self):
            raise AssertionError

    assert train_both(Fails, tmp_path, limit_val_batches=0, callbacks=None).result.metrics == {}


class FreezesStatistics(Classifier):
    def on_train_epoch_start(self):
        self.net[1].eval()


class HaltsFrozen(FreezesStatistics):
    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.global_step == 4:
            self.trainer.should_stop = True


def test_modes_that_an_epoch_began_with_are_there_when_a_run_is_resumed_in_its_middle(tmp_path):
    torch.manual_seed(1)
    whole, halted = FreezesStatistics(), HaltsFrozen()
    halted.load_state_dict(whole.state_dict())
    train_ours(whole, tmp_path / "whole", epochs=3, seed=1)
    assert train_ours(halted, tmp_path / "halted", epochs=3, seed=1).steps == 4
    again = FreezesStatistics()
    train_ours(again, tmp_path / "halted", epochs=3, seed=1, run_dir=None, resume=tmp_path / "halted" / "run")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
