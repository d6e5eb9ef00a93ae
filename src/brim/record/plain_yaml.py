"""YAML from anywhere, as plain data: it builds no objects, runs nothing, and stays about as large as its text."""

from collections.abc import Hashable
from typing import Any

import yaml

from brim.errors import ConfigError, first_line

MOST_CHARACTERS = 1 << 20
MOST_VALUES = 10_000  # settings are a few dozen; PyYAML takes some 50 us for each
MOST_DIGITS = 100


def read_yaml(text: str, source: str) -> Any:
    """What a YAML text holds; ``source`` names it in the ConfigError about whatever cannot be read.

    >>> read_yaml("trainer: {epochs: 3}", "mine.yaml")
    {'trainer': {'epochs': 3}}
    """
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"{source} has more than {MOST_CHARACTERS:,} characters, which no settings have; is it another file?"
        )
    try:
        return yaml.load(text, _PlainLoader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{line} is not YAML: {error.problem or error}") from error
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError, AttributeError, LookupError) as error:
        # PyYAML lets through whatever int(), float(), datetime() and deep nesting raise.
        raise ConfigError(f"{source} is not YAML that can be used: {first_line(error)}") from error


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML that refuses what would grow, and a key written twice: the first one would be lost in silence."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._composed = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._composed += 1
        if self._composed > MOST_VALUES:
            raise yaml.MarkedYAMLError(problem=f"it holds more than {MOST_VALUES:,} values")
        return super().compose_node(parent, index)

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        # Aliases are shared when read and copied when checked or shown: forty lines can stand for 2^40 values.
        if node is not None and _written_out(node, {}) > MOST_VALUES:
            raise yaml.MarkedYAMLError(problem=f"with its aliases it holds more than {MOST_VALUES:,} values")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = set()
        for key in (key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key in keys:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is there twice", problem_mark=node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > MOST_DIGITS:  # Python cannot even show a number of some thousands
            problem = f"the number {node.value[:20]}... has more than {MOST_DIGITS} digits"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return int(super().construct_yaml_int(node))


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_yaml_int)


def _written_out(node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """How many values a node stands for once every alias is written out; ``sizes`` holds those that are known."""
    known = sizes.get(id(node), 0)
    if known is None:
        raise yaml.MarkedYAMLError(problem="an alias stands for what it is part of", problem_mark=node.start_mark)
    if known:
        return known
    sizes[id(node)] = None  # until it is counted: whoever meets it meanwhile is inside it
    inside: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        inside = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        inside = node.value
    size = 1 + sum(_written_out(part, sizes) for part in inside)
    sizes[id(node)] = size
    return size
