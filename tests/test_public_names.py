import gc
import inspect
import random
import re
import subprocess
import sys
from importlib import import_module

import pytest

import brim


@pytest.mark.parametrize("name", brim.__all__)
def test_every_public_name_can_be_imported_from_its_home(name):
    assert getattr(brim, name) is getattr(import_module(brim._HOMES[name]), name)


def test_the_list_of_public_names_and_of_their_homes_agree():
    assert sorted(brim.__all__) == sorted(brim._HOMES)
    assert len(brim.__all__) == len(set(brim.__all__))


def test_dir_shows_the_public_names():
    assert set(brim.__all__) | {"__version__"} == set(dir(brim))


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(
        AttributeError, match=r"module 'brim' has no attribute 'trainer'; its public names are .*Trainer"
    ):
        _ = brim.trainer


def test_from_import_of_an_unknown_name_is_an_import_error():
    with pytest.raises(ImportError, match="Trainr"):
        exec("from brim import Trainr")


def test_importing_brim_does_not_import_torch_until_a_name_needs_it():
    program = (
        "import sys, brim\n"
        "brim.__version__, dir(brim), brim.BrimError\n"
        "assert 'torch' not in sys.modules, 'imported torch'\n"
        "brim.Trainer\n"
        "assert 'torch' in sys.modules, 'the check above shows nothing'\n"
        "slow = [name for name in ('torch._dynamo', 'sympy', 'brim.memory', 'brim.speed_up') if name in sys.modules]\n"
        "assert not slow, f'imported {slow}, which a trainer on a CPU does not need'\n"
        "assert brim.gather is brim.engine.gathering.gather.gather and brim.plan and brim.forecast\n"
        "assert 'torch._dynamo' in sys.modules and 'brim.memory' in sys.modules, 'the check above shows nothing'\n"
        "assert 'numpy.typing' not in sys.modules, 'takes as long as all the rest'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("collects", [True, False])
def test_importing_leaves_random_numbers_and_garbage_collection_as_they_were(collects):
    drawn, before = random.getstate(), gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with brim._while_importing():
            random.random()
            assert not gc.isenabled()
        assert (gc.isenabled(), random.getstate()) == (collects, drawn)
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("name", [name for name in brim.__all__ if name not in ("BrimError", "Callback")])
def test_every_argument_of_a_public_name_is_documented_with_an_example(name):
    public = getattr(brim, name)
    text = inspect.getdoc(public)
    missing = [argument for argument in inspect.signature(public).parameters if argument not in documented(text)]
    assert missing == []
    assert ">>>" in text or name in ("Forecast", "Plan")  # which forecast and plan show


def documented(text):
    """What stands before a colon in the section of arguments; several may share a line."""
    section = text.partition("Args:\n")[2].partition("\n\n")[0]
    heads = re.findall(r"^ {4}((?:\w+,?\s+)*\w+):", section, re.MULTILINE)
    return {argument.strip() for head in heads for argument in head.split(",")}
