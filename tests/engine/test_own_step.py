"""brim.Step in a loop of one's own, against a plain loop and against the trainer."""

import pytest
import torch
import torch.nn.functional as F
from helpers.faults import Above, Gate, ran_out
from helpers.weights import weights
from torch import nn

import brim
from brim.engine.step.transaction import OptimizerRanOut
from brim.errors import CannotFit, ConfigError

torch.manual_seed(0)
X, Y = torch.randn(40, 4), torch.randn(40, 1)


def net(limit=10**9, dropout=0.2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), Gate(Above(limit)), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def batches(epoch=0):
    return brim.Loader((X, Y), batch_size=8).batches(0, epoch)


def own_loop(model, **settings):
    step = brim.Step(model, adamw(model.parameters()), nn.MSELoss(), tell=lambda sentence: None, **settings)
    torch.manual_seed(0)
    losses = [float(step(batch)) for epoch in range(2) for batch in batches(epoch)]
    return weights(model), losses, step


@pytest.mark.parametrize("clip", [None, 0.1])
def test_it_is_the_plain_loop_to_the_bit(clip):
    model, losses = net(), []
    optimizer = adamw(model.parameters())
    torch.manual_seed(0)
    for epoch in range(2):
        for x, y in batches(epoch):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            losses.append(float(loss))
    trained, own, _ = own_loop(net(), clip_norm=clip)
    assert torch.equal(trained, weights(model))
    assert own == losses


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_it_is_the_trainers_step_to_the_bit(micro_batch, tmp_path):
    model = net()
    settings = {"loss_fn": nn.MSELoss(), "optimizer": adamw, "device": "cpu", "threads": torch.get_num_threads()}
    brim.Trainer(
        model, brim.Loader((X, Y), batch_size=8), epochs=2, run_dir=tmp_path / "run", micro_batch=micro_batch or "auto",
        **settings,
    ).fit()  # fmt: skip
    assert torch.equal(own_loop(net(), micro_batch=micro_batch)[0], weights(model))


def test_it_survives_running_out_of_memory():
    expected, _, _ = own_loop(net(), micro_batch=4)
    trained, _, step = own_loop(net(limit=4))
    assert step.micro_batch == 4
    assert torch.equal(trained, expected)


def test_several_batches_in_one_call_are_one_batch():
    parts, whole = net(dropout=0.0), net(dropout=0.0)
    for model, data in ((parts, [(X[:8], Y[:8]), (X[8:13], Y[8:13])]), (whole, [(X[:13], Y[:13])])):
        brim.Step(model, adamw(model.parameters()), nn.MSELoss())(*data)
    assert (weights(parts) - weights(whole)).norm() <= 1e-5 * weights(whole).norm()


def test_several_batches_in_one_call_survive_too():
    def train(limit):
        model = net(limit, dropout=0.0)
        brim.Step(model, adamw(model.parameters()), nn.MSELoss())((X[:8], Y[:8]), (X[8:13], Y[8:13]))
        return weights(model)

    assert (train(3) - train(99)).norm() <= 1e-5 * train(99).norm()


def test_gradients_of_before_do_not_count():
    model, fresh = net(dropout=0.0), net(dropout=0.0)
    model(X).sum().backward()
    for each in (model, fresh):
        brim.Step(each, adamw(each.parameters()), nn.MSELoss())((X[:8], Y[:8]))
    assert torch.equal(weights(model), weights(fresh))


def test_a_model_with_a_loss_of_its_own_needs_no_loss_fn():
    class Own(nn.Linear):
        def calculate_loss(self, batch):
            return self(batch).square().mean()

    model = Own(4, 1)
    assert brim.Step(model, adamw(model.parameters()))(X).shape == ()
    with pytest.raises(ConfigError, match="calculate_loss"):
        brim.Step(net(), adamw(net().parameters()))


def test_what_is_done_is_told_or_said_on_stderr(capsys):
    told, model = [], net(limit=4)
    brim.Step(model, adamw(model.parameters()), nn.MSELoss(), tell=told.append)((X[:8], Y[:8]))
    assert len(told) == 1
    assert capsys.readouterr() == ("", "")
    model = net(limit=4)
    brim.Step(model, adamw(model.parameters()), nn.MSELoss())((X[:8], Y[:8]))
    assert capsys.readouterr().err.startswith("brim: out of memory in the forward pass, in 1")


def test_what_cannot_fit_is_said_as_in_the_trainer():
    model = net(limit=0)
    with pytest.raises(CannotFit, match="one sample"):
        brim.Step(model, adamw(model.parameters()), nn.MSELoss(), tell=lambda sentence: None)((X[:8], Y[:8]))
    model = net(limit=4)
    with pytest.raises(CannotFit, match="must not be split"):
        brim.Step(model, adamw(model.parameters()), nn.MSELoss(), sliceable=False)((X[:8], Y[:8]))


def test_an_optimizer_that_runs_out_is_not_tried_again():
    class Greedy(torch.optim.SGD):
        def step(self, closure=None):
            raise ran_out()

    model = net()
    with pytest.raises(OptimizerRanOut):
        brim.Step(model, Greedy(model.parameters(), lr=0.1), nn.MSELoss())((X[:8], Y[:8]))


def test_a_second_step_of_the_optimizer_is_warned_of_once():
    said, model = [], net()
    optimizer = adamw(model.parameters())
    step = brim.Step(model, optimizer, nn.MSELoss(), tell=said.append)
    for number, batch in enumerate(batches()):
        step(batch)
        if number == 1:
            optimizer.load_state_dict(optimizer.state_dict())
        elif number > 1:
            optimizer.step()
    assert len(said) == 1 and "optimizer.step() was called beside brim.Step" in said[0]


