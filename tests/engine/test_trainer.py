import copy
import json
import math
import os
import pickle
import signal
import time

import pytest
import torch
from helpers.weights import weights
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import brim
from brim.engine.run_log.step_log import is_due
from brim.engine.trainer import run_now
from brim.errors import BadNumbers, ConfigError, DataError, Interrupted, RunFolderError

pytestmark = pytest.mark.usefixtures("own_folder")

torch.manual_seed(0)
X = torch.randn(37, 4)
Y = X @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]]) + 0.1 * torch.randn(37, 1)


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))


def trainer(model=None, data=None, **settings):
    settings = {"loss_fn": nn.MSELoss(), "optimizer": plain_adamw, "device": "cpu", "threads": 1, **settings}
    return brim.Trainer(model or net(), data if data is not None else brim.Loader((X, Y), batch_size=8), **settings)


def plain_adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def plain_loop(epochs, seed=0, clip=None):
    """What a user would write by hand, over the same order of samples."""
    model = net()
    optimizer = plain_adamw(model.parameters())
    loader = brim.Loader((X, Y), batch_size=8)
    torch.manual_seed(seed)
    for epoch in range(epochs):
        for x, y in loader.batches(seed, epoch):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return weights(model)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_training_is_the_plain_loop_to_the_bit(clip):
    model = net()
    trainer(model, epochs=3, clip_norm=clip).fit()
    assert torch.equal(weights(model), plain_loop(3, clip=clip))


class Rows(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return X[index], Y[index]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda: brim.Loader(Rows(), batch_size=8), id="data set"),
        pytest.param(lambda: DataLoader(TensorDataset(X, Y), 8, shuffle=True), id="torch loader of tensors"),
        pytest.param(lambda: DataLoader(Rows(), 8, shuffle=True), id="torch loader of a data set"),
        pytest.param(lambda: list(brim.Loader((X, Y), batch_size=8).batches(0, 0)), id="ready batches"),
    ],
)
def test_every_way_to_hand_over_data_trains_the_same(data):
    model = net()
    trainer(model, data(), epochs=1).fit()
    assert torch.equal(weights(model), plain_loop(1))


def test_a_bare_data_set_or_tuple_of_tensors_is_enough():
    assert trainer(data=Rows()).fit().steps == 2  # batches of 32
    assert trainer(data=(X, Y)).fit().steps == 2


def test_accumulation_windows_with_a_ragged_tail_are_the_larger_batch():
    def no_dropout():
        torch.manual_seed(0)
        return nn.Linear(4, 1)

    a, b = no_dropout(), no_dropout()
    trainer(a, brim.Loader((X, Y), batch_size=4), gradient_accumulation_steps=3, epochs=4).fit()
    trainer(b, brim.Loader((X, Y), batch_size=12), epochs=4, micro_batch=5).fit()
    assert (weights(a) - weights(b)).norm() / weights(b).norm() <= 1e-5


def test_accumulate_grad_batches_is_an_alias():
    result = trainer(data=brim.Loader((X, Y), batch_size=4), accumulate_grad_batches=5).fit()
    assert result.steps == 2


def test_max_steps_decides_instead_of_epochs():
    result = trainer(max_steps=12, epochs=1).fit()
    assert (result.steps, result.epochs) == (12, 2)


def test_the_schedule_advances_once_an_optimizer_step():
    rates = []

    class Watch(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            rates.append(trainer.optimizer.param_groups[0]["lr"])

    data = brim.Loader((X[:32], Y[:32]), batch_size=4)
    settings = {"gradient_accumulation_steps": 2, "scheduler": "linear", "optimizer": "SGD", "lr": 1.0}
    trainer(data=data, callbacks=[Watch()], **settings).fit()
    assert rates == pytest.approx([0.75, 0.5, 0.25, 0.0])


def test_a_plateau_schedule_advances_with_evaluations():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5, threshold=1.0)
    trainer(model, optimizer=optimizer, scheduler=plateau, eval_data=(X, Y), epochs=3).fit()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.25e-12)


