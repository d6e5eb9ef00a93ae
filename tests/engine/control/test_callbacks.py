from pathlib import Path

import pytest
import torch
from helpers.callbacks import StopAt
from torch import nn

import brim
from brim.engine.checkpoints.weights import load_weights
from brim.engine.control.callbacks import Callback, Callbacks
from brim.errors import ConfigError


def test_only_what_is_overridden_is_called():
    class OnEpoch(Callback):
        def __init__(self):
            self.epochs = []

        def on_epoch_end(self, trainer, epoch):
            self.epochs.append(epoch)

    callback = OnEpoch()
    callbacks = Callbacks((callback,))
    assert callbacks.on_step == []
    callbacks.call("on_epoch_end", None, 3)
    callbacks.call("on_fit_end", None)
    assert callback.epochs == [3]


def test_any_object_with_the_right_methods_is_a_callback():
    class Duck:
        def __init__(self):
            self.losses = []

        def on_step_end(self, trainer, step, loss):
            self.losses.append(loss)

    callbacks = Callbacks((duck := Duck(),))
    for on_step_end in callbacks.on_step:
        on_step_end(None, 1, torch.ones(()))
    assert len(duck.losses) == 1


def test_a_hook_that_one_object_alone_has_is_called():
    callback, steps = Callback(), []
    callback.on_step_end = lambda trainer, step, loss: steps.append(step)
    callbacks = Callbacks((callback,))
    for on_step_end in callbacks.on_step:
        on_step_end(None, 1, torch.ones(()))
    assert steps == [1] and callbacks.handles("on_step_end") and not callbacks.handles("on_save")


class Everything(brim.Callback):
    """Writes down when it is called."""

    def __init__(self):
        self.seen = []

    def on_fit_start(self, trainer):
        self.seen.append("fit start")

    def on_epoch_start(self, trainer, epoch):
        self.seen.append(f"epoch {epoch} start")

    def on_step_start(self, trainer, step):
        self.seen.append(f"step {step} start")

    def on_step_end(self, trainer, step, loss):
        self.seen.append(f"step {step} end")

    def on_evaluate_start(self, trainer):
        self.seen.append("evaluate start")

    def on_evaluate(self, trainer, metrics):
        self.seen.append("evaluate")

    def on_epoch_end(self, trainer, epoch):
        self.seen.append(f"epoch {epoch} end")

    def on_save(self, trainer, step):
        self.seen.append(f"save {step}")

    def on_load(self, trainer, step):
        self.seen.append(f"load {step}")

    def on_exception(self, trainer, error):
        self.seen.append(f"exception {type(error).__name__}")

    def on_fit_end(self, trainer):
        self.seen.append("fit end")


X = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
DATA = [(X[:8], X[:8, :1]), (X[8:], X[8:, :1])]


def fit(*callbacks, resume=None, **settings):
    torch.manual_seed(1)
    model = nn.Linear(4, 1)
    fixed = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1, "run_dir": "run", "optimizer": "SGD"}
    made = brim.Trainer(model, DATA, callbacks=callbacks, **{**fixed, **settings})
    made.fit(resume=resume)
    return model


def test_hooks_come_in_their_order(own_folder):
    watch = Everything()
    fit(watch, eval_data=DATA)
    assert watch.seen == [
        "fit start", "epoch 1 start", "step 1 start", "step 1 end", "step 2 start", "step 2 end", "evaluate start",
        "evaluate", "epoch 1 end", "save 2", "fit end",
    ]  # fmt: skip


