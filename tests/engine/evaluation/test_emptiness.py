import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import brim
from brim.engine.evaluation.emptiness import refuse_empty
from brim.errors import DataError

X, Y = torch.randn(8, 3), torch.randn(8, 1)
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
