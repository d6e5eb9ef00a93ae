"""What is frozen, and what the optimizer holds, after a run went back or was resumed: as in one that did neither."""

import pytest
import torch
from helpers.callbacks import StopAt
from helpers.weights import weights
from torch import nn

import brim
from brim.engine.run_state.trained_parameters import group_names, put_back_groups, take_groups

pytestmark = pytest.mark.usefixtures("own_folder")

torch.manual_seed(0)
X = torch.randn(48, 4)
Y = X.sin().sum(1, keepdim=True)


def net():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    model[0].requires_grad_(False)
    return model


class Change(brim.Callback):
    """After ``step``: thaw what is frozen, or freeze what is trained."""

    def __init__(self, step, layer):
        self.step, self.layer = step, layer

    def on_step_end(self, trainer, step, loss):
        if step == self.step:
            layer = trainer.model[self.layer]
            layer.requires_grad_(not layer.weight.requires_grad)


class AddGroup(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        if step == 5:
            trainer.model[0].requires_grad_(True)
            trainer.optimizer.add_param_group({"params": list(trainer.model[0].parameters()), "lr": 0.002})


def batches(bad=None):
    made = [(X[first : first + 8].clone(), Y[first : first + 8]) for first in range(0, 48, 8)]
    if bad is not None:
        made[bad - 1][0][0] = float("nan")
    return made


def train(folder, callbacks, model=None, resume=None, optimizer="AdamW", data=None, **settings):
    model = net() if model is None else model
    optimizer = optimizer(model) if callable(optimizer) else optimizer
    brim.Trainer(
        model, batches() if data is None else data, loss_fn=nn.MSELoss(), optimizer=optimizer, lr=0.01, device="cpu",
        threads=1, run_dir=folder, callbacks=callbacks, **settings,
    ).fit(resume=resume)  # fmt: skip
    return model


def of_all(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def of_the_trained(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)


def by_rules(model):
    return {"name": "AdamW", "no_decay": ["bias"]}


CHANGES = {
    "thawed": ("AdamW", lambda: Change(5, 0)),
    "frozen": ("AdamW", lambda: Change(5, 2)),
    "thawed, fused momentum": ({"name": "SGD", "momentum": 0.9, "fused": True}, lambda: Change(5, 0)),
    "thawed, an optimizer of all": (of_all, lambda: Change(5, 0)),
    "frozen, an optimizer of all": (of_all, lambda: Change(5, 2)),
    "thawed, groups by rule": (by_rules, lambda: Change(5, 0)),
    "a group that a callback adds": (of_the_trained, AddGroup),
}


@pytest.mark.matrix(2)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("checkpoint_every", [1, 3, 5])
def test_a_run_that_goes_back_has_frozen_and_thawed_layers_as_they_were(change, checkpoint_every):
    optimizer, callback = CHANGES[change]
    settings = {"optimizer": optimizer, "data": batches(bad=6), "epochs": 2, "checkpoint_every": checkpoint_every}
    skipped = train("skip", [callback()], on_nan="skip", **settings)
    rewound = train("rewind", [callback()], on_nan="rewind", **settings)
    assert torch.equal(weights(rewound), weights(skipped))
    assert not torch.equal(weights(skipped), weights(net()))


@pytest.mark.parametrize("is_in_hook", [True, False])
def test_back_to_the_checkpoint_that_it_was_resumed_from_it_has_what_the_user_has_frozen_since(is_in_hook, capsys):
    """The checkpoint has what the run before had, which this one was told not to go on with."""

    class Freeze(brim.Callback):
        def on_fit_start(self, trainer):
            trainer.model[2].requires_grad_(False)

    def run(folder, on_nan):
        train(folder, [], epochs=1, optimizer=of_all)
        model = net()
        if not is_in_hook:
            model[2].requires_grad_(False)
        hooks = [Freeze()] if is_in_hook else []
        settings = {"data": batches(bad=4), "epochs": 2, "optimizer": of_all, "on_nan": on_nan}
        return train(folder, [*hooks, Change(8, 0)], model, folder, **settings)

    skipped = run("skip", "skip")
    assert torch.equal(weights(run("rewind", "rewind")), weights(skipped))
    assert ("other layers are frozen" in capsys.readouterr().err) is not is_in_hook


@pytest.mark.matrix(3)
@pytest.mark.parametrize("optimizer", ["AdamW", of_all])
@pytest.mark.parametrize("stops", [(8, 14), (7, 8), (14, 20)])
def test_a_model_that_was_thawed_may_be_resumed_with_itself_and_then_by_a_script(stops, optimizer):
    settings = {"epochs": 4, "optimizer": optimizer}
    whole = train("whole", [Change(7, 0)], **settings)
    model = train("run", [Change(7, 0), StopAt(stops[0])], **settings)
    train("run", [Change(7, 0), StopAt(stops[1])], model, "run", **settings)
    assert torch.equal(weights(train("run", [Change(7, 0)], None, "run", **settings)), weights(whole))


def test_a_script_that_has_thawed_them_itself_since_goes_on_too():
    """Resumed with what the run had come to, and later with the same script, when the run had come further."""

    def script(resume=None, stop=999, is_thawed=False, folder="run"):
        model = net()
        model[0].requires_grad_(is_thawed)
        return train(folder, [Change(7, 0), Change(13, 2), StopAt(stop)], model, resume, epochs=4)

    whole = script(folder="whole")
    script(stop=8)
    script("run", 14, is_thawed=True)
    assert torch.equal(weights(script("run", is_thawed=True)), weights(whole))


def test_what_a_user_thaws_where_a_run_is_resumed_is_trained_from_there_on(capsys):
    """By brim's optimizer as by one of all parameters."""

    def run(folder, optimizer):
        train(folder, [], epochs=1, optimizer=optimizer)
        model = net()
        model[0].requires_grad_(True)
        return train(folder, [], model, folder, epochs=2, optimizer=optimizer)

    trained = run("run", {"name": "AdamW", "fused": False})
    assert torch.equal(weights(trained), weights(run("all", of_all)))
    assert not torch.equal(weights(trained)[:32], weights(net())[:32])
    assert capsys.readouterr().err.count("other layers are frozen") == 2


def normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))


