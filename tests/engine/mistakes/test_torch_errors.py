"""Each sentence is drawn from torch itself: where torch says something else some day, its test fails."""

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import brim
from brim.engine.mistakes.torch_errors import explained_errors, explanation, is_lost
from brim.errors import ModelError

SCRIPT = """
import os
import torch
from brim.engine.mistakes.torch_errors import keep_tensors

class Tells(torch.Tensor):
    def __del__(self, write=os.write):  # at the very end there are no modules any more
        write(1, b"freed ")

kept = torch.ones(3).as_subclass(Tells)
keep_tensors()
later = torch.ones(5).as_subclass(Tells)
"""
pytestmark = pytest.mark.usefixtures("own_folder")

X, Y = torch.randn(8, 4), torch.randn(8, 1)
CLASSES = torch.arange(8) % 3


PICTURES = torch.rand(8, 3, 5, 5)


def conv(channels):
    return nn.Sequential(nn.Conv2d(channels, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def norm(features):
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(features), nn.Linear(8, 1))


class Paths(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return f"{index}.png", index % 3


class Logs(nn.Linear):
    def training_step(self, batch, number):
        loss = nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss


CASES = {
    "frames of float64": (nn.Linear(4, 1), (X.double(), Y), nn.MSELoss(), r"float64 and the weights float32.*x.float"),
    "whole numbers": (nn.Linear(4, 1), (X.long(), Y), nn.MSELoss(), r"inputs are int64.*x.float\(\)"),
    "convolution": (nn.Conv1d(1, 1, 2), (X[:, None].double(), Y), lambda model, batch: model(batch[0]).mean(),
                    r"float64 and the weights float32.*x.float"),
    "convolution without a bias": (nn.Conv1d(1, 1, 2, bias=False), (X[:, None].double(), Y),
                                   lambda model, batch: model(batch[0]).mean(),
                                   r"inputs are float64 and the weights float32.*x.float"),
    "text beyond the positions": (nn.Linear(4, 1), (X, Y),
                                  lambda model, batch: model(torch.zeros(1, 2).expand(len(batch[0]), 4)).mean(),
                                  r"has 2 in dimension 1 is needed with 4.*truncation=True"),
    "whole targets": (nn.Linear(4, 1), (X, CLASSES[:, None]), nn.HuberLoss(), r"targets are int64.*y.float\(\)"),
    "long targets": (nn.Linear(4, 1), (X, Y.double()), nn.HuberLoss(), r"targets are float64.*y.float\(\)"),
    "binary": (nn.Linear(4, 1), (X, CLASSES[:, None]), nn.BCEWithLogitsLoss(), r"whole numbers.*y.float\(\)"),
    "labels of float32": (nn.Linear(4, 3), (X, CLASSES.float()), nn.CrossEntropyLoss(), r"y.long\(\)"),
    "one-hot": (nn.Linear(4, 3), (X, nn.functional.one_hot(CLASSES)), nn.CrossEntropyLoss(), r"y.float\(\)"),
    "labels in a column": (nn.Linear(4, 3), (X, CLASSES[:, None]), nn.CrossEntropyLoss(), r"y.squeeze\(1\)"),
    "labels from 1": (nn.Linear(4, 3), (X, CLASSES + 1), nn.CrossEntropyLoss(), "a target is 3.*count from 0"),
    "features": (nn.Linear(5, 1), (X, Y), nn.MSELoss(), "takes 5 features and gets 4"),
    "embedding": (nn.Embedding(4, 1), (X, Y), lambda model, batch: model(batch[0]).mean(), r"x.long\(\)"),
    "pair": (nn.Sequential(nn.Linear(4, 1)), [((X, X), Y)], nn.MSELoss(), "gets a tuple where it takes a tensor"),
    "one input": (nn.Bilinear(4, 4, 1), (X, Y), nn.MSELoss(), "Bilinear.forward needs 'input2' as well"),
    "bytes": (conv(3), (PICTURES.byte(), CLASSES), nn.CrossEntropyLoss(), r"uint8, pictures.*x.float\(\) / 255"),
    "channels last": (conv(3), (PICTURES.movedim(1, -1), CLASSES), nn.CrossEntropyLoss(), r"permute\(0, 3, 1, 2\)"),
    "channels": (conv(1), (PICTURES, CLASSES), nn.CrossEntropyLoss(), "takes 1 channels.*gets 3.*in_channels=3"),
    "grey": (conv(1), (PICTURES[:, 0], CLASSES), nn.CrossEntropyLoss(), r"x.unsqueeze\(1\)"),
    "flat": (conv(1), (PICTURES.flatten(1), CLASSES), nn.CrossEntropyLoss(), r"over 2 dimensions takes .*\[8, 75\]"),
    "one sample": (norm(8), brim.Loader((X, Y), batch_size=7), nn.MSELoss(), "drop_last=True"),
    "batches of one": (norm(8), DataLoader(TensorDataset(X, Y)), nn.MSELoss(), "drop_last=True"),
    "features of a norm": (norm(7), (X, Y), nn.MSELoss(), "made for 7 features and gets 8"),
    "layer norm": (nn.LayerNorm(5), (X, X), nn.MSELoss(), r"made for \(5\) and gets a tensor of shape \(8, 4\)"),
    "recurrent": (nn.GRU(5, 1), (X, X), lambda model, batch: model(batch[0])[0].mean(), "takes 5 features and gets 4"),
    "table": (nn.Embedding(2, 1), (CLASSES, Y), nn.MSELoss(), "more than the largest index"),
    "vector": (nn.Linear(4, 1), (X, Y[:, 0]), nn.BCEWithLogitsLoss(), r"shape \(8, 1\).*targets \(8\).*y.reshape"),
    "column": (nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), (X, Y), nn.BCEWithLogitsLoss(), r"targets \(8, 1\)"),
    "probabilities": (nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()), (X, Y[:, 0]), nn.BCELoss(), r"targets \(8\)"),
    "samples": (nn.Sequential(nn.Linear(4, 3), nn.Unflatten(1, (3, 1)), nn.Flatten(0, 1)), (X, CLASSES),
                nn.CrossEntropyLoss(), r"returns 24 outputs for 8 targets"),
    "numbers": (nn.Linear(4, 2), (X, X[:, :3]), nn.MSELoss(), "have 2 and 3 in dimension 1"),
    "kernel": (nn.Conv2d(3, 3, 9), (PICTURES, CLASSES), nn.CrossEntropyLoss(), "of 9 x 9 gets pictures of 5 x 5"),
    "pool": (nn.Sequential(nn.MaxPool2d(9), nn.Conv2d(3, 3, 1)), (PICTURES, CLASSES), nn.CrossEntropyLoss(), "pools"),
    "paths": (conv(3), Paths(), nn.CrossEntropyLoss(), "conv2d gets a (tuple|list) where it takes a tensor"),
    "masks": (nn.Conv2d(3, 2, 1), (PICTURES, torch.zeros(8, 1, 5, 5).long()), nn.CrossEntropyLoss(), "y.squeeze"),
    "smaller": (nn.Conv2d(3, 2, 3), (PICTURES, torch.zeros(8, 5, 5).long()), nn.CrossEntropyLoss(),
                r"shape \(8, 2, 3, 3\) and the targets \(8, 5, 5\)"),
    "weights": (nn.Linear(4, 3), (X, CLASSES), nn.CrossEntropyLoss(weight=torch.ones(2)), "weights for 2 classes"),
    "logits": (nn.Linear(4, 1), (X * 9, (Y > 0).float()), nn.BCELoss(), "BCEWithLogitsLoss, which takes"),
    "weights of float64": (nn.Linear(4, 3), (X, CLASSES), nn.CrossEntropyLoss(weight=torch.ones(3).double()),
                           r"is float64 where float32 is computed with.*\.float\(\)"),
    "lightning": (Logs(4, 1), (X, Y), lambda model, batch: model.training_step(batch, 0), "Logs.log is Lightning's"),
    "detached": (nn.Linear(4, 1), (X, Y), lambda model, batch: model(batch[0]).mean().detach(), "detached"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_together_is_one_sentence_with_what_to_write(name):
    model, data, loss_fn, told = CASES[name]
    with pytest.raises(ModelError, match=told) as caught:
        brim.Trainer(model, data, loss_fn=loss_fn, device="cpu", threads=1).fit()
    assert str(caught.value.__cause__) in str(caught.value) or "torch says" in str(caught.value)


class UserState(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(4, 1, batch_first=True)

    def forward(self, x):
        state = torch.zeros(1, len(x), 1)
        return self.cells(x[:, None], (state, state))[0][:, -1]


class OwnNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.float())


class OwnEvaluator:
    monitor, higher_is_better = "loss", False

    def evaluate(self, model):
        return {"loss": nn.functional.mse_loss(model(X), Y).item()}


BYTES = r"uint8, pictures.*x.float\(\) / 255"
SHORT = {
    "bytes, mixed": ("bf16-mixed", conv(3), (PICTURES.byte(), CLASSES), BYTES),
    "bytes": ("bf16-true", conv(3), (PICTURES.byte(), CLASSES), BYTES),
    "bytes, no bias": ("bf16-true", nn.Sequential(nn.Conv2d(3, 3, 5, bias=False), nn.Flatten()),
                       (PICTURES.byte(), CLASSES), BYTES),
    "whole numbers": ("bf16-mixed", nn.Linear(4, 3), (X.byte(), CLASSES), r"inputs are uint8.*hand over x.float\(\)"),
    "whole numbers, bf16-true": ("bf16-true", nn.Linear(4, 3), (X.long(), CLASSES), r"int64.*hand over x.float\(\)"),
    "states": ("bf16-true", UserState(), (X, Y), r"an LSTM gets states of another dtype.*dtype=x.dtype"),
    "norm": ("bf16-true", OwnNorm(4), (X, X), "yours to cast"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHORT)
def test_so_it_is_in_shorter_numbers(name):
    precision, model, data, told = SHORT[name]
    loss_fn = nn.MSELoss() if data[1].is_floating_point() else nn.CrossEntropyLoss()
    with pytest.raises(ModelError, match=told):
        brim.Trainer(model, data, loss_fn=loss_fn, device="cpu", threads=1, precision=precision).fit()


def test_an_evaluator_that_reads_data_itself_is_told_to_cast_it():
    settings = {"eval_data": OwnEvaluator(), "loss_fn": nn.MSELoss(), "device": "cpu", "precision": "bf16-true"}
    with pytest.raises(ModelError, match=r"evaluator of your own.*\.to\(next\(model\.parameters\(\)\)\.dtype\)"):
        brim.Trainer(nn.Linear(4, 1), (X, Y), threads=1, **settings).fit()


def test_a_cast_is_a_method_of_tensors():
    assert "x.byte()" in explanation("mat1 and mat2 must have the same dtype, but got Float and Byte")


def test_so_it_is_in_evaluate_and_predict():
    trainer = brim.Trainer(nn.Linear(4, 1), (X, Y), loss_fn=nn.MSELoss(), device="cpu")
    for call in (trainer.evaluate, trainer.predict):
        with pytest.raises(ModelError, match=r"x.float\(\)"):
            call((X.double(), Y))


def test_the_line_of_the_users_code_is_named():
    def loss(model, batch):
        return model(batch[0].double()).mean()

    with pytest.raises(ModelError, match=r"torch says at .*test_torch_errors.py:\d+: mat1"):
        brim.Trainer(nn.Linear(4, 1), (X, Y), loss_fn=loss, device="cpu", threads=1).fit()


def test_an_error_that_somebody_raises_in_python_is_theirs():
    @explained_errors
    def fails():
        exec(compile("raise RuntimeError('Found dtype Long but expected Float')", "/home/anna/train.py", "exec"))

    with pytest.raises(RuntimeError, match="Found dtype"):
        fails()


def test_other_words_are_left_as_they_are():
    assert explanation("CUDA out of memory") is None
    assert explanation("Expected all tensors to be on the same device, but found cuda:0 and cpu").startswith("a tensor")


def test_sparse_gradients_that_are_to_be_clipped():
    model = nn.Sequential(nn.Embedding(3, 2, sparse=True), nn.Linear(2, 1))
    given = {"loss_fn": nn.MSELoss(), "device": "cpu", "optimizer": "SGD", "lr": 0.1, "threads": 1}
    with pytest.raises(ModelError, match="leave clip_norm out"):
        brim.Trainer(model, (CLASSES, Y), clip_norm=1.0, **given).fit()


def test_data_made_in_inference_mode_is_told_as_that():
    with torch.inference_mode():
        x = torch.ones(2, 1)
    with pytest.raises(ModelError, match=r"a tensor was made under torch\.inference_mode\(\), of the data perhaps"):
        explained_errors(lambda: nn.Linear(1, 1)(x))()


@pytest.mark.parametrize(
    "said", ["CUDA error: device-side assert triggered", "CUDA error: an illegal memory access was"]
)
def test_a_lost_device_is_known_by_what_torch_says(said):
    assert is_lost(said)
    assert not is_lost("CUDA out of memory")


@pytest.mark.slow
def test_tensors_outlive_the_process():
    ended = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout == "freed "  # the later one


def test_other_errors_keep_nothing():
    @explained_errors
    def fails():
        raise RuntimeError("Found dtype Long but expected Float")

    tensor = torch.ones(1)
    gone = weakref.ref(tensor)
    with pytest.raises((ModelError, RuntimeError)):
        fails()
    del tensor
    gc.collect()
    assert gone() is None
