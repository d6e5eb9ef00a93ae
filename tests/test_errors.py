"""What the command line ends with, by error."""

import pytest

from brim import errors

EXIT_CODES = {"CannotFit": 3, "Preempted": 75, "RanksLost": 75, "Interrupted": 130}
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_its_exit_code_and_2_where_the_user_has_to_change_something(kind):
    assert kind.exit_code == EXIT_CODES.get(kind.__name__, 2)


def test_ctrl_c_is_still_ctrl_c_and_all_others_are_brims():
    assert issubclass(errors.Interrupted, KeyboardInterrupt)
    assert [kind.__name__ for kind in KINDS if not issubclass(kind, errors.BrimError)] == ["Interrupted"]
