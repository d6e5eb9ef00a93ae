import pytest

from brim.arguments.choices import check_choice, shorten
from brim.errors import ConfigError


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one():
    check_choice("capture", "auto", ["auto", "off"])
    with pytest.raises(ConfigError, match="capture='aut' is not known; did you mean 'auto'"):
        check_choice("capture", "aut", ["auto", "off"])


def test_true_is_not_one():
    with pytest.raises(ConfigError):
        check_choice("keep", True, [1])


def test_long_values_are_cut():
    assert len(shorten("x" * 100)) == 60
