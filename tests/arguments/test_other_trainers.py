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


def test_no_name_is_an_argument_of_the_trainer_itself():
    assert [name for name in other_names() if name in OWN and name not in PERHAPS] == []


def test_what_it_is_called_here_is_an_argument():
    assert {name: here for name, here in RENAMED.items() if here not in ALL} == {}


def test_a_sentence_names_only_arguments_that_there_are():
    known = ALL | {"nnodes", "label_smoothing", "weight"}
    mentioned = {name: set(re.findall(r"(?<![-\w])(\w+)=(?!=)", sentence)) for name, sentence in SENTENCES.items()}
    assert {name: found - known for name, found in mentioned.items() if found - known} == {}


@pytest.mark.parametrize("name", PERHAPS)
def test_what_may_be_there_is_named_only_where_it_is(name):
    here, otherwise = PERHAPS[name]
    assert name_here(name, {here}) == here
    assert name_here(name, set()) is None
    assert advice_on(name) == otherwise


def test_the_trainer_has_a_sentence_for_every_one_of_them():
    for name in set(other_names()) - OWN:
        with pytest.raises(ConfigError, match=name) as caught:
            brim.Trainer(None, None, **{name: 1})
        assert "anything like it" not in str(caught.value), name


def test_every_public_call_of_the_trainer_is_checked():
    for call in (brim.Trainer.__init__, brim.Trainer.fit, brim.Trainer.evaluate, brim.Trainer.predict):
        assert call.__code__ is known_arguments(lambda: None).__code__