def test_steps_that_take_turns_with_an_optimizer_and_a_state_that_is_loaded_are_not_warned_of():
    said, model = [], net()
    optimizer = adamw(model.parameters())
    steps = [brim.Step(model, optimizer, loss, tell=said.append) for loss in (nn.MSELoss(), nn.L1Loss())]
    for batch in batches():
        for step in steps:
            step(batch)
        with torch.no_grad():
            model[0].weight.clamp_(-0.1, 0.1)
        optimizer.load_state_dict(optimizer.state_dict())
    assert said == []


def test_a_schedule_and_a_learning_rate_of_ones_own_are_heeded():
    model, other = net(), net()
    for each, rate in ((model, 0.0), (other, 0.1)):
        optimizer = torch.optim.SGD(each.parameters(), lr=1.0)
        step = brim.Step(each, optimizer, nn.MSELoss())
        optimizer.param_groups[0]["lr"] = rate
        step((X[:8], Y[:8]))
    assert torch.equal(weights(model), weights(net()))
    assert not torch.equal(weights(other), weights(net()))


def test_parameters_that_are_added_later_are_clipped_too():
    model, late = nn.Linear(3, 1), nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    step = brim.Step(model, optimizer, lambda _, x: 1e6 * (model(x) + late(x)).sum(), clip_norm=1.0)
    step(torch.ones(2, 3))
    optimizer.add_param_group({"params": list(late.parameters())})
    step(torch.ones(2, 3))
    norms = [float(p.grad.norm()) for p in (*model.parameters(), *late.parameters())]
    assert sum(norm**2 for norm in norms) ** 0.5 == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(("arguments", "settings"), [(("adamw",), {}), (None, {"micro_batch": 0})])
def test_what_cannot_be_used_is_refused_when_the_step_is_made(arguments, settings):
    model = nn.Linear(3, 1)
    arguments = arguments or (torch.optim.SGD(model.parameters(), lr=0.1),)
    with pytest.raises(brim.BrimError):
        brim.Step(model, *arguments, nn.MSELoss(), **settings)


def test_micro_batches_of_a_batch_norm_are_warned_of_once():
    torch.manual_seed(0)
    told, model = [], nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), micro_batch=4, tell=told.append)
    for _ in range(3):
        step((torch.randn(8, 3), torch.randn(8, 1)))
    assert len(told) == 1 and "BatchNorm" in told[0] and "another training" in told[0]


def test_an_optimizer_that_needs_a_closure_is_refused():
    model = net()
    with pytest.raises(ConfigError, match=r"LBFGS.step needs a closure"):
        brim.Step(model, torch.optim.LBFGS(model.parameters()), nn.MSELoss())


# Losses that are means over labels


VOCABULARY, LENGTH = 50, 12


class Reader(nn.Module):
    """A language model as they are initialised: every token's loss is near that of a guess."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.norm, self.out = nn.Embedding(VOCABULARY, 32), nn.LayerNorm(32), nn.Linear(32, VOCABULARY)
        for weight in (self.table.weight, self.out.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, ids):
        return self.out(self.norm(self.table(ids)))


def sentences(step):
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(VOCABULARY, (16, LENGTH), generator=generator)
    lengths = 3 + torch.randint(LENGTH - 2, (16, 1), generator=generator)
    return ids, ids.roll(-1, 1).masked_fill(torch.arange(LENGTH) >= lengths, -100)


def token_mean(model, batch):
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def shifted_mean(model, batch):
    return F.cross_entropy(model(batch[0])[:, :-1].flatten(0, 1), batch[1][:, 1:].flatten())


def per_sample(model, batch):
    errors = F.cross_entropy(model(batch[0]).mT, batch[1], reduction="none")
    return (errors.sum(1) / (batch[1] != -100).sum(1)).mean()


def cut(batch, size):
    return list(zip(batch[0].split(size), batch[1].split(size), strict=True))


@pytest.mark.matrix(2)
@pytest.mark.parametrize("how", ["shortage", "micro_batch", "window", "window of single samples"])
@pytest.mark.parametrize("loss_fn", [token_mean, shifted_mean, per_sample])
def test_sentences_of_different_lengths_count_as_in_the_whole_batch(loss_fn, how):
    def limited(model, batch):
        if how == "shortage" and len(batch[0]) > 8:
            raise ran_out()
        return loss_fn(model, batch)

    told, model, plain = [], Reader(), Reader()
    optimizer = torch.optim.SGD(plain.parameters(), lr=1.0)
    step = brim.Step(
        model, torch.optim.SGD(model.parameters(), lr=1.0), limited, tell=told.append,
        micro_batch=3 if how == "micro_batch" else None,
    )  # fmt: skip
    for number in range(10):
        optimizer.zero_grad()
        loss_fn(plain, sentences(number)).backward()
        optimizer.step()
        parts = {"window": 5, "window of single samples": 1}.get(how, 16)
        step(*cut(sentences(number), parts))
    start = weights(Reader())
    assert float((weights(model) - weights(plain)).norm() / (weights(plain) - start).norm()) <= 1e-4
    assert not any("another training" in sentence for sentence in told)


def test_a_verdict_is_asked_for_once_and_leaves_the_losss_own_counters_alone():
    calls, drawn = [], torch.Generator().manual_seed(0)

    def loss_fn(model, batch):
        calls.append(float(torch.rand((), generator=drawn)))
        return token_mean(model, batch)

    model = Reader()
    step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn, micro_batch=8)
    for number in range(3):
        step(sentences(number))
    assert calls == torch.rand(6, generator=torch.Generator().manual_seed(0)).tolist()
