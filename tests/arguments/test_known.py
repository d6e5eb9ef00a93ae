import inspect
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from brim.arguments.known import as_plain, known_arguments, known_fields
from brim.arguments.other_trainers import other_names
from brim.errors import ConfigError


@known_arguments
def train(model, data=None, *, epochs=1, clip_norm=None):
    return model, data, epochs, clip_norm


class Owner:
    @known_arguments
    def __init__(self, epochs=1):
        self.epochs = epochs

    @known_arguments
    def fit(self, resume=None):
        return resume


def refused(call, **arguments):
    with pytest.raises(ConfigError) as caught:
        call(**arguments)
    return str(caught.value)


def nothing(): ...


def test_arguments_that_are_known_arrive_as_they_are():
    data = [1]
    assert train("m", data, epochs=3) == ("m", data, 3, None)
    assert train("m", data)[1] is data


def test_the_signature_stays_the_functions_own():
    assert list(inspect.signature(train).parameters) == ["model", "data", "epochs", "clip_norm"]
    assert train.__name__ == "train"


def test_a_name_of_another_trainer_is_translated():
    assert refused(train, max_epochs=3) == "train has no argument max_epochs: it is epochs= here"


def test_several_wrong_names_are_told_at_once():
    told = refused(train, max_epochs=3, gradient_clip_val=1.0)
    assert "epochs=" in told and "clip_norm=" in told


def test_more_wrong_names_than_a_sentence_holds_are_counted():
    assert refused(train, **{f"zz{number}qq": 1 for number in range(9)}).endswith("; and 3 more")


def test_a_typing_error_is_met_with_the_nearest_name():
    assert "did you mean clip_norm=?" in refused(train, clip_nrom=1.0)


def test_a_typing_error_in_another_trainers_name_is_met_with_its_translation():
    assert "it is epochs= here" in refused(train, num_train_epoch=1)


def test_an_argument_of_another_method_is_told_with_its_place():
    assert refused(Owner, resume="x") == "Owner has no argument resume: it is Owner.fit(resume=...)"
    assert "it is Owner(epochs=...)" in refused(Owner().fit, epochs=2)
    assert "it is Owner(epochs=...)" in refused(Owner().fit, max_epochs=2)


@pytest.mark.parametrize("name", ["scheduler", *other_names()])
def test_every_name_of_another_trainer_is_answered_where_it_means_nothing(name):
    with pytest.raises(ConfigError, match=f"^nothing has no argument {name}: "):
        known_arguments(nothing)(**{name: 1})


def test_a_name_like_no_other_is_said_to_be_so():
    assert "zzz" in refused(train, zzz=1)


def test_missing_and_superfluous_arguments_are_one_sentence():
    assert "missing a required argument: 'model'; it takes model, data, and the others by name" in refused(train)
    with pytest.raises(ConfigError, match="too many positional arguments"):
        train(1, 2, 3)


def test_numbers_of_numpy_and_torch_become_pythons():
    _, _, epochs, clip = train("m", epochs=np.int64(2), clip_norm=torch.tensor(0.5))
    assert (type(epochs), epochs, type(clip), clip) == (int, 2, float, 0.5)


def test_an_error_of_the_function_itself_is_its_own():
    @known_arguments
    def fails(a):
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        fails(1)


def test_a_dataclass_stays_one_and_checks_its_fields():
    @known_fields
    @dataclass(frozen=True)
    class Point:
        x: int = 0
        y: int = 0

    assert Point(1, y=np.int64(2)) == replace(Point(1), y=2)
    assert list(inspect.signature(Point).parameters) == ["x", "y"]
    assert "Point has no argument z: it takes x, y" in refused(Point, z=1)


def test_data_by_the_trainers_names_is_data_where_a_call_is_about_one_set():
    @known_arguments
    def evaluate(data=None, metrics=None): ...

    for name in ("eval_dataset", "test_dataloader", "eval_data", "dataloaders", "dataset"):
        assert refused(evaluate, **{name: 1}) == (
            f"{evaluate.__qualname__.rpartition('<locals>.')[2]} has no argument {name}: it is data= here"
        )


@pytest.mark.parametrize(
    ("value", "plain"),
    [(np.int64(2), 2), (np.float32(0.5), 0.5), (np.bool_(True), True), (np.array(3), 3), (torch.tensor(4), 4)],
)
def test_a_single_number_becomes_pythons(value, plain):
    assert as_plain(value) == plain
    assert type(as_plain(value)) is type(plain)


@pytest.mark.parametrize(
    "value",
    [torch.ones(1), np.ones(1), torch.ones((), requires_grad=True), torch.ones((), device="meta"), "x", None, [1]],
)
def test_anything_else_stays_what_it_is(value):
    assert as_plain(value) is value
