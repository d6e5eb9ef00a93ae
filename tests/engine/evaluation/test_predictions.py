"""Predictions are those of the model called by hand, batch by batch, in the order of the data."""

import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, TensorDataset, WeightedRandomSampler
from transformers import BatchEncoding

import brim
from brim.data import Loader
from brim.engine.components.precision import Precision
from brim.engine.evaluation.predictions import predict
from brim.errors import ConfigError, DataError

CPU = torch.device("cpu")
FULL = Precision("32", CPU)
X = torch.randn(11, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def by_hand(model, batches):
    model.eval()
    with torch.no_grad():
        return [model(batch) for batch in batches]


def bert(**settings):
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=20, num_labels=3, **size, **settings)
    return transformers.BertForSequenceClassification(config)


def texts(samples=5, length=6, kind=dict):
    generator = torch.Generator().manual_seed(samples * length)
    ids = torch.randint(0, 20, (samples, length), generator=generator)
    return kind({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 0] % 3})


@pytest.mark.parametrize("kind", [dict, BatchEncoding])
def test_of_a_transformers_model_the_logits(kind):
    model, batches = bert(), [texts(5, kind=kind), texts(2, kind=kind)]
    wanted = torch.cat([model.eval()(**batch).logits for batch in batches])
    assert torch.equal(predict(model, batches, None, FULL), wanted)


def test_or_what_is_asked_for_by_name_or_function():
    model, batches = bert(output_hidden_states=True), [texts(5), texts(2)]
    outputs = [model.eval()(**batch) for batch in batches]
    hidden = predict(model, batches, None, FULL, output="hidden_states")
    assert torch.equal(hidden[1], torch.cat([one.hidden_states[1] for one in outputs]))
    right = predict(model, batches, None, FULL, output=lambda out, batch: out.logits.argmax(1) == batch["labels"])
    wanted = [one.logits.argmax(1) == batch["labels"] for one, batch in zip(outputs, batches, strict=True)]
    assert torch.equal(right, torch.cat(wanted))


def test_texts_of_different_lengths_give_a_list_of_samples():
    model = transformers.BertForTokenClassification(bert().config)
    batches = [texts(3, 6), texts(2, 9)]
    rows = predict(model, [{k: v for k, v in b.items() if k != "labels"} for b in batches], None, FULL)
    assert [len(row) for row in rows] == [6, 6, 6, 9, 9]


def test_a_trainer_predicts_dict_batches(tmp_path):
    data = [texts(5), texts(2)]
    trainer = brim.Trainer(bert(), data, device="cpu", run_dir=tmp_path / "run", threads=1)
    trainer.fit()
    assert torch.equal(trainer.predict(data), torch.cat([trainer.model.eval()(**batch).logits for batch in data]))
    assert trainer.predict(data, output="loss").shape == (2,)


class Named(nn.Module):
    def forward(self, x, scale=1.0):
        return x * scale


def test_of_a_dict_the_model_gets_what_it_takes_by_name():
    batches = [{"x": X[:6], "y": Y[:6]}, {"x": X[6:], "y": Y[6:]}]
    assert torch.equal(predict(Named(), batches, None, FULL), X)


class Whole(nn.Module):
    def forward(self, batch):
        return batch["image"] * 2


def test_a_model_that_takes_the_dict_gets_it_whole():
    assert torch.equal(predict(Whole(), [{"image": X, "y": Y}], None, FULL), X * 2)


@pytest.mark.parametrize("batch", [((X, Y), Y), (X, Y)])
def test_several_inputs_are_spread(batch):
    model = nn.Bilinear(4, 1, 2)
    assert torch.equal(predict(model, [batch], nn.MSELoss(), FULL), model(X, Y).detach())


@pytest.mark.parametrize("precision", ["bf16-mixed", "32"])
def test_predictions_are_numbers_that_numpy_knows(precision):
    outputs = predict(net(), Loader((X,), 4), None, Precision(precision, CPU))
    assert outputs.dtype == torch.float32 and outputs.numpy().shape == (11, 2)


def test_outputs_carry_no_graph_and_modules_keep_their_modes():
    model = net().train()
    model[1].eval()
    assert not predict(model, [X], None, FULL).requires_grad
    assert model.training and not model[1].training


@pytest.mark.parametrize("generator", [None, torch.Generator()])
def test_a_loader_that_shuffles_is_predicted_in_the_order_of_the_data(generator):
    loader = DataLoader(TensorDataset(X), batch_size=4, shuffle=True, generator=generator)
    assert torch.equal(predict(nn.Identity(), loader, None, FULL), X)


class Own(DataLoader):
    pass


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(TensorDataset(X), 4, sampler=WeightedRandomSampler([1.0] * 11, 11)),
        DataLoader(TensorDataset(X), 4, sampler=SubsetRandomSampler([1, 2, 3])),
        DataLoader(TensorDataset(X), 4, sampler=RandomSampler(X, replacement=True)),
        Own(TensorDataset(X), 4, shuffle=True),
    ],
    ids=["weighted", "subset", "replacement", "own loader"],
)
def test_a_loader_that_draws_its_samples_is_refused(loader):
    with pytest.raises(DataError, match="nobody could tell which output"):
        predict(nn.Identity(), loader, None, FULL)


def test_a_sampler_of_the_users_own_decides_the_order():
    loader = DataLoader(TensorDataset(X), 4, sampler=[3, 1, 0])
    assert torch.equal(predict(nn.Identity(), loader, None, FULL), X[[3, 1, 0]])


def test_an_empty_batch_among_others_is_left_out():
    assert torch.equal(predict(nn.Identity(), [X[:0], X[:3]], None, FULL), X[:3])


def test_a_choice_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="output="):
        predict(nn.Identity(), [X], None, FULL, output=1.5)


class Centring(nn.Module):
    """Each row depends on the others of its batch, so batches must stay what they are."""

    def forward(self, x):
        return x - x.mean(0)


@pytest.mark.parametrize("devices", [1, 2, 3, 7])
@pytest.mark.parametrize("model", [net(), Centring()], ids=["net", "centring"])
def test_several_devices_compute_whole_batches_and_the_order_stays(model, devices, replicas_here):
    wanted = torch.cat(by_hand(model, X.split(3)))
    outputs = predict(model, Loader((X,), 3), None, FULL, devices=[CPU] * devices, make_replicas=replicas_here)
    assert torch.equal(outputs, wanted)


def test_what_fails_on_one_device_is_raised(replicas_here):
    class Fails(nn.Module):
        def forward(self, x):
            if len(x) == 2:
                raise ValueError("mine")
            return x

    with pytest.raises(ValueError, match="mine"):
        predict(Fails(), Loader((X,), 3), None, FULL, devices=[CPU] * 4, make_replicas=replicas_here)


@pytest.mark.parametrize(("data", "rows"), [(X[0], 1), (X, 11)])
def test_outputs_that_are_not_one_for_each_sample_are_told(data, rows):
    told = []
    assert len(predict(nn.Linear(4, 1), data, None, FULL, tell=told.append)) == rows
    assert told == ([] if rows == 11 else [told[0]])
    assert all("returns 1 rows for 4 samples" in sentence and "x[None]" in sentence for sentence in told)


def test_what_a_function_of_the_users_makes_of_outputs_is_theirs():
    told = []
    predict(nn.Linear(4, 1), X, None, FULL, output=lambda outputs, batch: outputs.mean(), tell=told.append)
    assert told == []
