"""precision="bf16-true": the loop by hand with ``model.bfloat16()``, to the bit."""

from pathlib import Path

import pytest
import torch
from torch import nn

import brim
from brim.engine.checkpoints.weights import load_weights
from brim.errors import ConfigError, ModelError, RunFolderError

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


pytestmark = pytest.mark.usefixtures("own_folder")


def net(outputs=1):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, outputs))


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.02)


def trainer(model, data=None, **settings):
    fixed = {
        "loss_fn": nn.MSELoss(), "optimizer": adam, "device": "cpu", "threads": 1, "run_dir": "run", "epochs": 3,
        "precision": "bf16-true",
    }  # fmt: skip
    return brim.Trainer(model, brim.Loader(data or (X, Y), batch_size=8), **{**fixed, **settings})


def plain_loop(model, criterion=nn.functional.mse_loss, target=Y, epochs=3, clip=None, after=None):
    torch.set_num_threads(1)
    model.bfloat16()
    optimizer = adam(model.parameters())
    torch.manual_seed(0)
    for epoch in range(epochs):
        for x, y in brim.Loader((X, target), batch_size=8).batches(0, epoch):
            optimizer.zero_grad()
            y = y.bfloat16() if y.is_floating_point() else y
            criterion(model(x.bfloat16()), y).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if after is not None:
                after(model)
    return model


