import importlib
import inspect
import re

import pytest

import brim
from brim.engine.control.callbacks import Callback
from brim.engine.control.hook_names import ELSEWHERE, INSTEAD, check_callbacks, hook_names
from brim.errors import ConfigError


def refused(callbacks):
    with pytest.raises(ConfigError) as caught:
        check_callbacks(callbacks)
    return str(caught.value)


def with_method(name, function=lambda self, *arguments: None, base=Callback):
    return type("Mine", (base,), {name: function})()


class Plain(Callback):
    def on_step_end(self, trainer, step, loss):
        self.help_with(step)

    def help_with(self, step): ...


def test_callbacks_that_can_be_called_pass_as_a_tuple():
    one, two = Plain(), Callback()
    assert check_callbacks([one, two]) == (one, two)
    assert check_callbacks(()) == check_callbacks(None) == ()


def test_one_alone_will_do():
    one = Plain()
    assert check_callbacks(one) == (one,)


def test_a_class_instead_of_an_object_is_refused():
    assert "hand over an object: Plain()" in refused([Plain])
    assert "hand over an object: Plain()" in refused(Plain)


@pytest.mark.parametrize("thing", [object(), 3, "x", print])
def test_an_object_that_is_no_callback_is_refused_with_the_hooks_there_are(thing):
    assert "no brim.Callback" in refused([thing]) and "on_epoch_end" in refused([thing])


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_hook_of_another_trainer_is_refused_with_the_one_here(name):
    if name in hook_names():
        pytest.skip("it is one of ours")
    here = ELSEWHERE[name]
    assert f"Mine.{name} would never be called: the hook here is {here}(self, trainer" in refused([with_method(name)])


def test_a_typing_error_in_a_hook_is_met_with_the_nearest():
    assert "did you mean on_epoch_end?" in refused([with_method("on_epoch_ends")])


def test_a_hook_on_a_class_between_is_seen():
    between = type(with_method("on_train_batch_end"))
    assert "on_step_end" in refused([with_method("help", base=between)])


def test_a_helper_with_a_foreign_name_that_own_hooks_use_is_left_alone():
    assert check_callbacks([with_method("batch_end", base=Plain)])


@pytest.mark.parametrize(
    "hook", [lambda self, trainer: None, lambda self: None, lambda self, trainer, step, loss, more: None]
)
def test_a_hook_that_cannot_take_its_arguments_is_refused_with_those(hook):
    assert "def on_step_end(self, trainer, step, loss)" in refused([with_method("on_step_end", hook)])


@pytest.mark.parametrize("hook", [lambda self, *a: None, lambda self, t, s, value, more=1, **k: None])
def test_a_hook_that_takes_them_in_its_own_way_passes(hook):
    assert check_callbacks([with_method("on_step_end", hook)])


@pytest.mark.parametrize(
    ("library", "name", "here"),
    [
        ("transformers", "EarlyStoppingCallback", "patience=3"),
        ("lightning.pytorch.callbacks", "EarlyStopping", "patience=3"),
        ("lightning.pytorch.callbacks", "ModelCheckpoint", "keep_best="),
        ("lightning.pytorch.callbacks", "LearningRateMonitor", "not needed: lr is in every line"),
        ("lightning.pytorch.callbacks", "TQDMProgressBar", "a bar is shown"),
    ],
)
def test_a_callback_of_another_trainer_that_is_a_setting_here_is_met_with_it(library, name, here):
    kind = getattr(importlib.import_module(library), name)
    made = kind("loss") if name == "EarlyStopping" else kind()
    told = refused([made])
    assert told.startswith(f"{name} is a callback of another trainer's; here it is ") and here in told


def test_what_they_are_here_are_arguments_of_the_trainer():
    named = {word for told in INSTEAD.values() for word in re.findall(r"(\w+)=", told)}
    assert named <= set(inspect.signature(brim.Trainer).parameters)
