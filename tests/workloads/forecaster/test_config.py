"""The configuration of the forecaster."""

import inspect

import pytest

from brim.config import load_config, show_config
from brim.errors import ConfigError
from brim.workloads.forecaster import LSTMForecaster, SeriesDataset
from brim.workloads.forecaster.config import ForecasterConfig, NetworkSection, SeriesSection

WORKLOAD = "workload=forecaster"


def test_its_defaults_are_those_of_the_workload():
    config = load_config(None, [WORKLOAD, "trainer.lr=0.01"])
    assert config.trainer.epochs == ForecasterConfig().trainer.epochs == 60
    assert config.trainer.lr == 0.01


def test_every_setting_is_an_argument_of_what_it_describes():
    assert set(SeriesSection.model_fields) - {"path"} == set(inspect.signature(SeriesDataset).parameters) - {"data"}
    of_data = {"lookback", "horizon", "channels", "known", "static"}
    assert set(NetworkSection.model_fields) == set(inspect.signature(LSTMForecaster).parameters) - of_data


@pytest.mark.parametrize(
    "overrides",
    [
        [], ["data.split=[8640, 2880, 2880]"], ["data.split=['2020-01-01', '2021-01-01']"], ["data.target=[a, b]"],
        ["data.calendar=auto", "model.segment=null", "model.quantiles=[]"],
        ["model.linear=true", "train_ds.batch_size=64"],
    ],
)  # fmt: skip
def test_what_is_shown_reads_back_as_the_same_configuration(tmp_path, overrides):
    config = load_config(None, [WORKLOAD, *overrides])
    (tmp_path / "c.yaml").write_text(show_config(config))
    assert load_config(tmp_path / "c.yaml") == config


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.lookback=0", "data.lookback=0 cannot be used"),
        ("data.file=a.csv", "there is no setting 'data.file'"),
        ("model.quantiles=[0.5, 1.5]", "1.5 is not between 0 and 1"),
        ("model.loss=huber", "model.loss='huber' cannot be used"),
        ("model.dropout=1", "model.dropout=1 cannot be used"),
        ("valid_ds.shuffle=true", "evaluation reads every sample once"),
        ("trainer.loss_fn=l1", "loss_fn is the workload's own"),
    ],
)
def test_a_setting_that_cannot_be_is_one_sentence(override, said):
    with pytest.raises(ConfigError) as refused:
        load_config(None, [WORKLOAD, override])
    assert said in str(refused.value)
