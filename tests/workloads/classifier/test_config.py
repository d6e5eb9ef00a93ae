import pytest

from brim.config import load_config, show_config
from brim.errors import ConfigError


def load(*overrides):
    return load_config(None, ["workload=classifier", *overrides])


def test_train_ds_takes_the_settings_of_a_loader():
    config = load("train_ds.batch_size=4", "train_ds.num_workers=8", "train_ds.pin_memory=true",
                  "train_ds.persistent_workers=true", "train_ds.prefetch_factor=2")  # fmt: skip
    assert config.train_ds.asked == {
        "batch_size": 4, "num_workers": 8, "pin_memory": True, "persistent_workers": True, "prefetch_factor": 2,
    }  # fmt: skip
    assert config.trainer.metrics == "accuracy"


def test_it_reads_itself_back(tmp_path):
    written = show_config(load("data.train=a", "data.classes=[x, y]", "train_ds.preset=24GB"))
    (tmp_path / "c.yaml").write_text(written)
    assert show_config(load_config(tmp_path / "c.yaml")) == written


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (
            "train_ds.preset=6GB",
            "train_ds.preset='6GB' cannot be used: there is no preset '6GB'; there are 8GB, default",
        ),
        ("data.augment=[rotate]", "there is no augmentation 'rotate'"),
        ("data.classes=1", "there must be two classes at least"),
        ("data.classes=[a, a]", "a class is named twice"),
        ("data.on_damage=ignore", "data.on_damage='ignore' cannot be used"),
        ("data.sizes=3", "did you mean 'data.size'"),
        ("model.depth=99", "model.depth=99 cannot be used"),
    ],
)
def test_what_cannot_be_used_is_said(override, sentence):
    with pytest.raises(ConfigError) as told:
        load(override)
    assert sentence in str(told.value)