def test_evaluation_every_n_steps_and_epochs():
    seen = []

    class Watch(brim.Callback):
        def on_evaluate(self, trainer, metrics):
            seen.append(run_now(trainer).state.progress.step)

    trainer(eval_data=(X, Y), epochs=2, eval_every="4 steps", callbacks=[Watch()]).fit()
    assert seen == [4, 8, 10]  # and once at the end
    seen.clear()
    trainer(eval_data=(X, Y), epochs=5, eval_every=2, callbacks=[Watch()]).fit()
    assert seen == [10, 20, 25]


class Scripted:
    """Evaluation data whose verdicts are known beforehand."""

    monitor, higher_is_better = "score", True

    def __init__(self, scores):
        self.scores = list(scores)

    def evaluate(self, model):
        return {"score": self.scores.pop(0)}


def test_early_stopping_and_back_to_the_best_weights():
    kept = []

    class Keep(brim.Callback):
        def on_evaluate(self, trainer, metrics):
            kept.append(weights(trainer.model).clone())

    model = net()
    run = trainer(model, eval_data=Scripted([0.1, 0.5, 0.4, 0.3, 0.9]), epochs=9, patience=2, callbacks=[Keep()])
    result = run.fit(save_model=True, model_path="best.pth")
    assert result.epochs == 4
    assert "no better" in result.ended
    assert torch.equal(weights(model), kept[1])
    other = net(seed=5)
    other.load_state_dict(torch.load("best.pth", weights_only=True))
    assert torch.equal(weights(other), kept[1])


def test_test_data_is_judged_with_the_best_weights():
    result = trainer(eval_data=(X, Y), test_data=(X[:10], Y[:10]), epochs=2).fit()
    run = trainer(model=brim.load(result.run, net()), test_data=(X[:10], Y[:10]))
    assert run.evaluate()["loss"] == pytest.approx(result.metrics["loss"])


