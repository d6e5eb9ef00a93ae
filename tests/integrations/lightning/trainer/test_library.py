import sys

import lightning as L
import pytest

from brim.errors import ConfigError
from brim.integrations.lightning.trainer import library


def test_callbacks_derive_from_the_name_that_is_imported():
    assert library.callback_class() is L.pytorch.Callback


def test_the_other_name_serves_where_it_alone_is_there(monkeypatch):
    other = pytest.importorskip("pytorch_lightning")
    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    assert library.callback_class() is other.Callback


def test_without_lightning_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(library, "NAMES", ("lightning_that_is_not.pytorch",))
    with pytest.raises(ConfigError, match=r"pip install \"brim\[lightning\]\""):
        library.callback_class()()