class Switch(brim.Callback):
    """After the fifth step the norm computes with the statistics that it has come to."""

    def on_step_end(self, trainer, step, loss):
        if step == 5:
            trainer.model[1].eval()


def test_a_run_that_goes_back_has_norms_in_the_modes_that_they_were_in():
    settings = {"data": batches(bad=6), "epochs": 2, "checkpoint_every": 3}
    skipped = train("skip", [Switch()], normed(), on_nan="skip", **settings)
    rewound = train("rewind", [Switch()], normed(), on_nan="rewind", **settings)
    assert torch.equal(weights(rewound), weights(skipped))
    assert torch.equal(rewound[1].running_mean, skipped[1].running_mean)


@pytest.mark.parametrize("stop", [4, 5, 7])
def test_a_resumed_run_has_norms_in_the_modes_that_callbacks_gave_them(stop):
    whole = train("whole", [Switch()], normed(), epochs=2)
    model = train("run", [Switch(), StopAt(stop)], normed(), epochs=2)
    assert model[1].training  # as it came
    for again in (model, normed()):
        resumed = train("run", [Switch(), StopAt(9)], again, "run", epochs=2)
    resumed = train("run", [Switch()], normed(), "run", epochs=2)
    assert torch.equal(weights(resumed), weights(whole))
    assert torch.equal(resumed[1].running_mean, whole[1].running_mean)


def test_modes_that_a_user_has_changed_since_count_and_are_told(capsys):
    train("run", [Switch()], normed(), epochs=1)
    model = normed()
    model[2].eval()
    train("run", [], model, "run", epochs=2)
    assert "other modules are in eval mode" in capsys.readouterr().err


def test_a_checkpoint_of_an_earlier_version_says_what_was_trained_at_its_start(tmp_path):
    train("run", [Change(7, 0), StopAt(8)], epochs=4)
    (path,) = (tmp_path / "run" / "checkpoints").glob("step-*8")
    saved = torch.load(path / "training.pt", weights_only=True)
    (saved["trained_at_start"],) = saved.pop("trained_at_starts")
    del saved["in_eval"], saved["in_eval_at_starts"]
    torch.save(saved, path / "training.pt")
    (path / "checksums.json").unlink()
    whole = train("whole", [Change(7, 0)], epochs=4)
    assert torch.equal(weights(train("run", [Change(7, 0)], None, "run", epochs=4)), weights(whole))


def test_groups_come_back_whatever_has_joined_or_left():
    model, temperature = net(), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([*model[4].parameters(), temperature], lr=0.1)
    before = group_names(model, optimizer)
    assert before == [["4.weight", "4.bias", None]]
    optimizer.param_groups[0]["params"].extend(model[2].parameters())
    optimizer.add_param_group({"params": list(model[0].parameters())})
    put_back_groups(model, optimizer, before)
    assert group_names(model, optimizer) == before
    optimizer = torch.optim.SGD([*model[4].named_parameters(prefix="4")], lr=0.1)
    put_back_groups(model, optimizer, [["2.weight", "4.weight"], ["0.bias"]])
    assert group_names(model, optimizer) == [["2.weight", "4.weight"], ["0.bias"]]
    assert optimizer.param_groups[0]["param_names"] == ["2.weight", "4.weight"]


def test_an_optimizer_that_holds_other_things_than_a_checkpoints_is_left_as_it_is():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = group_names(model, optimizer)
    for wanted in ([["4.weight"]], [["elsewhere", *before[0]]], [[None, "4.weight"]]):
        take_groups(model, optimizer, wanted)
        assert group_names(model, optimizer) == before
    take_groups(model, optimizer, [["4.bias"], ["4.weight"]], drops=True)
    assert group_names(model, optimizer) == before