def test_a_callback_can_end_the_run():
    class Stop(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == 3:
                trainer.stop("enough")

    result = trainer(epochs=5, callbacks=[Stop()]).fit()
    assert (result.steps, result.ended) == (3, "enough")


def test_the_same_seed_trains_the_same_and_another_does_not():
    models = [net(), net(), net()]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        trainer(model, seed=seed, epochs=2).fit()
    assert torch.equal(weights(models[0]), weights(models[1]))
    assert not torch.equal(weights(models[0]), weights(models[2]))


@pytest.mark.matrix(1)
@pytest.mark.parametrize("stop_at", [2, 5, 7])
def test_a_resumed_run_ends_with_the_same_bits(stop_at, tmp_path):
    class Stop(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == stop_at:
                trainer.stop("for a while")

    settings = {"epochs": 3, "eval_data": (X, Y), "scheduler": "cosine", "clip_norm": 1.0}
    whole = net()
    trainer(whole, **settings).fit()
    trainer(net(), run_dir=tmp_path / "run", callbacks=[Stop()], **settings).fit()
    resumed = net(seed=3)
    result = trainer(resumed, run_dir=tmp_path / "run", **settings).fit(resume="auto")
    assert result.steps == 15
    assert torch.equal(weights(resumed), weights(whole))


def test_resume_auto_starts_where_there_is_nothing_yet(tmp_path):
    assert trainer(run_dir=tmp_path / "new").fit(resume="auto").steps == 5


def test_a_run_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    trainer(run_dir=tmp_path / "run").fit()
    with pytest.raises(RunFolderError, match="already holds a run"):
        trainer(run_dir=tmp_path / "run").fit()


def test_the_run_folder_tells_what_happened(tmp_path):
    result = trainer(eval_data=(X, Y), epochs=2, log_every=2, run_dir=tmp_path / "run").fit()
    assert result.run == tmp_path / "run"
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in metrics if "loss" in m] == [1, 2, 4, 6, 8, 10]
    assert [m["epoch"] for m in metrics if "eval/loss" in m] == [1, 2]
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert kinds.count("epoch") == 2
    assert "device" in kinds
    assert "epoch 2: loss" in (tmp_path / "run" / "log.txt").read_text()
    assert "epochs: 2" in (tmp_path / "run" / "config.yaml").read_text()


def test_a_nan_loss_stops_before_the_weights_and_names_the_samples(tmp_path):
    bad = X.clone()
    bad[20] = float("nan")
    model = net()
    with pytest.raises(BadNumbers, match=r"step 3 \(epoch 1, samples 16 to 23") as error:
        trainer(model, brim.Loader((bad, Y), batch_size=8, shuffle=False), run_dir=tmp_path / "run").fit()
    assert torch.isfinite(weights(model)).all()
    assert str(error.value) in (tmp_path / "run" / "log.txt").read_text()


def test_ctrl_c_leaves_a_checkpoint_that_resumes(tmp_path):
    class PressCtrlC(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if step == 7:
                os.kill(os.getpid(), signal.SIGINT)

    whole, resumed = net(), net()
    trainer(whole, epochs=4).fit()
    with pytest.raises(Interrupted, match="step 7"):
        trainer(net(), epochs=4, run_dir=tmp_path / "run", callbacks=[PressCtrlC()]).fit()
    assert (tmp_path / "run" / "checkpoints" / "step-000000007").is_dir()
    trainer(resumed, epochs=4, run_dir=tmp_path / "run").fit(resume="auto")
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.parametrize("path", ["model.onnx", "model"])
def test_a_model_path_that_cannot_be_written_is_refused_before_training(path):
    with pytest.raises(ConfigError, match="must end in"):
        trainer().fit(save_model=True, model_path=path)


@pytest.mark.parametrize("path", ["file/model.pt", "file/a/b/model.safetensors"])
def test_a_model_path_in_no_folder_is_refused_before_training(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file is not a folder"):
        trainer().fit(save_model=True, model_path=path)


def test_a_model_path_without_permission_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)  # root may write anywhere
    with pytest.raises(ConfigError, match="no permission in"):
        trainer().fit(save_model=True, model_path=tmp_path / "a/model.pt")


def test_a_model_path_in_folders_that_are_not_there_yet_is_written(tmp_path):
    trainer().fit(save_model=True, model_path=tmp_path / "a/b/model.pt")
    assert (tmp_path / "a/b/model.pt").is_file()


def test_data_that_gives_no_batch_is_said():
    with pytest.raises(DataError, match="no batch"):
        trainer(data=brim.Loader((X, Y), batch_size=64, drop_last=True)).fit()


def test_a_loss_that_is_not_one_is_refused():
    with pytest.raises(ConfigError, match="scalar"):
        trainer(loss_fn=lambda model, batch: model(batch[0])).fit()


def test_a_missing_gpu_is_said_and_the_cpu_trains(capsys):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert trainer(device="cuda").fit().steps == 5
    assert "no GPU found, training on the CPU" in capsys.readouterr().err


def test_slicing_batch_norm_is_warned_about(capsys):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    trainer(model, micro_batch=3).fit()
    assert "BatchNorm" in capsys.readouterr().err


def test_threads_are_found_once_remembered_and_put_back(tmp_path, monkeypatch):
    for seconds in ("TRIAL_SECONDS", "BLOCK_SECONDS"):
        monkeypatch.setattr(f"brim.engine.step.threads.{seconds}", 0.0)
    before = torch.get_num_threads()
    run = trainer(threads="auto", epochs=12, run_dir=tmp_path / "run")
    run.fit()
    assert torch.get_num_threads() == before
    if os.cpu_count() > 1:
        progress = json.loads(max((tmp_path / "run" / "checkpoints").glob("step-*/progress.json")).read_text())
        assert progress["threads"] in (1, os.cpu_count() // 2, os.cpu_count())


@pytest.mark.slow
def test_compiled_training_is_the_same_training():
    model = nn.Linear(4, 1)
    other = nn.Linear(4, 1)
    other.load_state_dict(model.state_dict())
    trainer(model, compile="aot_eager", epochs=2).fit()
    trainer(other, epochs=2).fit()
    assert torch.allclose(weights(model), weights(other), rtol=1e-5)


def test_predict_gives_the_models_outputs_in_order():
    run = trainer()
    run.model.eval()
    with torch.no_grad():
        assert torch.allclose(run.predict((X, Y)), run.model(X), rtol=1e-5)


def test_a_finished_run_took_the_time_it_says():
    began = time.perf_counter()
    result = trainer().fit()
    assert 0 < result.seconds <= time.perf_counter() - began


@pytest.mark.gpu
def test_the_gpu_trains_as_the_cpu_does():
    def train(device):
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        brim.Trainer(model, brim.Loader((X, Y), batch_size=8), loss_fn=nn.MSELoss(), device=device, epochs=10).fit()
        return weights(model).cpu()

    assert (train("cuda") - train("cpu")).norm() / train("cpu").norm() <= 1e-5


@pytest.mark.gpu
def test_the_loop_asks_the_gpu_for_nothing_between_logs():
    """torch's own detector turns any synchronisation into an error."""

    class NoSync(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            is_quiet = 3 <= step < 45 and not is_due(step + 1, 50)
            torch.cuda.set_sync_debug_mode("error" if is_quiet else "default")

    x, y = X.cuda(), Y.cuda()
    data = [(x, y)] * 60
    try:
        run = brim.Trainer(
            net(), data, loss_fn=nn.MSELoss(), log_every=50, clip_norm=1.0, scheduler="cosine", callbacks=[NoSync()]
        )
        assert run.fit().steps == 60
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "tf32", "auto"])
def test_lower_precision_learns(precision):
    result = brim.Trainer(
        net(), brim.Loader((X, Y), batch_size=8), loss_fn=nn.MSELoss(), eval_data=(X, Y), epochs=60, lr=1e-2,
        precision=precision, scheduler="linear",
    ).fit()  # fmt: skip
    assert result.metrics["loss"] < 3.0


@pytest.mark.gpu
def test_a_nan_on_the_gpu_is_found_at_the_next_log_and_never_saved(tmp_path):
    bad = X.clone()
    bad[20] = float("nan")
    data = brim.Loader((bad, Y), batch_size=8, shuffle=False)
    with pytest.raises(BadNumbers, match="step 3 "):
        brim.Trainer(net(), data, loss_fn=nn.MSELoss(), run_dir=tmp_path / "run", checkpoint_every=1).fit()
    saved = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert saved == ["step-000000001", "step-000000002"]


class Verdicts(Scripted):
    higher_is_better = False


def test_the_metrics_are_those_of_the_weights_that_are_handed_back():
    result = trainer(eval_data=Verdicts([1.0, 2.0, 3.0]), epochs=3).fit()
    assert result.metrics == {"score": 1.0}


def test_an_evaluation_that_is_not_a_number_is_never_the_best():
    run = trainer(eval_data=Verdicts([float("nan"), 2.0, 1.0]), epochs=3)
    assert run.fit().metrics == {"score": 1.0}
    assert run_now(run).state.progress.best_step == 15


def test_metrics_may_be_tensors_and_the_one_that_decides_must_be_there():
    assert trainer(eval_data=Verdicts([torch.tensor(1.0)])).fit().metrics == {"score": 1.0}

    class Silent(Verdicts):
        monitor = "other"

    with pytest.raises(ConfigError, match="decides by 'other', and gave only score"):
        trainer(eval_data=Silent([1.0])).fit()


def test_one_loader_with_persistent_workers_trains_and_evaluates():
    loader = brim.Loader(Rows(), batch_size=8, num_workers=1, persistent_workers=True)
    assert trainer(data=loader, eval_data=loader, eval_every="2 steps").fit().steps == 5


def test_resuming_with_another_optimizer_is_refused_in_one_sentence(tmp_path):
    trainer(optimizer="SGD", run_dir=tmp_path / "run").fit()
    with pytest.raises(RunFolderError, match="made with the optimizer SGD, and this run has AdamW"):
        trainer(run_dir=tmp_path / "run", epochs=2).fit(resume="auto")


def test_a_run_that_ended_by_patience_stays_ended(tmp_path):
    settings = {"epochs": 9, "patience": 1, "run_dir": tmp_path / "run"}
    steps = trainer(eval_data=Verdicts([1.0, 2.0]), **settings).fit().steps
    assert trainer(eval_data=Verdicts([3.0] * 9), **settings).fit(resume="auto").steps == steps == 10


@pytest.mark.matrix(2)
@pytest.mark.parametrize(
    ("eval_every", "patience", "scores", "steps"),
    [
        ("2 steps", 2, [3.0, 1.0, 2.0, 2.0, 0.0], 8),  # within an epoch
        (5, 3, [4.0, 3.0, 2.0, 1.0], 100),  # always better: patience is longer than the run
        (5, 1, [1.0, 2.0, 3.0], 50),
        (1, 2, [math.nan, math.nan, 1.0], 10),  # nothing was ever better than nothing
        (1, 2, [2.0, math.nan, 1.0, math.nan, math.nan, 0.0], 25),  # NaN neither counts as best nor starts anew
    ],
)
def test_patience_counts_evaluations(eval_every, patience, scores, steps):
    data = Verdicts(scores)  # lower is better
    assert trainer(eval_data=data, eval_every=eval_every, patience=patience, epochs=20).fit().steps == steps


def test_a_run_of_an_earlier_version_goes_on_with_the_patience_that_it_had(tmp_path):
    def settings(scores, patience):
        return {"eval_data": Verdicts(scores), "epochs": 9, "patience": patience, "run_dir": tmp_path / "run"}

    assert trainer(**settings([1.0, 2.0, 2.0], 2)).fit().epochs == 3
    for path in (tmp_path / "run" / "checkpoints").glob("*/progress.json"):
        told = json.loads(path.read_text())
        told.pop("evaluations_since_best", None)
        path.write_text(json.dumps(told))
    for path in (tmp_path / "run" / "checkpoints").glob("*/checksums.json"):
        path.unlink()  # of the file that was changed
    assert trainer(**settings([2.0] * 9, 4)).fit(resume="auto").epochs == 5


def test_a_run_whose_evaluations_are_all_nan_keeps_its_last_weights_and_says_so():
    result = trainer(eval_data=Verdicts([math.nan, math.nan]), epochs=2).fit()
    assert math.isnan(result.metrics["score"]) and result.ended == "done"


def test_a_metric_that_a_callback_adds_is_written_down_and_one_that_is_no_number_refused():
    class Adds(brim.Callback):
        def __init__(self, value):
            self.value = value

        def on_evaluate(self, trainer, metrics):
            metrics["mine"] = self.value

    result = trainer(eval_data=(X, Y), callbacks=[Adds(torch.tensor(0.5))]).fit()
    lines = [json.loads(line) for line in (result.run / "metrics.jsonl").read_text().splitlines()]
    assert [line["eval/mine"] for line in lines if "eval/loss" in line] == [0.5]
    assert result.metrics["mine"] == 0.5
    with pytest.raises(ConfigError, match=r"on_evaluate returned a tensor of shape \(2,\) as .mine."):
        trainer(eval_data=(X, Y), callbacks=[Adds(torch.ones(2))]).fit()


@pytest.mark.parametrize("eval_every", [1, "5 steps"])
def test_a_plateau_follows_what_is_better(eval_every):
    rising = [0.1, 0.2, 0.3, 0.4]

    def rate(scores, **given):
        optimizer = torch.optim.SGD([parameter := nn.Parameter(torch.ones(1))], lr=0.5)
        model = nn.Module()
        model.weight = parameter
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5, **given)
        run = trainer(
            model, optimizer=optimizer, scheduler=plateau, eval_data=Scripted(scores), epochs=4, eval_every=eval_every,
            loss_fn=lambda model, batch: (model.weight * 0 + batch[0].mean()).sum(),
        )  # fmt: skip
        run.fit()
        return optimizer.param_groups[0]["lr"]

    assert rate(rising) == rate(rising, mode="max") == 0.5
    assert rate([0.4, 0.3, 0.2, 0.1]) == 0.5**4


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"patience": 2}, "no eval_data"),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1)}, "none of the parameters"),
        (
            {"scheduler": torch.optim.lr_scheduler.StepLR(torch.optim.SGD([nn.Parameter(torch.ones(1))], 1), 1)},
            "another",
        ),
        ({"eval_data": 5}, "5 is no data"),
        ({"optimizer": lambda parameters: torch.optim.LBFGS(parameters)}, "LBFGS.step needs a closure"),
    ],
)
def test_a_setting_that_could_have_no_effect_is_refused_before_anything_is_written(settings, part, tmp_path):
    with pytest.raises((ConfigError, DataError), match=part):
        trainer(run_dir=tmp_path / "run", **settings).fit()
    assert not (tmp_path / "run").exists()


