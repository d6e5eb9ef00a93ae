import json

import pytest
import torch
from helpers.faults import Above, Gate
from torch import nn

import brim
from brim.engine.distributed.ranks import Ranks
from brim.engine.numbers.pass_notes import LoggedNumber
from brim.engine.numbers.summed_loss import Loss
from brim.engine.run_log.logged_numbers import LoggedNumbers
from brim.engine.trainer import run_now

X = torch.randn(37, 4, generator=torch.Generator().manual_seed(1))
Y = torch.randn(37, 1, generator=torch.Generator().manual_seed(2))


def test_the_mean_is_that_of_steps_each_over_what_it_counted():
    logged = LoggedNumbers(Ranks())
    logged.add_step([LoggedNumber("a", torch.tensor(1.0), 3), LoggedNumber("a", torch.tensor(5.0), torch.tensor(1))])
    logged.add_step([LoggedNumber("a", 4.0, 100), LoggedNumber("b", Loss(torch.tensor(6.0), 3), 1)])
    logged.add_step([])
    assert logged.means() == {"a": 3.0, "b": 2.0}
    assert logged.means() == {}


def test_what_a_callback_logs_is_of_the_step_before():
    logged = LoggedNumbers(Ranks())
    logged.add("early", 1.0)
    for value in (1.0, 3.0):
        logged.add_step([])
        logged.add("mine", torch.tensor(value))
    assert logged.means() == {"early": 1.0, "mine": 2.0}


def test_what_is_logged_before_a_step_is_of_that_step():
    logged = LoggedNumbers(Ranks())
    for value in (1.0, 3.0, 8.0):
        logged.begin_step()
        logged.add("start", value)
        logged.add_step([])
        logged.add("end", value)
    assert logged.means() == {"start": 4.0, "end": 4.0}
    logged.begin_step()
    logged.add("start", 2.0)  # and the step is not made
    assert logged.means() == {"start": 2.0}


class Both(brim.Callback):
    def on_step_start(self, trainer, step):
        trainer.log("start", step)

    def on_step_end(self, trainer, step, loss):
        trainer.log("end", step)


@pytest.mark.parametrize("log_every", [1, 3, 4])
def test_the_start_of_a_step_and_its_end_are_logged_alike(tmp_path, log_every):
    _, logged = fit(tmp_path, "run", nn.MSELoss(), callbacks=[Both()], epochs=2, log_every=log_every)
    found = [(line["start"], line["end"]) for line in logged()]
    assert found and all(start == end for start, end in found)


class Model(nn.Module):
    def __init__(self, *more):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 1), *more)

    def forward(self, x):
        return self.body(x)


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def fit(tmp_path, name, loss_fn, model=None, **settings):
    settings = {"device": "cpu", "threads": 1, "optimizer": lambda p: torch.optim.SGD(p, lr=0.1), **settings}
    run = brim.Trainer(
        model or Model(), brim.Loader((X, Y), batch_size=8), loss_fn=loss_fn, run_dir=tmp_path / name, **settings
    )
    return run, lambda: [line for line in lines(run.fit().run) if "loss" in line]


