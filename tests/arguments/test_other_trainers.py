import inspect
import re

import pytest

import brim
from brim.arguments.known import known_arguments
from brim.arguments.other_trainers import PERHAPS, RENAMED, SENTENCES, advice_on, name_here, other_names
from brim.errors import ConfigError

OWN = set(inspect.signature(brim.Trainer).parameters)
ALL = OWN.union(
    *(inspect.signature(call).parameters for call in (brim.Loader, brim.Trainer.fit, brim.Trainer.predict)),
    {"warmup"},  # of brim.Schedule
)


def test_more_than_sixty_names_of_other_trainers_are_known():
    assert len(set(other_names())) > 150
    assert len(set(other_names())) == len(other_names())  # each in one table


@pytest.mark.parametrize("name", other_names())
def test_no_name_is_an_argument_of_the_trainer_itself(name):
    assert name not in OWN or name in PERHAPS


@pytest.mark.parametrize("name", RENAMED)
def test_what_it_is_called_here_is_an_argument(name):
    assert RENAMED[name] in ALL


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_names_only_arguments_that_there_are(name):
    mentioned = set(re.findall(r"(?<![-\w])(\w+)=(?!=)", SENTENCES[name])) - {"nnodes", "label_smoothing", "weight"}
    assert mentioned <= ALL


@pytest.mark.parametrize("name", PERHAPS)
def test_what_may_be_there_is_named_only_where_it_is(name):
    here, otherwise = PERHAPS[name]
    assert name_here(name, {here}) == here
    assert name_here(name, set()) is None
    assert advice_on(name) == otherwise


@pytest.mark.parametrize("name", other_names())
def test_the_trainer_has_a_sentence_for_every_one_of_them(name):
    if name in OWN:
        pytest.skip("the trainer has it")
    with pytest.raises(ConfigError, match=name) as caught:
        brim.Trainer(None, None, **{name: 1})
    assert "anything like it" not in str(caught.value)


def test_every_public_call_of_the_trainer_is_checked():
    for call in (brim.Trainer.__init__, brim.Trainer.fit, brim.Trainer.evaluate, brim.Trainer.predict):
        assert call.__code__ is known_arguments(lambda: None).__code__