def test_a_loss_with_parameters_of_its_own_is_refused():
    class Learned(nn.MSELoss):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

    with pytest.raises(ConfigError, match="parameters of its own"):
        trainer(loss_fn=Learned()).fit()


def test_a_stream_of_samples_is_put_into_batches():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(zip(X, Y, strict=True))

    assert trainer(data=Stream()).fit().steps == -(-len(X) // 32)


def test_numpys_generator_is_seeded_and_resumed_too():
    import numpy

    class Noisy(Rows):
        def __getitem__(self, index):
            return X[index] + float(numpy.random.rand()), Y[index]

    models = [net(), net()]
    for model in models:
        trainer(model, brim.Loader(Noisy(), batch_size=8), epochs=2).fit()
    assert torch.equal(weights(models[0]), weights(models[1]))


def test_a_second_run_in_the_folder_of_one_that_goes_on_is_refused(tmp_path):
    class Second(brim.Callback):
        def on_epoch_end(self, other, epoch):
            if epoch == 2:
                with pytest.raises(RunFolderError, match="is in use by process"):
                    trainer(run_dir=tmp_path / "run").fit(resume="auto")

    trainer(run_dir=tmp_path / "run", epochs=3, log_every=1, callbacks=[Second()]).fit()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 16))
    assert trainer(run_dir=tmp_path / "run", epochs=4).fit(resume="auto").steps == 20


def test_the_folder_of_a_run_that_failed_is_free_again(tmp_path):
    class Fails(brim.Callback):
        def on_epoch_end(self, trainer, epoch):
            raise LookupError("a mistake of the user's")

    with pytest.raises(LookupError):
        trainer(run_dir=tmp_path / "run", callbacks=[Fails()]).fit()
    assert trainer(run_dir=tmp_path / "run").fit(resume="auto").steps == 5


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_trainer_is_not_copied_and_says_what_can_be(duplicate):
    with pytest.raises(ConfigError, match="copy the model"):
        duplicate(trainer())


def test_a_model_with_an_endless_name_has_a_run_folder():
    model = type("Ünit/" * 80, (nn.Linear,), {})(2, 1)
    run = trainer(model, (torch.ones(4, 2), torch.ones(4, 1))).fit().run
    assert len(run.name.encode()) < 255 and run.parent.name == "runs"
