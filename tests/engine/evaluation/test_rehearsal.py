"""Data that cannot be evaluated, and a metric that never comes, are told before anything is trained."""

import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import brim
from brim.engine.evaluation.rehearsal import refuse_empty
from brim.errors import ConfigError, DataError

X, Y = torch.randn(8, 3), torch.randn(8, 1)
WIDE = torch.randn(8, 4), Y


class Rows(Dataset):
    """Samples one by one, which counts its reads."""

    def __init__(self, *columns):
        self.columns, self.reads = columns, 0

    def __len__(self):
        return len(self.columns[0])

    def __getitem__(self, index):
        self.reads += 1
        return tuple(column[index] for column in self.columns)


def fit(**settings):
    model = settings.pop("model", nn.Linear(3, 1))
    settings = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1, "loggers": False, **settings}
    return brim.Trainer(model, settings.pop("train_data", (X, Y)), **settings).fit()


@pytest.mark.parametrize("argument", ["test_data", "eval_data"])
@pytest.mark.parametrize(
    "data", [WIDE, DataLoader(TensorDataset(*WIDE), 4), [WIDE], Rows(*WIDE)], ids=["columns", "loader", "list", "rows"]
)
def test_samples_that_the_model_cannot_take_are_refused_by_the_arguments_name(tmp_path, monkeypatch, argument, data):
    monkeypatch.chdir(tmp_path)
    said = rf"{argument}: shapes \(4,\) and \(1,\) in a sample, .*a layer takes 3 features"
    with pytest.raises(DataError, match=said):
        fit(**{argument: data})
    assert list(tmp_path.iterdir()) == []


def test_targets_that_the_loss_cannot_take_and_missing_ones_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"test_data: .*outputs and targets"):
        fit(test_data=(X, torch.randn(8, 7)), loss_fn=nn.L1Loss(reduction="mean"), model=nn.Linear(3, 3))
    with pytest.raises(DataError, match=r"test_data: shape \(3,\) in a sample.*pairs"):
        fit(test_data=X)


def test_other_shapes_that_can_be_evaluated_pass_without_a_trace(tmp_path):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.calls = nn.Linear(1, 1), 0

        def forward(self, rows):
            self.calls += not self.training
            return self.linear(rows.mul_(1.0).mean(1, keepdim=True) + torch.rand(()) * 0)

    data, model = Rows(torch.randn(8, 5), Y), Counts()
    fit(test_data=brim.Loader(data, 4, feed="samples"), model=model, run_dir=tmp_path / "run")
    assert data.reads == 8 and model.calls == 2  # of the one test, in two batches


def test_what_no_two_samples_can_be_evaluated_of_is_left_to_the_evaluation(tmp_path):
    def of_four(model, batch):  # it would fail on two samples of training, too
        return (model(batch[0].reshape(-1, 3)[:, :3]).reshape(4, -1) - batch[1].reshape(4, -1)).pow(2).mean()

    wide = [(torch.randn(4, 1, 3), torch.randn(4, 1))]
    assert "loss" in fit(train_data=[(X[:4], Y[:4])], test_data=wide, loss_fn=of_four, run_dir=tmp_path / "run").metrics


@pytest.mark.parametrize("monitor", ["accuracy", "kl"])
def test_a_metric_that_neither_metrics_nor_loss_have_is_refused(tmp_path, monkeypatch, monitor):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"monitor='{monitor}' is not among the metrics of the evaluation data: loss"):
        fit(eval_data=(X, Y), monitor=monitor, mode="max")
    assert list(tmp_path.iterdir()) == []


def test_what_the_loss_logs_can_be_monitored(tmp_path):
    def loss(model, batch):
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        return {"loss": loss, "kl": loss * 2}

    assert "kl" in fit(eval_data=(X, Y), loss_fn=loss, monitor="kl", mode="min", run_dir=tmp_path / "run").metrics


def test_what_torchmetrics_computes_is_awaited(tmp_path):
    from torchmetrics import MeanSquaredError, MetricCollection

    result = fit(
        eval_data=(X, Y), metrics=MetricCollection({"q": MeanSquaredError()}), monitor="q", run_dir=tmp_path / "run"
    )
    assert "q" in result.metrics


def test_two_samples_that_are_too_much_memory_are_left_to_the_evaluation(tmp_path):
    class Large(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(1, 1)

        def forward(self, x):
            if x.numel() > 20:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return self.linear(x.mean(1, keepdim=True))

    one_by_one = brim.Loader((torch.randn(8, 15), Y), batch_size=1)
    result = fit(model=Large(), eval_data=one_by_one, micro_batch=2, epochs=1, run_dir=tmp_path / "run")
    assert result.metrics["loss"] > 0


EMPTY = {
    "list": [], "columns": (X[:0], Y[:0]), "data set": TensorDataset(X[:0]), "loader": DataLoader(TensorDataset(X[:0])),
}  # fmt: skip


@pytest.mark.parametrize("argument", ["test_data", "eval_data"])
@pytest.mark.parametrize("kind", EMPTY)
def test_empty_data_is_refused_before_training_by_its_name(tmp_path, monkeypatch, argument, kind):
    monkeypatch.chdir(tmp_path)
    model = nn.Linear(3, 1)
    before = model.weight.detach().clone()
    trainer = brim.Trainer(model, (X, Y), loss_fn=nn.MSELoss(), device="cpu", **{argument: EMPTY[kind]})
    with pytest.raises(DataError, match=argument):
        trainer.fit()
    assert torch.equal(model.weight, before)
    assert list(tmp_path.iterdir()) == []


class Judge:
    monitor, higher_is_better = "a", True

    def evaluate(self, model):
        return {"a": 1.0}


def test_other_data_passes():
    passing = {"a": None, "b": (X, Y), "c": [(X, Y)], "d": Judge(), "e": {"x": X}, "f": {"one": (X, Y), "two": Judge()}}
    refuse_empty(**passing)
    with pytest.raises(DataError, match="g is empty"):  # which can be told beside the others
        refuse_empty(**passing, g=[])


def test_several_sets_may_have_different_lengths():
    refuse_empty(
        pairs={"a": (X, Y), "b": (X[:3], Y[:3])}, columns={"a": {"x": X, "y": Y}, "b": {"x": X[:3], "y": Y[:3]}}
    )
    with pytest.raises(DataError, match=r"eval_data\['b'\]: .*different lengths"):
        refuse_empty(eval_data={"a": (X, Y), "b": (X, Y[:3])})


def test_one_of_several_sets_is_named():
    with pytest.raises(DataError, match=r"eval_data\['two'\] is empty"):
        refuse_empty(eval_data={"one": (X, Y), "two": []})


def test_frames_in_a_dict_are_columns_and_no_sets_by_name():
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    refuse_empty(eval_data={"x": frame, "y": frame["a"]})
    with pytest.raises(DataError, match=r"eval_data: .*different lengths"):
        refuse_empty(eval_data={"x": frame, "y": frame["a"][:1]})