def plain():
    """The mean of x and the first weight in every step, as a loop by hand would write them."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for x, y in brim.Loader((X, Y), batch_size=8).batches(0, 0):
        optimizer.zero_grad()
        weight = model.body[0].weight[0, 0].item()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        found.append((x.mean().item(), weight))
    return found


def returned(model, batch):
    loss = nn.functional.mse_loss(model(batch[0]), batch[1])
    return {"loss": loss, "x": batch[0].mean(), "w": model.body[0].weight[0, 0]}


@pytest.mark.matrix(2)
@pytest.mark.parametrize("way", ["whole", "micro_batch", "sliced", "compiled"])
@pytest.mark.parametrize("form", ["returned", "logged"])
def test_numbers_of_a_loss_are_written_with_every_step(tmp_path, way, form):
    def by_name(model, batch):
        run.log("x", batch[0].mean())
        run.log("w", model.body[0].weight[0, 0])
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    settings = {"log_every": 1, "eval_data": (X, Y)}
    model = Model(Gate(Above(3))) if way == "sliced" else Model()
    settings |= {"micro_batch": {"micro_batch": 3}, "compiled": {"compile": "eager"}}.get(way, {})
    run, written = fit(tmp_path, "run", returned if form == "returned" else by_name, model, **settings)
    found = written()
    assert [(line["x"], line["w"]) for line in found] == [pytest.approx(pair, abs=1e-6) for pair in plain()]
    (evaluated,) = [line for line in lines(run_now(run).saver.checkpoints.folder.parent) if "eval/loss" in line]
    assert evaluated["eval/x"] == pytest.approx(X.mean().item(), abs=1e-6)


def test_a_line_has_the_mean_of_its_steps(tmp_path):
    _, written = fit(tmp_path, "run", returned, log_every=5)
    steps = plain()
    (*_, last) = written()
    assert last["step"] == 5 and last["x"] == pytest.approx(steps[4][0], abs=1e-6)  # after the lines of steps 1, 2, 4


def test_accumulated_batches_are_weighted(tmp_path):
    found = fit(tmp_path, "run", returned, log_every=1, gradient_accumulation_steps=5)[1]()
    order = next(iter(brim.Loader((X, Y), batch_size=37).batches(0, 0)))[0]
    assert len(found) == 1 and found[0]["x"] == pytest.approx(order.mean().item(), abs=1e-6)


class Logs(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        trainer.log("steps", step)
        trainer.log("again", loss)

    def on_evaluate(self, trainer, metrics):
        trainer.log("evaluated", metrics["loss"])

    def on_epoch_end(self, trainer, epoch):
        trainer.log("epochs", epoch)

    def on_fit_end(self, trainer):
        trainer.log("last", 7)


def test_what_callbacks_log_is_in_the_line_of_its_step(tmp_path):
    fit(tmp_path, "run", returned, callbacks=[Logs()], log_every=1)[1]()
    found = [(line["step"], line["steps"]) for line in lines(tmp_path / "run") if "loss" in line]
    assert found == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]
    assert all(line["again"] == pytest.approx(line["loss"]) for line in lines(tmp_path / "run") if "loss" in line)


def test_what_callbacks_log_is_averaged_over_the_steps_of_its_line(tmp_path):
    fit(tmp_path, "run", returned, callbacks=[Logs()], log_every=5, epochs=2)[1]()
    found = {line["step"]: line["steps"] for line in lines(tmp_path / "run") if "loss" in line}
    assert found == {1: 1.0, 2: 2.0, 4: 3.5, 5: 5.0, 10: 8.0}


def test_what_is_logged_between_two_lines_is_told_with_the_step_it_was_logged_after(tmp_path):
    fit(tmp_path, "run", returned, callbacks=[Logs()], log_every=5, epochs=2, eval_data=(X, Y))[1]()
    written = lines(tmp_path / "run")
    assert [(line["step"], line["epochs"]) for line in written if "epochs" in line] == [(5, 1), (10, 2)]
    assert [line["step"] for line in written if "evaluated" in line] == [5, 10]
    judged = {line["step"]: line["eval/loss"] for line in written if "eval/loss" in line}
    assert {line["step"]: line["evaluated"] for line in written if "evaluated" in line} == judged
    assert [(line["step"], line["last"]) for line in written if "last" in line] == [(10, 7.0)]


def test_a_dict_is_logged_number_by_number(tmp_path):
    class Both(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            trainer.log({"one": step, "two": loss})

    found = fit(tmp_path, "run", returned, callbacks=[Both()], log_every=1)[1]()
    assert [(line["one"], line["two"]) for line in found] == [
        (line["step"], pytest.approx(line["loss"])) for line in found
    ]


def test_what_is_no_number_by_name_is_refused(tmp_path):
    run, _ = fit(tmp_path, "run", returned)
    for given in (("kl",), (["kl", 1],), ({"kl": 1}, 2), ({1: 2},)):
        with pytest.raises(brim.BrimError, match="takes a name and a number"):
            run.log(*given)


def test_logging_outside_of_a_run_does_nothing(tmp_path):
    run = brim.Trainer(Model(), (X, Y), loss_fn=nn.MSELoss(), device="cpu", run_dir=tmp_path / "run", log_every=1)
    run.log("kl", 1.0)
    run.fit()
    assert not any("kl" in line for line in lines(tmp_path / "run"))


def test_a_name_of_brims_own_is_refused_in_a_loss(tmp_path):
    def bad(model, batch):
        return {"loss": model(batch[0]).mean(), "lr": 1.0}

    with pytest.raises(brim.BrimError, match=r"log\('lr', ...\) would replace"):
        fit(tmp_path, "run", bad)[1]()
