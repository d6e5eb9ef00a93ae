"""What tests of commands share."""

import pytest
from helpers.command import brim


@pytest.fixture
def plan(monkeypatch, capsys):
    """``brim plan`` in this process; gives the exit code, stdout and stderr."""
    return lambda *arguments: (brim(["plan", *arguments], monkeypatch), *capsys.readouterr())
