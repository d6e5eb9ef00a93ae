"""What is said about arguments of other trainers that are none here."""

import inspect
import re

import pytest

import brim
from brim.arguments.sentences import SENTENCES

ARGUMENTS = {"nnodes", "label_smoothing", "weight"}.union(  # of torchrun and of torch's criteria
    *(inspect.signature(call).parameters for call in (brim.Trainer, brim.Loader, brim.Trainer.fit, brim.Schedule))
)


def test_a_sentence_names_only_arguments_that_there_are():
    mentioned = {name: set(re.findall(r"(?<![-\w])(\w+)=(?!=)", sentence)) for name, sentence in SENTENCES.items()}
    assert {name: found - ARGUMENTS for name, found in mentioned.items() if found - ARGUMENTS} == {}


def test_a_sentence_names_only_what_brim_has():
    mentioned = {name: re.findall(r"\bbrim\.(\w+)", sentence) for name, sentence in SENTENCES.items()}
    assert [name for name, found in mentioned.items() if not all(hasattr(brim, one) for one in found)] == []
    methods = {
        name: re.findall(r"\b(?:trainer\.|)(fit|evaluate|predict|log|stop)\(", s) for name, s in SENTENCES.items()
    }
    assert [name for name, found in methods.items() if not all(hasattr(brim.Trainer, one) for one in found)] == []


@pytest.mark.parametrize("name", SENTENCES)
def test_it_is_the_end_of_one_sentence(name):
    told = SENTENCES[name]
    assert "\n" not in told and not told.removesuffix("...").endswith((".", ";", ",")) and len(told) < 140
