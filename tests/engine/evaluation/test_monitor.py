import pytest

from brim.engine.evaluation.monitor import Monitor, choose_monitor
from brim.errors import ConfigError

LOSS = Monitor("loss", False)


def test_the_data_decides_where_nobody_asks():
    assert choose_monitor(Monitor("score", True), None, None, {}) == Monitor("score", True)


def test_a_mode_that_is_said_is_taken():
    assert choose_monitor(LOSS, None, "max", {}) == Monitor("loss", True)
    assert choose_monitor(LOSS, "beauty", "min", {}) == Monitor("beauty", False)


def test_what_a_metric_says_of_itself_comes_before_its_name():
    assert choose_monitor(LOSS, "error_free", None, {"error_free": True}) == Monitor("error_free", True)


def test_an_unknown_direction_is_asked_for():
    with pytest.raises(ConfigError, match="mode='max' or mode='min'"):
        choose_monitor(LOSS, "beauty", None, {"beauty": None})


def test_a_misspelt_name_is_refused_before_the_run_and_one_of_a_loss_is_awaited():
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        choose_monitor(LOSS, "acuracy", None, {"loss": False, "accuracy": True})
    assert choose_monitor(LOSS, "kl", None, {"loss": False, "accuracy": True}) == Monitor("kl", False)


@pytest.mark.parametrize("name", ["noisy/loss", "eval/noisy/loss"])
def test_of_several_sets_the_first_is_meant_where_none_is_named(name):
    own = Monitor("clean/loss", False)
    assert choose_monitor(own, "accuracy", None, {}, ("clean", "noisy")) == Monitor("clean/accuracy", True)
    assert choose_monitor(own, name, None, {}, ("clean", "noisy")) == Monitor("noisy/loss", False)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("val_loss", "loss"), ("eval_loss", "loss"), ("validation-loss", "loss"), ("val_acc", "accuracy"),
        ("val_accuracy", "accuracy"), ("test_acuracy", "accuracy"), ("acc", "accuracy"),
    ],
)  # fmt: skip
def test_the_names_of_other_trainers_are_answered_with_that_of_the_metric(name, meant):
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        choose_monitor(LOSS, name, None, {"loss": False, "accuracy": True})


def test_a_name_of_a_set_is_answered_with_that_of_the_set():
    known = {"clean/loss": False, "noisy/loss": False}
    with pytest.raises(ConfigError, match="did you mean 'clean/loss'"):
        choose_monitor(Monitor("clean/loss", False), "val_loss", None, known, ("clean", "noisy"))
    with pytest.raises(ConfigError, match="did you mean 'noisy/loss'"):
        choose_monitor(Monitor("clean/loss", False), "noisy/val_loss", None, known, ("clean", "noisy"))
