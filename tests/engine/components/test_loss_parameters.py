"""A loss that learns: trained as in a plain loop where the optimizer holds it, and refused where nobody would."""

import pytest
import torch
from torch import nn

import brim
from brim.errors import ConfigError

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(40) % 3


pytestmark = pytest.mark.usefixtures("own_folder")


class Tempered(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, prediction, target):
        return nn.functional.cross_entropy(prediction / self.temperature, target)


def net():
    torch.manual_seed(1)
    return nn.Linear(4, 3)


def both(model, loss_fn):
    return torch.optim.SGD([*model.parameters(), *loss_fn.parameters()], lr=0.1, momentum=0.9)


def loader():
    return brim.Loader((X, Y), batch_size=8)


def trained(resume=None, callbacks=(), model=None, **settings):
    model, loss_fn = model or net(), Tempered()
    settings = {"optimizer": both(model, loss_fn), "epochs": 2, "run_dir": "run", **settings}
    brim.Trainer(model, loader(), loss_fn=loss_fn, device="cpu", threads=1, callbacks=callbacks, **settings).fit(
        resume=resume
    )
    return torch.cat([p.detach().flatten() for p in (*model.parameters(), *loss_fn.parameters())])


def plain():
    torch.set_num_threads(1)
    model, loss_fn = net(), Tempered()
    optimizer = both(model, loss_fn)
    for epoch in range(2):
        for x, y in loader().batches(0, epoch):
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
    return torch.cat([p.detach().flatten() for p in (*model.parameters(), *loss_fn.parameters())])


def test_a_loss_that_the_optimizer_holds_is_trained_as_in_a_plain_loop():
    assert torch.equal(trained(), plain())


def test_so_it_is_in_micro_batches():
    assert torch.allclose(trained(micro_batch=3), plain(), atol=1e-6)


def test_so_it_is_by_a_function_of_the_parameters():
    model, loss_fn = net(), Tempered()
    optimizer = lambda parameters: torch.optim.SGD([*parameters, *loss_fn.parameters()], lr=0.1, momentum=0.9)  # noqa: E731
    settings = {"device": "cpu", "threads": 1, "epochs": 2}
    brim.Trainer(model, loader(), loss_fn=loss_fn, optimizer=optimizer, **settings).fit()
    found = torch.cat([p.detach().flatten() for p in (*model.parameters(), *loss_fn.parameters())])
    assert torch.equal(found, plain())


def test_it_is_resumed_to_the_bit():
    class Stop(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == 7:
                trainer.stop("for a while")

    trained(callbacks=[Stop()])
    assert torch.equal(trained(resume="run", model=nn.Linear(4, 3)), plain())


def test_what_nobody_would_train_is_refused_in_a_run_and_in_a_step(tmp_path):
    model = net()
    with pytest.raises(ConfigError, match=r"parameters of its own \(temperature\), which the optimizer does not hold"):
        brim.Trainer(model, loader(), loss_fn=Tempered(), device="cpu").fit()
    with pytest.raises(ConfigError, match="parameters of its own"):
        brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), Tempered())
    assert not (tmp_path / "runs").exists()


def test_one_that_is_frozen_is_used_as_it_is():
    frozen = Tempered().requires_grad_(False)
    assert brim.Trainer(net(), loader(), loss_fn=frozen, device="cpu").fit().steps == 5