def same_bits(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    return all(ours[name].dtype == t.dtype and torch.equal(ours[name], t) for name, t in theirs.items())


@pytest.mark.parametrize("clip", [None, 0.5])
def test_it_is_the_plain_loop_to_the_bit(clip):
    model = net()
    made = trainer(model, clip_norm=clip)
    assert model[0].weight.dtype == torch.float32  # until it is trained
    made.fit()
    assert same_bits(model, plain_loop(net(), clip=clip))
    assert model[1].running_mean.dtype == torch.bfloat16 and model[1].num_batches_tracked.dtype == torch.int64
    (optimizer,) = made.optimizers
    assert all(optimizer.state[p]["exp_avg_sq"].dtype == torch.bfloat16 for p in model.parameters())


@pytest.mark.parametrize("weight", [None, torch.tensor([0.3, 1.0, 2.0])])
def test_a_loss_with_class_weights_is_cast_with_the_model(weight):
    model, twin = net(3), net(3)
    trainer(model, (X, LABELS), loss_fn=nn.CrossEntropyLoss(weight=None if weight is None else weight.clone())).fit()
    criterion = nn.CrossEntropyLoss(weight=None if weight is None else weight.bfloat16())
    assert same_bits(model, plain_loop(twin, criterion, LABELS))


def test_labels_without_any_that_counts_add_nothing():
    """In 16 bits their mean is torch's own, 0 / 0."""
    labels = torch.where(torch.arange(40) < 8, LABELS, -100)
    made = trainer(net(3), loss_fn=nn.CrossEntropyLoss(), eval_data=[(X, labels)])
    model = net(3).bfloat16().eval()
    expected = float(nn.functional.cross_entropy(model(X.bfloat16()), labels).detach())
    assert made.evaluate([(X[:8], labels[:8]), (X[8:], labels[8:])])["loss"] == pytest.approx(expected, rel=2**-7)


def test_the_log_says_that_numbers_are_others():
    trainer(net()).fit()
    assert "which is another training than in fp32" in Path("run/log.txt").read_text()


def test_an_optimizer_made_before_goes_on_with_the_same_parameters():
    model = net()
    trainer(model, optimizer=adam(model.parameters())).fit()
    assert same_bits(model, plain_loop(net()))


def test_an_optimizer_that_has_stepped_in_float32_is_refused():
    model = net()
    optimizer = adam(model.parameters())
    model(X).sum().backward()
    optimizer.step()
    with pytest.raises(ConfigError, match="has stepped in float32"):
        trainer(model, optimizer=optimizer).fit()


class StopAt(brim.Callback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer, step, loss):
        if step == self.step:
            trainer.stop("for the test")


@pytest.mark.parametrize("stop", [3, 5])
def test_it_resumes_to_the_bit(stop):
    trainer(net(), callbacks=[StopAt(stop)]).fit()
    model = net()
    trainer(model).fit(resume="run")
    assert same_bits(model, plain_loop(net()))


@pytest.mark.parametrize(("before", "after"), [("bf16-true", "32"), ("32", "bf16-true"), ("bf16-mixed", "bf16-true")])
def test_a_checkpoint_of_weights_in_another_type_is_refused(before, after):
    trainer(net(), precision=before, callbacks=[StopAt(3)]).fit()
    with pytest.raises(RunFolderError, match="resume with the precision that it was made with"):
        trainer(net(), precision=after).fit(resume="run")


def test_evaluation_and_predictions_compute_in_it():
    model = net()
    made = trainer(model, eval_data=[(X, Y)], restore_best=False)
    found = made.fit().metrics["loss"]
    expected = plain_loop(net()).eval()
    with torch.no_grad():
        outputs = expected(X.bfloat16())
        assert found == float(nn.functional.mse_loss(outputs, Y.bfloat16()))
        assert torch.equal(made.predict(X).bfloat16(), outputs)
    assert made.evaluate([(X, Y)])["loss"] == found


def test_a_model_is_evaluated_and_predicts_before_it_is_trained():
    twin = net().bfloat16().eval()
    made = trainer(net())
    assert torch.equal(made.predict(X).bfloat16(), twin(X.bfloat16()))
    expected = nn.functional.mse_loss(twin(X.bfloat16()), Y.bfloat16()).detach()
    assert made.evaluate([(X, Y)])["loss"] == float(expected)


def test_a_fast_dev_run_leaves_weights_as_long_as_they_were():
    model = net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trainer(model, fast_dev_run=True, eval_data=[(X, Y)]).fit()
    after = model.state_dict()
    assert all(after[name].dtype == t.dtype and torch.equal(after[name], t) for name, t in before.items())


@pytest.mark.parametrize("name", ["16-true", "fp16-true"])
def test_weights_in_fp16_are_refused_with_what_to_use(name):
    with pytest.raises(ConfigError, match="use 'bf16-true'"):
        trainer(net(), precision=name)


def test_weights_that_came_in_bf16_train_with_data_in_bf16_as_a_loop_does():
    model = net().bfloat16()
    trainer(model, (X.bfloat16(), Y.bfloat16()), precision="32").fit()
    assert same_bits(model, plain_loop(net()))


def test_weights_that_came_in_bf16_beside_float32_data_are_told_what_to_pass():
    with pytest.raises(ModelError, match="precision='bf16-true' casts the batches"):
        trainer(net().bfloat16(), precision="32").fit()


def test_data_that_is_no_number_and_whole_numbers_stay():
    seen = []

    def loss(model, batch):
        seen.append((batch["x"].dtype, batch["mask"].dtype, batch["name"]))
        return model(batch["x"]).mean()

    batch = {"x": X.double(), "mask": torch.ones(40, dtype=torch.bool), "name": "a"}
    model = net()
    brim.Trainer(
        model, [batch], loss_fn=loss, device="cpu", precision="bf16-true", run_dir="run", sliceable=False
    ).fit()
    assert set(seen) == {(torch.bfloat16, torch.bool, "a")}


def test_a_step_of_ones_own_loop_is_the_plain_loop():
    torch.set_num_threads(1)
    model, twin = net(), net().bfloat16()
    step = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), precision="bf16-true")
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for start in range(0, 40, 8):
        torch.manual_seed(start)
        step((X[start : start + 8], Y[start : start + 8]))
        torch.manual_seed(start)
        optimizer.zero_grad()
        nn.functional.mse_loss(twin(X[start : start + 8].bfloat16()), Y[start : start + 8].bfloat16()).backward()
        optimizer.step()
    assert same_bits(model, twin)


def deep_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def summed_gradients(model, sizes):
    """All passes but the last summed up in single precision, the last added by autograd."""
    sums, start = {}, 0
    for number, size in enumerate(sizes):
        x, y = X[start : start + size].bfloat16(), Y[start : start + size].bfloat16()
        start += size
        if number == len(sizes) - 1:
            for parameter in model.parameters():
                parameter.grad = sums[parameter].bfloat16()
        (nn.functional.mse_loss(model(x), y).float() * size / sum(sizes)).backward()
        if number < len(sizes) - 1:
            for parameter in model.parameters():
                sums[parameter] = sums.get(parameter, 0) + parameter.grad.float()
                parameter.grad = None