def test_a_run_that_is_resumed_hears_of_it_and_not_of_an_epoch_that_had_begun(own_folder):
    fit(StopAt(1))
    watch = Everything()
    fit(watch, resume="run")
    assert watch.seen[:4] == ["load 1", "fit start", "step 2 start", "step 2 end"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_is_heard_of_and_goes_on(own_folder, error, capfd):
    class Fails(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            raise error("in a step")

        def on_exception(self, trainer, error):
            raise ValueError("and again")

    watch = Everything()
    with pytest.raises(error, match="in a step"):
        fit(Fails(), watch)
    assert watch.seen[-1] == f"exception {error.__name__}"
    assert "Fails.on_exception failed itself: ValueError: and again" in capfd.readouterr().err


def test_an_epoch_start_may_end_the_run(own_folder):
    class Enough(brim.Callback):
        def on_epoch_start(self, trainer, epoch):
            if epoch == 3:
                trainer.stop("two are enough")

    watch = Everything()
    fit(Enough(), watch, epochs=5)
    assert "step 4 end" in watch.seen and "step 5 start" not in watch.seen


class Halves(brim.Callback):
    """Halves the rate every third step, by a count of its own."""

    def __init__(self):
        self.count, self.mean = 0, torch.zeros(1)

    def on_step_end(self, trainer, step, loss):
        self.count += 1
        self.mean += loss.detach()
        if self.count % 3 == 0:
            for group in trainer.optimizer.param_groups:
                group["lr"] /= 2

    def state_dict(self):
        return {"count": self.count, "mean": self.mean.clone()}

    def load_state_dict(self, state):
        self.count, self.mean = state["count"], state["mean"]


def test_what_callbacks_count_goes_on_after_a_resume(own_folder):
    whole = [Halves(), Halves()]
    expected = fit(*whole, epochs=4, run_dir="whole", lr=0.1)
    fit(Halves(), Halves(), StopAt(4), epochs=4, lr=0.1)
    again = [Halves(), Halves()]
    found = fit(*again, epochs=4, resume="run", lr=0.1)
    assert torch.equal(found.weight, expected.weight)
    assert [one.count for one in again] == [one.count for one in whole] == [8, 8]
    assert torch.equal(again[1].mean, whole[1].mean)


def test_the_state_of_a_callback_that_is_gone_is_told_of(own_folder):
    fit(Halves(), StopAt(1))
    fit(resume="run")
    assert "holds the state of the callback Halves, which this run does not have" in Path("run/log.txt").read_text()


def test_a_state_that_a_checkpoint_cannot_hold_is_refused_before_training(own_folder):
    class Keeps(brim.Callback):
        def state_dict(self):
            return {"model": [nn.Linear(1, 1)]}

        def load_state_dict(self, state): ...

    with pytest.raises(ConfigError, match="state_dict of the callback Keeps returns a Linear"):
        fit(Keeps())
    assert not Path("run").exists()


def test_what_on_save_changes_is_in_the_checkpoint(own_folder):
    class Zeroes(brim.Callback):
        def on_save(self, trainer, step):
            nn.init.zeros_(trainer.model.bias)

    fit(Zeroes())
    found = nn.Linear(4, 1)
    load_weights(found, Path("run/checkpoints/step-000000002/model.safetensors"))
    assert found.bias.item() == 0


def test_callbacks_reach_the_optimizer_of_the_run(tmp_path):
    class Halve(brim.Callback):
        def on_epoch_end(self, trainer, epoch):
            for group in trainer.optimizers[0].param_groups:
                group["lr"] /= 2

    x = torch.ones(8, 1)
    trainer = brim.Trainer(
        torch.nn.Linear(1, 1), (x, x), loss_fn=torch.nn.MSELoss(), optimizer="SGD", lr=0.5, epochs=2, device="cpu",
        run_dir=tmp_path / "run", callbacks=[Halve()],
    )  # fmt: skip
    assert trainer.optimizers == []
    trainer.fit()
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.125


def test_callbacks_are_no_list_to_add_to():
    callbacks = Callbacks(())
    with pytest.raises(ConfigError, match=r"there is no callbacks\.append: hand callbacks over as Trainer\(callbacks="):
        callbacks.append(Callback())
    assert not hasattr(callbacks, "extend") and not hasattr(callbacks, "other")
