import pytest
from brim.memory.trace.telling import Telling

from brim.errors import ConfigError, ModelError


def test_an_error_of_the_users_code_is_told_with_its_line_and_its_first_sentence():
    said = r"^building failed at .*test_telling\.py:\d+: ValueError: one$"
    with pytest.raises(ModelError, match=said) as raised, Telling("building"):
        raise ValueError("one\ntwo")
    assert isinstance(raised.value.__cause__, ValueError)


def test_brims_own_errors_and_what_is_no_error_go_through():
    for error in (ConfigError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, Telling("building"):
            raise error
        assert raised.value is error