@pytest.mark.parametrize("how", ["micro_batch", "accumulation"])
def test_micro_batches_are_summed_up_in_single_precision(how):
    model, twin = deep_net(), deep_net().bfloat16()
    data = brim.Loader((X, Y), batch_size=40 if how == "micro_batch" else 8, shuffle=False)
    parts = {"micro_batch": 8} if how == "micro_batch" else {"gradient_accumulation_steps": 5}
    brim.Trainer(
        model, data, loss_fn=nn.MSELoss(), optimizer=lambda p: torch.optim.SGD(p, lr=0.1), device="cpu", threads=1,
        precision="bf16-true", run_dir="run", max_steps=1, **parts,
    ).fit()  # fmt: skip
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    summed_gradients(twin, [8] * 5)
    optimizer.step()
    assert same_bits(model, twin)


def test_many_micro_batches_make_the_step_of_the_whole_batch():
    """A sum in bfloat16 of 400 equal terms would stop at 256 of them."""

    def weight_after(**settings):
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        ones = torch.ones(400, 1)
        brim.Trainer(
            model, brim.Loader((ones, ones), 400), loss_fn=nn.MSELoss(), device="cpu", precision="bf16-true",
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1), max_steps=1, run_dir=f"run{len(settings)}", **settings,
        ).fit()  # fmt: skip
        return model.weight.item()

    assert weight_after(micro_batch=1) == pytest.approx(weight_after(), rel=2**-7)


def test_the_average_has_32_bits_and_moves():
    sums = {}

    def average(model):
        for name, parameter in model.named_parameters():
            new = parameter.detach().float()
            sums[name] = sums[name].lerp(new, 1 - 0.999) if name in sums else new

    plain_loop(net(), after=average)
    model = net()
    made = trainer(model, ema=0.999, eval_data=[(X, Y)], eval_every="5 steps", restore_best=False)
    found = made.fit().metrics["loss"]
    kept = dict(made.ema_model.named_parameters())
    assert all(torch.equal(kept[name], value) for name, value in sums.items())
    assert all(torch.equal(p, sums[name].bfloat16()) for name, p in model.named_parameters())
    assert made.evaluate([(X, Y)])["loss"] == found
    trained = net().bfloat16()
    load_weights(trained, Path("run/checkpoints/step-000000015/model.safetensors"))
    assert same_bits(trained, plain_loop(net()))  # evaluating the average has not touched it
    first = trainer(net(), ema=0.999, run_dir="other", callbacks=[StopAt(4)])
    first.fit()
    again = trainer(net(), ema=0.999, run_dir="other")
    again.fit(resume="other")
    assert all(torch.equal(p, sums[name]) for name, p in again.ema_model.named_parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("micro_batch", ["auto", 2])
def test_captured_steps_are_eager_ones(micro_batch):
    found = []
    for capture in ("off", "require"):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
        made = trainer(
            model, (X.repeat(4, 1), Y.repeat(4, 1)), device="cuda", capture=capture, run_dir=f"run-{capture}",
            optimizer=lambda p: torch.optim.AdamW(p, lr=0.01, fused=True), micro_batch=micro_batch,
        )  # fmt: skip
        made.fit()
        assert capture == "off" or made.captured.replays > 10
        found.append(torch.cat([p.detach().float().flatten() for p in model.parameters()]).cpu())
    assert float((found[0] - found[1]).norm() / found[0].norm()) <= 2e-2


@pytest.mark.gpu
def test_on_a_gpu_it_is_the_plain_loop_to_the_bit():
    model, twin = deep_net(), deep_net().cuda().bfloat16()
    trainer(model, device="cuda", capture="off", epochs=2).fit()
    optimizer = adam(twin.parameters())
    for epoch in range(2):
        for x, y in brim.Loader((X, Y), batch_size=8).batches(0, epoch):
            optimizer.zero_grad()
            nn.functional.mse_loss(twin(x.cuda().bfloat16()), y.cuda().bfloat16()).backward()
            optimizer.step()
    assert same_bits(model, twin)
