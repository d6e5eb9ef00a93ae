import pytest

from brim.config.load import check_config
from brim.config.setting_hints import trainer_hint
from brim.errors import ConfigError


def refusal(name, workload):
    with pytest.raises(ConfigError) as told:
        check_config({"workload": workload, "trainer": {name: 1}}, "my.yaml")
    return str(told.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("callbacks", "callbacks is code: let the function that workload: names return it"),
        ("loss_fn", "loss_fn is code"),
        ("criterion", "loss_fn is code"),
        ("train_dataloader", "train_data is code"),
        ("max_epochs", "did you mean 'trainer.epochs'?"),
        ("gradient_clip_val", "did you mean 'trainer.clip_norm'?"),
        ("warmup_steps", "it is the schedule's"),
        ("batch_size", "did you mean 'train_ds.batch_size'?"),
        ("epocs", "did you mean 'trainer.epochs'?"),
    ],
)
def test_a_setting_that_there_is_not_is_answered_with_where_it_is(name, said):
    told = refusal(name, "train.py:build")
    assert told.startswith(f"my.yaml: there is no setting 'trainer.{name}'") and said in told


def test_the_recommender_has_its_own_loss():
    assert "loss_fn is the workload's own; to hand over yours" in refusal("loss_fn", "recommender")


def test_other_sections_are_left_to_their_spelling():
    assert trainer_hint("train_ds.max_epochs", is_own=True) is None
    assert trainer_hint("trainer.optimizer.lr", is_own=True) is None
