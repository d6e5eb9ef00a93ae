import logging
import sys

import pytest

from brim.workloads.quiet import quietly


def test_nothing_is_said_within_and_everything_after(capsys):
    log = logging.getLogger("brim.test_quiet")
    with quietly():
        print("within", file=sys.stderr)
        assert not log.isEnabledFor(logging.WARNING)
    print("after", file=sys.stderr)
    assert log.isEnabledFor(logging.WARNING)
    assert capsys.readouterr().err == "after\n"


def test_an_error_ends_the_quiet(capsys):
    with pytest.raises(ZeroDivisionError), quietly():
        raise ZeroDivisionError
    print("after", file=sys.stderr)
    assert capsys.readouterr().err == "after\n"
