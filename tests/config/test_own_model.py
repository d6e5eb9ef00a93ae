import pytest

from brim.config import load_config, show_config
from brim.config.own_model import OwnModelConfig
from brim.engine.components.settings import TrainerSettings
from brim.errors import ConfigError

OWN = "workload=train.py:build"


def refusal(*overrides):
    with pytest.raises(ConfigError) as refused:
        load_config(None, [OWN, *overrides])
    return str(refused.value)


def test_a_workload_that_names_code_has_the_trainers_own_defaults():
    config = load_config(None, [OWN, "params.hidden=3", "params.sizes=[1, 2]"])
    assert isinstance(config, OwnModelConfig)
    assert config.params == {"hidden": 3, "sizes": [1, 2]}
    assert config.trainer.epochs == TrainerSettings().epochs
    assert config.train_ds.asked == config.valid_ds.asked == config.test_ds.asked == {}


def test_it_is_read_back_as_it_was_shown(tmp_path):
    config = load_config(None, [OWN, "params.a={b: 1}", "train_ds.batch_size=4", "trainer.lr=0.5"])
    (tmp_path / "c.yaml").write_text(show_config(config))
    again = load_config(tmp_path / "c.yaml")
    assert again == config
    assert again.train_ds.asked == {"batch_size": 4}


def test_settings_of_the_trainer_that_code_decides_are_left_out(tmp_path):
    (tmp_path / "c.yaml").write_text(show_config(load_config(None, [OWN]), without={"lr", "model"}))
    assert "lr" not in load_config(tmp_path / "c.yaml").trainer.model_fields_set


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("hidden=3", "there is no section 'hidden'; parameters of the workload stand under params:"),
        ("data.path=3", "there is no section 'data'"),
        ("epochs=3", "there is no section 'epochs'; did you mean 'trainer.epochs'?"),
        ("optimiser=adam", "there is no section 'optimiser'; did you mean 'trainer.optimizer'?"),
        ("train_data=4", "there is no section 'train_data'; did you mean 'train_ds'?"),
        ("dataloader=4", "there is no section 'dataloader'; did you mean 'train_ds'?"),
        ("val_ds=4", "there is no section 'val_ds'; did you mean 'valid_ds'?"),
        ("trainer.metrics={a: mae}", "trainer.metrics={'a': 'mae'} cannot be used: input should be a valid string"),
        ("trainer.epoch=3", "did you mean 'trainer.epochs'?"),
        ("train_ds.batchsize=3", "did you mean 'train_ds.batch_size'?"),
        ("train_ds.batch_size=0", "train_ds.batch_size=0 cannot be used"),
        ("train_ds.num_workers=-1", "train_ds.num_workers=-1 cannot be used: write a number of processes"),
        ("train_ds.num_workers=many", "train_ds.num_workers='many' cannot be used: write a number of processes"),
        ("train_ds.num_workers=true", "true and false are not values"),
        ("valid_ds.shuffle=true", "valid_ds.shuffle=True cannot be used: evaluation reads every sample once"),
        ("test_ds.drop_last=true", "test_ds.drop_last=True cannot be used: evaluation reads every sample once"),
        ("params=3", "params=3 cannot be used"),
        ("workload=os:system", "the command line: workload='os:system': os is Python's own"),
        ("workload=null", "a function of yours is written train.py:build"),
        ("workload=recommendr", "workload='recommendr' is not known; did you mean 'recommender'?"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(override, part):
    assert part in refusal(override)


@pytest.mark.parametrize("override", ["valid_ds.shuffle=false", "test_ds.drop_last=false", "train_ds.num_workers=auto"])
def test_what_says_nothing_new_is_accepted(override):
    assert isinstance(load_config(None, [OWN, override]), OwnModelConfig)
