"""What the command line ends with, by error."""

import pytest

from brim import errors

EXIT_CODES = {"CannotFit": 3, "Preempted": 75, "RanksLost": 75}
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind is not KeyboardInterrupt]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_its_exit_code_and_2_where_the_user_has_to_change_something(kind):
    assert kind.exit_code == EXIT_CODES.get(kind.__name__, 2)


def test_ctrl_c_is_still_ctrl_c_and_all_others_are_brims():
    assert errors.Interrupted is KeyboardInterrupt  # exactly: CPython looks for no class derived from it
    assert errors.INTERRUPTED == 130
    assert all(issubclass(kind, errors.BrimError) for kind in KINDS)
