import copy
import pickle

import pytest
import torch
from torch import nn

import brim
from brim.arguments.attributes import METHODS
from brim.errors import ConfigError


@pytest.fixture
def trainer():
    x = torch.randn(4, 2)
    return brim.Trainer(nn.Linear(2, 1), (x, x[:, :1]), loss_fn=nn.MSELoss(), device="cpu", epochs=3)


MEANT = {
    "validate": "call trainer.evaluate(data)",
    "train": "call trainer.fit()",
    "save_model": "fit(save_model=True",
    "push_to_hub": "trainer.model.push_to_hub",
    "train_dataset": "it is train_data",
    "val_dataloaders": "it is eval_data",
    "global_step": "callbacks are handed epoch and step",
    "max_epochs": "it is settings.epochs",
    "epochs": "it is settings.epochs",
    "evalute": "did you mean evaluate?",
    "save_checkpoints": "checkpoints are written by themselves",
    "log_dict": "trainer.log({'name': value, ...})",
    "frobnicate": "its methods are evaluate, fit, log, predict, stop",
}


@pytest.mark.parametrize("name", MEANT)
def test_an_attribute_of_another_trainer_is_answered_with_what_is_meant(trainer, name):
    with pytest.raises(ConfigError) as told:
        getattr(trainer, name)
    assert MEANT[name] in str(told.value) and "\n" not in str(told.value)


def test_none_of_them_exists(trainer):
    assert [name for name in METHODS if hasattr(trainer, name)] == []


def test_those_who_ask_whether_there_is_one_are_told_no(trainer):
    assert not hasattr(trainer, "validate") and getattr(trainer, "validate", 3) == 3
    with pytest.raises(AttributeError, match="'Trainer' object has no attribute '_repr_html_'") as told:
        trainer._repr_html_()  # as notebooks ask
    assert not isinstance(told.value, ConfigError)


def test_copies_are_refused_as_before(trainer):
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ConfigError, match="cannot be copied"):
            copied(trainer)


def test_an_object_without_any_attributes_answers_too():
    bare = object.__new__(brim.Trainer)
    with pytest.raises(ConfigError, match=r"trainer\.fit"):
        bare.train()
    assert not hasattr(bare, "settings")


def test_a_property_that_fails_says_why_itself(trainer):
    class Own(brim.Trainer):
        @property
        def broken(self):
            return [].missing

    x = torch.randn(4, 2)
    with pytest.raises(AttributeError, match="'list' object has no attribute 'missing'"):
        _ = Own(nn.Linear(2, 1), (x, x[:, :1]), loss_fn=nn.MSELoss(), device="cpu").broken


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("should_stop", "call trainer.stop('why')"),
        ("epochs", "make a new one: Trainer(..., epochs=...)"),
        ("max_epochs", "make a new one: Trainer(..., epochs=...)"),
        ("lr", "Trainer(..., lr=...)"),
        ("model", "Trainer(..., model=...)"),
        ("loss_fn", "Trainer(..., loss_fn=...)"),
        ("optimizer", "Trainer(..., optimizer=...)"),
        ("callbacks", "Trainer(..., callbacks=...)"),
        ("accumulation", "Trainer(..., gradient_accumulation_steps=...)"),
        ("devices", "Trainer(..., device=...)"),
        ("settings", "make a new one with the arguments"),
        ("bounds", "make a new one with the arguments"),
        ("ranks", "make a new one with the arguments"),
        ("journal", "make a new one with the arguments"),
        ("callback_metrics", "what fit returns has .metrics"),
    ],
)
def test_what_would_have_no_effect_is_not_set(trainer, name, said):
    with pytest.raises(ConfigError) as told:
        setattr(trainer, name, 1)
    assert f"setting {name} has no effect" in str(told.value) and said in str(told.value)


def test_what_has_an_effect_and_names_of_the_users_own_are_set(trainer, tmp_path):
    trainer.run_dir, trainer.mine, trainer.eval_data = tmp_path / "run", 2, trainer.train_data
    trainer.mine += 1
    assert trainer.fit().run == tmp_path / "run" and trainer.mine == 3
    assert "loss" in trainer.evaluate()


@pytest.mark.parametrize("name", ["train_data", "eval_data"])
def test_data_is_not_exchanged_while_fit_goes_on(trainer, tmp_path, name):
    class Harder(brim.Callback):
        def on_epoch_end(self, trainer, epoch):
            setattr(trainer, name, trainer.train_data)

    trainer = brim.Trainer(
        trainer.model, trainer.train_data, loss_fn=trainer.loss_fn, device="cpu", run_dir=tmp_path / "harder",
        callbacks=[Harder()],
    )  # fmt: skip
    with pytest.raises(ConfigError, match=f"setting {name} has no effect while fit goes on"):
        trainer.fit()
    setattr(trainer, name, trainer.train_data)


def test_callbacks_reach_the_optimizer_and_the_schedule_by_their_usual_names(trainer, tmp_path):
    seen = []

    class Look(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            seen.append((trainer.optimizer.param_groups[0]["lr"], trainer.scheduler.get_last_lr()))

    x = torch.randn(4, 2)
    settings = {"optimizer": "SGD", "scheduler": "linear", "lr": 0.5, "run_dir": tmp_path / "run", "epochs": 2}
    made = brim.Trainer(
        nn.Linear(2, 1), (x, x[:, :1]), loss_fn=nn.MSELoss(), device="cpu", callbacks=Look(), **settings
    )
    assert (made.optimizer, made.scheduler) == ("SGD", "linear")
    made.fit()
    assert seen == [(0.25, [0.25]), (0.0, [0.0])]
