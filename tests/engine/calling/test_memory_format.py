"""Trainings with the channels of convolutions last, beside the same ones as they come."""

import pytest
import torch
from torch import nn

import brim
from brim.engine.calling.memory_format import lay_out
from brim.errors import ConfigError

X, Y = torch.randn(24, 3, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 4


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2),
        nn.Flatten(), nn.Linear(128, 4),
    )  # fmt: skip


def trainer(model, path, memory_format="channels_last", **settings):
    given = {"loss_fn": nn.CrossEntropyLoss(), "device": "cpu", "threads": 1, "epochs": 3, "lr": 0.01}
    data = brim.Loader((X, Y), batch_size=6, shuffle=True)
    return brim.Trainer(model, data, memory_format=memory_format, run_dir=path, **{**given, **settings})


def assert_close(one, other):
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(tensor, other.state_dict()[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    "settings",
    [{}, {"micro_batch": 2, "ema": 0.9, "eval_data": (X, Y)}, {"optimizer": {"name": "AdamW", "fused": True}}],
    ids=["plain", "micro-batches", "fused"],
)
def test_it_is_the_same_training_but_for_rounding(tmp_path, settings):
    plain, other = net(), net()
    trainer(plain, tmp_path / "plain", "preserve", **settings).fit()
    trainer(other, tmp_path / "other", **settings).fit()
    assert plain[0].weight.is_contiguous()
    assert other[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert_close(plain, other)


def test_it_is_torchs_own_loop_with_the_model_laid_out_so(tmp_path):
    model, own = net(), net().to(memory_format=torch.channels_last)
    batches = [(X[start : start + 6], Y[start : start + 6]) for start in range(0, 24, 6)]
    given = {"loss_fn": nn.CrossEntropyLoss(), "device": "cpu", "threads": 1, "optimizer": "SGD", "lr": 0.1}
    brim.Trainer(model, batches, memory_format="channels_last", run_dir=tmp_path / "run", **given).fit()
    optimizer, threads = torch.optim.SGD(own.parameters(), lr=0.1), torch.get_num_threads()
    torch.set_num_threads(1)
    for inputs, labels in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(own(inputs), labels).backward()
        optimizer.step()
    torch.set_num_threads(threads)
    assert all(map(torch.equal, model.parameters(), own.parameters()))


class Stop(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        if step == 5:
            trainer.stop("for a while")


@pytest.mark.parametrize(("begun", "goes_on"), [("channels_last",) * 2, ("preserve", "channels_last")])
def test_a_run_goes_on_from_either_layout(tmp_path, begun, goes_on):
    settings = {"optimizer": {"name": "AdamW", "fused": True}}
    whole, resumed = net(), net()
    trainer(whole, tmp_path / "whole", begun, **settings).fit()
    trainer(net(), tmp_path / "run", begun, callbacks=[Stop()], **settings).fit()
    trainer(resumed, tmp_path / "run", goes_on, **settings).fit(resume="auto")
    assert begun != goes_on or all(map(torch.equal, whole.parameters(), resumed.parameters()))
    assert_close(whole, resumed)


def test_a_stepped_optimizer_of_the_users_goes_on(tmp_path):
    plain, other = net(), net()
    for model, memory_format in ((plain, "preserve"), (other, "channels_last")):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        model(X).sum().backward()
        optimizer.step()
        trainer(model, tmp_path / memory_format, memory_format, optimizer=optimizer, epochs=1).fit()
    assert_close(plain, other)


def test_models_without_convolutions_are_told_that_it_does_nothing(tmp_path, capsys):
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
    trainer(model, tmp_path / "run", epochs=1).fit()
    assert "memory_format='channels_last' has no effect: the model has no convolutions" in capsys.readouterr().err


def test_what_lies_otherwise_already_is_counted_and_stays():
    volume = nn.Conv3d(2, 3, 2)
    assert lay_out(nn.ModuleList([volume, nn.Conv1d(2, 2, 1)]), "channels_last") == 1
    assert volume.weight.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("name", ["channels_first", None, True])
def test_other_names_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="memory_format="):
        trainer(net(), tmp_path / "run", name)


def test_the_weights_lie_so_after_fit_as_after_torchs_own_call_and_go_back_with_it(tmp_path):
    model, own = net(), net().to(memory_format=torch.channels_last)
    done = trainer(model, tmp_path / "run")
    done.fit()
    assert model[0].weight.stride() == own[0].weight.stride()
    assert done.evaluate((X, Y))["loss"] > 0 and len(done.predict(X)) == len(X)
    assert model.to(memory_format=torch.contiguous_format)[0].weight.is_contiguous()


def test_a_dry_run_leaves_them_as_they_lay(tmp_path):
    for model in (net(), net().to(memory_format=torch.channels_last)):
        before, numbers = model[0].weight.stride(), model[0].weight.detach().clone()
        trainer(model, tmp_path / "run", fast_dev_run=True).fit()
        assert model[0].weight.stride() == before and torch.equal(model[0].weight, numbers)
