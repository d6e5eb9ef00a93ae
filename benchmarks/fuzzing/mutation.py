"""Changes to bytes, and to the values of JSON and YAML, drawn from a generator: the same seed, the same change."""

import copy
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

DEEP = "@deep@"  # stands for a nesting that no writer would write
TOKENS = [
    b"", b"\0", b"\xff", b"\n", b"\r\n", b" ", b"\t", b"'", b'"', b"\\", b"/", b"..", b"../../etc/passwd", b"/dev/zero",
    b"[", b"]", b"{", b"}", b"(", b")", b",", b":", b"::", b"-", b"- ", b"? ", b"<<: ", b"&a ", b"*a", b"!!binary ",
    b"!!set ", b"!!timestamp ", b"!!python/object/apply:os.system [exit]", b"%YAML 9.9\n---\n", b"0", b"-1", b"1e999",
    b"NaN", b"-Infinity", b"null", b"true", b"9" * 30, b"9" * 5000, b"0x", b".nan", b"2001-99-99", b"\xed\xa0\x80",
    b"\xe2\x80\xa8", b"<script>", b"</script>", b"cos\nsystem\n", b"\x80\x02", b"\x80\x04", b"R.", b"}q\0", b"ctorch\n",
    b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06", b"PK\x01\x02", b"ustar\0", b"[" * 3000, b'{"a":' * 3000, b"(" * 3000,
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 127, 255, 256, 65535, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**30]
VALUES = [
    *NUMBERS, *(-number for number in NUMBERS), None, True, False, 0.5, -0.0, 1e308, -1e308, float("nan"), float("inf"),
    "", "x", "0", "NaN", "../../etc/passwd", "/etc/passwd", "a\0b", "\ud800", "\x1b[31m", "</script>", "x" * 5000, DEEP,
    [], {}, [[]], [None], [0, 1], {"": 0}, {"x": []},
]  # fmt: skip
KEYS = ["", "x", "__class__", "name", "0", "../x", "\0", "\ud800", "</script>"]


def mutate(random: Random, content: bytes, other: bytes = b"") -> bytes:
    """``content`` after a few changes; ``other`` is spliced in at times. Now and then something else altogether."""
    if random.random() < 0.02:
        return random.randbytes(random.choice([0, 1, 16, 300, 5000]))
    for _ in range(random.choice([1, 1, 1, 2, 3, 8])):
        content = random.choice(CHANGES)(random, content, other)
    return content


def _stretch(random: Random, content: bytes) -> tuple[int, int]:
    start = random.randint(0, len(content))
    return start, min(len(content), start + random.choice([0, 1, 2, 4, 8, 64, 512, 4096]))


def _flip(random: Random, content: bytes, other: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 8]) if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwrite(random: Random, content: bytes, other: bytes) -> bytes:
    start, end = _stretch(random, content)
    filling = random.choice([bytes(end - start), b"\xff" * (end - start), random.randbytes(end - start)])
    return content[:start] + filling + content[end:]


def _truncate(random: Random, content: bytes, other: bytes) -> bytes:
    return content[: random.randint(0, len(content))]


def _remove(random: Random, content: bytes, other: bytes) -> bytes:
    start, end = _stretch(random, content)
    return content[:start] + content[end:]


def _repeat(random: Random, content: bytes, other: bytes) -> bytes:
    start, end = _stretch(random, content)
    return content[:end] + content[start:end] * random.choice([1, 1, 3, 100]) + content[end:]


def _splice(random: Random, content: bytes, other: bytes) -> bytes:
    start, end = _stretch(random, other)
    at = random.randint(0, len(content))
    return content[:at] + other[start:end] + content[at:]


def _token(random: Random, content: bytes, other: bytes) -> bytes:
    token, at = random.choice(TOKENS), random.randint(0, len(content))
    return content[:at] + token + content[at + random.choice([0, 0, 1, len(token)]) :]


def _number(random: Random, content: bytes, other: bytes) -> bytes:
    """Another number in the place of one that is written in digits, or of one in binary."""
    digits = list(re.finditer(rb"\d+", content))
    if digits and random.random() < 0.7:
        start, end = random.choice(digits).span()
        return content[:start] + str(random.choice(NUMBERS) * random.choice([1, -1])).encode() + content[end:]
    size, at = random.choice([1, 2, 4, 8]), random.randint(0, len(content))
    number = random.choice(NUMBERS) % 256**size
    return content[:at] + number.to_bytes(size, random.choice(["little", "big"])) + content[at + size :]


CHANGES: list[Callable[[Random, bytes, bytes], bytes]] = [
    _flip, _overwrite, _truncate, _remove, _repeat, _splice, _token, _number
]  # fmt: skip


def mutate_json(random: Random, content: bytes) -> bytes:
    """JSON of another shape: values replaced, keys renamed, taken out and added."""
    text = json.dumps(mutate_value(random, json.loads(content)))
    levels = random.choice([10, 100, 900, 5000])
    return text.replace(f'"{DEEP}"', "[" * levels + "]" * levels).encode()


def mutate_yaml(random: Random, content: bytes) -> bytes:
    """YAML of another shape."""
    text = yaml.safe_dump(mutate_value(random, yaml.safe_load(content)))
    levels = random.choice([5, 40, 900])
    nested, doubled = "[" * levels + "]" * levels, _aliases(levels, "[*{0}, *{0}]")
    merged = _aliases(levels, "{{<<: [*{0}, *{0}]}}")
    return text.replace(f"'{DEEP}'", random.choice([nested, doubled, merged])).encode("utf-8", "surrogatepass")


def _aliases(levels: int, item: str) -> str:
    """A list of which each part stands twice for the one before it."""
    return "[&n0 {x: 1}, " + ", ".join(f"&n{n} {item.format(f'n{n - 1}')}" for n in range(1, levels)) + "]"


def mutate_value(random: Random, value: Any) -> Any:
    """A copy of a nesting of dicts and lists with one to three things changed."""
    root = [copy.deepcopy(value)]
    for _ in range(random.choice([1, 1, 2, 3])):
        holder, key = random.choice(list(_places(root)))
        what = random.random()
        if what < 0.7:
            holder[key] = copy.deepcopy(random.choice(VALUES))
        elif what < 0.8 and holder is not root:
            del holder[key]
        elif what < 0.9 and isinstance(holder, dict):
            holder[random.choice([*KEYS, *map(str, holder)])] = holder.pop(key)
        else:
            holder[key] = [holder[key]] * random.choice([1, 2, 50])
    return root[0]


def _places(holder: Any) -> Any:
    """Every container with each of its keys."""
    for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
        yield holder, key
        if isinstance(value, dict | list):
            yield from _places(value)
