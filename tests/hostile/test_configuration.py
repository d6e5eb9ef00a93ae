import os

import pytest
import yaml

from brim.config import load_config
from brim.errors import ConfigError
from brim.record import RunFolder, write_report
from brim.record.plain_yaml import MOST_CHARACTERS

TAGS = [
    "data: !!python/object/apply:os.mkdir ['{}']",
    "trainer: {{optimizer: {{name: !!python/object/apply:os.mkdir ['{}']}}}}",
    "? !!python/object/apply:os.mkdir ['{}']\n: 1",
    "!!python/object/apply:os.mkdir ['{}']",
]


@pytest.mark.parametrize("text", TAGS)
def test_a_tag_that_runs_code_elsewhere_runs_nothing_here(tmp_path, trap, text):
    text = text.format(trap.trace)
    yaml.unsafe_load(text)
    assert trap.has_sprung  # the payload is alive
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match="python/object/apply"):
        load_config(tmp_path / "c.yaml")
    with pytest.raises(ConfigError, match="python/object/apply"):
        load_config(overrides=[f"trainer.optimizer=!!python/object/apply:os.mkdir ['{trap.trace}']"])
    assert not trap.has_sprung


def test_the_configuration_of_a_run_folder_runs_nothing_when_its_page_is_written(tmp_path, trap):
    folder = RunFolder.create(tmp_path / "run")
    folder.write("config.yaml", TAGS[0].format(trap.trace))
    assert "os.mkdir" in write_report(folder).read_text()  # shown as it is
    assert not trap.has_sprung


def doubled(levels: int, item: str = "[{0}, {0}]") -> str:
    """A list of which each part is the one before it twice: a line of text a level, 2^levels values."""
    return "[&a0 1, " + ", ".join(f"&a{n} " + item.format(f"*a{n - 1}") for n in range(1, levels)) + "]"


def values_in(value, known) -> int:
    if not isinstance(value, list):
        return 1
    if id(value) not in known:
        known[id(value)] = sum(values_in(part, known) for part in value)
    return known[id(value)]


def test_a_few_lines_of_aliases_do_stand_for_more_than_any_memory():
    assert values_in(yaml.safe_load(doubled(60)), {}) > 2**59


@pytest.mark.parametrize(
    "place",
    [
        "{}",
        "workload: {}",
        "data: {{path: {}}}",
        "eval_ds: {{k: {}}}",
        "trainer: {{optimizer: {{name: AdamW, betas: {}}}}}",
        "trainer: {{scheduler: {{name: cosine, warmup: {}}}}}",
    ],
)
def test_aliases_that_stand_for_more_than_any_memory_are_refused_at_once(tmp_path, place):
    (tmp_path / "c.yaml").write_text(place.format(doubled(60)))
    with pytest.raises(ConfigError, match="with its aliases it holds more than 10,000 values"):
        load_config(tmp_path / "c.yaml")


def test_merges_that_double_each_time_are_refused_at_once(tmp_path):
    maps = ", ".join(f"&m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}" for n in range(1, 60))
    (tmp_path / "c.yaml").write_text(f"data: [&m0 {{a: 1}}, {maps}]")
    with pytest.raises(ConfigError, match="aliases"):
        load_config(tmp_path / "c.yaml")


@pytest.mark.parametrize("text", ["a: &a [*a]", "&a {trainer: *a}", "a: &a {b: [*a]}", "? &a [*a]\n: 1"])
def test_an_alias_within_itself_is_refused(tmp_path, text):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"an alias stands for what it is part of|unconstructed|unhashable"):
        load_config(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n".join(f"k{n}: 1" for n in range(20_000)), "more than 10,000 values"),
        (f"trainer: {{epochs: 0x{'f' * 100_000}}}", "more than 100 digits"),
        (f"trainer: {{epochs: 0b{'1' * 100_000}}}", "more than 100 digits"),
        (f"trainer: {{epochs: 1{':59' * 100_000}}}", "more than 100 digits"),
        ("#" * (MOST_CHARACTERS + 1), "more than 1,048,576 characters"),
    ],
    ids=["keys", "hexadecimal", "binary", "minutes", "characters"],
)
def test_what_would_take_long_is_refused_at_once(tmp_path, text, said):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_config(tmp_path / "c.yaml")


def test_a_file_larger_than_memory_is_not_read_to_its_end(tmp_path):
    with (tmp_path / "c.yaml").open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    with pytest.raises(ConfigError, match="which no settings have"):
        load_config(tmp_path / "c.yaml")


def test_a_path_that_no_file_system_takes_is_one_sentence():
    with pytest.raises(ConfigError, match="embedded null byte"):
        load_config("a\0b")
