import pytest
import yaml

from brim.errors import ConfigError
from brim.record.plain_yaml import MOST_VALUES, read_yaml


@pytest.mark.parametrize("text", ["", "a", "1", "[a, {b: 1.5}]", "a: &x {b: 1}\nc: *x", "a: {<<: {b: 1}, c: 2}"])
def test_plain_data_is_read_as_pyyaml_reads_it(text):
    assert read_yaml(text, "here") == yaml.safe_load(text)


def test_as_many_values_as_are_allowed_are_read():
    assert len(read_yaml("[" + "1," * (MOST_VALUES - 1) + "]", "here")) == MOST_VALUES - 1
    with pytest.raises(ConfigError, match="here is not YAML: it holds more than 10,000 values"):
        read_yaml("[" + "1," * MOST_VALUES + "]", "here")


def test_an_alias_counts_as_often_as_it_is_used():
    part = "[" + "1," * 99 + "]"
    assert len(read_yaml(f"[&a {part}, " + "*a, " * 98 + "]", "here")) == 99
    with pytest.raises(ConfigError, match="with its aliases it holds more than 10,000 values"):
        read_yaml(f"[&a {part}, " + "*a, " * 100 + "]", "here")


def test_a_key_that_is_there_twice_is_refused_with_its_line():
    with pytest.raises(ConfigError, match="here line 2 is not YAML: the key 'b' is there twice"):
        read_yaml("a:\n  b: 1\n  b: 2\n", "here")


def test_numbers_of_a_hundred_digits_are_still_read():
    assert read_yaml("9" * 100, "here") == int("9" * 100)
    with pytest.raises(ConfigError, match=r"the number 99999999999999999999\.\.\. has more than 100 digits"):
        read_yaml("9" * 101, "here")
