"""The model: shapes, masks, quantiles, and training as a plain loop does."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import brim
from brim.errors import BrimError
from brim.workloads.forecaster import LSTMForecaster, SeriesDataset

KINDS = [
    {}, {"segment": 6}, {"segment": 5, "layers": 1}, {"layers": 0}, {"layers": 0, "segment": 6}, {"linear": True},
    {"segment": 6, "linear": True}, {"quantiles": (0.1, 0.5, 0.9)}, {"segment": 6, "quantiles": (0.1, 0.9)},
    {"known": 2, "static": 3}, {"known": 2, "static": 3, "segment": 6, "quantiles": (0.5,)},
]  # fmt: skip


def a_model(**settings):
    torch.manual_seed(0)
    return LSTMForecaster(12, 4, 3, **{"hidden": 8, **settings})


@pytest.mark.parametrize("settings", KINDS)
def test_every_kind_predicts_its_horizon_and_learns_from_it(settings):
    model = a_model(**settings)
    batch = model.example_batch(5)
    quantiles = (len(settings["quantiles"]),) if settings.get("quantiles") else ()
    assert model.predict(batch).shape == (5, 4, 3, *quantiles)
    assert model.point(model.predict(batch)).shape == (5, 4, 3)
    model.calculate_loss(batch).mean.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("settings", KINDS)
def test_samples_do_not_see_each_other(settings):
    model = a_model(**settings).eval()
    batch = model.example_batch(5)
    alone = torch.cat([model.predict([column[at : at + 1] for column in batch]) for at in range(5)])
    assert torch.allclose(model.predict(batch), alone, atol=1e-6)


def test_segments_read_each_channel_by_itself():
    model = a_model(segment=6).eval()
    past = torch.randn(2, 12, 3)
    other = past.clone()
    other[..., 2] = 9.0
    assert torch.equal(model(past)[..., :2], model(other)[..., :2])


def test_covariates_of_the_future_change_the_step_that_they_belong_to():
    for segment in (None, 6):
        model = a_model(known=2, segment=segment).eval()
        past, _, known = model.example_batch(2)
        other = known.clone()
        other[:, 12 + 1] += 1
        changed = (model(past, known) != model(past, other)).any(-1)
        assert changed.tolist() == [[False, True, False, False]] * 2


def test_quantiles_come_in_order():
    model = a_model(quantiles=(0.9, 0.1, 0.5)).eval()
    assert model.quantiles == (0.1, 0.5, 0.9)
    predicted = model.predict(model.example_batch(50))
    assert (predicted.diff(dim=-1) >= 0).all()


def test_the_trainer_trains_what_a_plain_loop_does(tmp_path):
    values = np.random.default_rng(0).normal(size=(80, 2)).cumsum(0)
    values[::7] = np.nan
    dataset = SeriesDataset(values, 12, 4)
    loader = brim.Loader(dataset.get_split_data("train"), 8)
    trained = LSTMForecaster.for_dataset(dataset, segment=4, hidden=8, layers=1)
    plain = LSTMForecaster(**trained.arguments)
    plain.load_state_dict(trained.state_dict())
    trainer = brim.Trainer(
        trained, loader, epochs=2, device="cpu", optimizer="SGD", lr=0.1, micro_batch=3, run_dir=tmp_path / "r"
    )
    trainer.fit()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for epoch in range(2):
        for batch in loader.batches(0, epoch):
            optimizer.zero_grad()
            plain.calculate_loss(batch).mean.backward()
            optimizer.step()
    for one, two in zip(trained.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one, two, rtol=1e-4, atol=1e-6)


def test_it_learns_a_season_that_repeats(tmp_path):
    day = np.arange(400)
    dataset = SeriesDataset(
        pd.Series(np.sin(2 * np.pi * day / 7), index=pd.date_range("2024-01-01", periods=400)), 28, 7
    )
    torch.manual_seed(0)
    model = LSTMForecaster.for_dataset(dataset, hidden=16, layers=1)
    trainer = brim.Trainer(
        model, brim.Loader(dataset.get_split_data("train"), 64), epochs=40, lr=1e-2, device="cpu", threads=1,
        run_dir=tmp_path / "r",
    )  # fmt: skip
    trainer.fit()
    assert trainer.evaluate(brim.Loader(dataset.get_split_data("test"), 64))["loss"] < 0.1


def test_a_run_gives_its_model_back(tmp_path):
    dataset = SeriesDataset(np.arange(100.0), 12, 4)
    model = LSTMForecaster.for_dataset(dataset, hidden=4, quantiles=(0.1, 0.9))
    brim.Trainer(model, brim.Loader(dataset.get_split_data("train")), device="cpu", run_dir=tmp_path / "r").fit()
    again = brim.load(tmp_path / "r")
    batch = model.example_batch(3)
    assert torch.equal(again.predict(batch), model.eval().predict(batch))


@pytest.mark.parametrize("change", [{"hidden": 10**6}, {"layers": 10**6}, {"horizon": 10**7}, {"segment": "a"}])
def test_a_run_folder_cannot_ask_for_a_model_that_its_weights_are_not_of(tmp_path, change):
    dataset = SeriesDataset(np.arange(100.0), 12, 4)
    model = LSTMForecaster.for_dataset(dataset, hidden=4)
    brim.Trainer(model, brim.Loader(dataset.get_split_data("train")), device="cpu", run_dir=tmp_path / "r").fit()
    file = tmp_path / "r" / "model.json"
    told = json.loads(file.read_text())
    told["arguments"] |= change
    file.write_text(json.dumps(told))
    with pytest.raises(BrimError):
        brim.load(tmp_path / "r")


def test_it_is_saved_and_loaded(tmp_path):
    model = a_model(segment=6, quantiles=(0.1, 0.5), known=1).eval()
    model.save_pretrained(tmp_path / "m")
    again = LSTMForecaster.from_pretrained(tmp_path / "m")
    batch = model.example_batch(3)
    assert torch.equal(again.predict(batch), model.predict(batch)) and not again.training


def test_what_is_no_saved_model_is_refused(tmp_path):
    with pytest.raises(BrimError, match="holds no saved model"):
        LSTMForecaster.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model": "GPT"}')
    with pytest.raises(BrimError, match="holds a GPT, not a LSTMForecaster"):
        LSTMForecaster.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model": "LSTMForecaster", "wings": 2}')
    with pytest.raises(BrimError, match="does not describe"):
        LSTMForecaster.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hidden": 0}, "hidden=0"), ({"layers": -1}, "layers=-1"), ({"layers": 2.5}, "layers=2.5"),
        ({"segment": 13}, "segment=13 is longer than lookback=12"), ({"segment": 0}, "segment=0"),
        ({"loss": "huber"}, "loss='huber' is none of l1, mse"), ({"dropout": 1.0}, "dropout=1.0"),
        ({"quantiles": (2,)}, "quantiles="),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(settings, said):
    with pytest.raises(BrimError, match=said):
        a_model(**settings)


@pytest.mark.parametrize(("steps", "lookback", "segment"), [("h", 96, 24), ("D", 28, 7), ("D", 12, 3), ("MS", 24, 12)])
def test_a_segment_is_a_season_or_a_quarter_of_the_window(steps, lookback, segment):
    index = pd.date_range("2000-01-01", periods=lookback + 30, freq=steps)
    dataset = SeriesDataset(pd.Series(range(len(index)), index=index), lookback, 6)
    assert LSTMForecaster.for_dataset(dataset).arguments["segment"] == segment
    with pytest.raises(BrimError, match="segment='large'"):
        LSTMForecaster.for_dataset(dataset, segment="large")


@pytest.mark.gpu
def test_a_captured_step_trains_what_an_eager_one_does(tmp_path):
    dataset = SeriesDataset(np.random.default_rng(0).normal(size=(300, 2)).cumsum(0), 24, 8)
    losses = {}
    for capture in ("off", "require"):
        torch.manual_seed(0)
        model = LSTMForecaster.for_dataset(dataset, hidden=16, layers=2)
        loader = brim.Loader(dataset.get_split_data("train"), 32, drop_last=True)
        trainer = brim.Trainer(model, loader, epochs=5, device="cuda", capture=capture, run_dir=tmp_path / capture)
        trainer.fit()
        losses[capture] = trainer.evaluate(brim.Loader(dataset.get_split_data("test"), 32))["loss"]
    assert losses["off"] == pytest.approx(losses["require"], rel=1e-3)


@pytest.mark.parametrize("quantiles", [(), (0.1, 0.5, 0.9)])
def test_once_it_repeats_the_last_value_bands_keep_their_width_and_training_goes_on_as_before(quantiles):
    model = LSTMForecaster(14, 5, 2, hidden=4, quantiles=quantiles)
    past = torch.randn(3, 14, 2)
    training, learned = model(past), model.eval().predict([past, torch.zeros(3, 5, 2)])
    model.repeats_last.fill_(True)
    found = model.predict([past, torch.zeros(3, 5, 2)])
    assert torch.allclose(model.point(found), past[:, -1:].expand(-1, 5, -1))
    if quantiles:
        assert torch.allclose(found.diff(dim=-1), learned.diff(dim=-1), atol=1e-6)
    assert torch.equal(model.train()(past), training)
