"""Patterns for parameters, as people write them: "bias", "norm", "head", "encoder.layer.1", "*.ln_?.weight"."""

import fnmatch
import re
from functools import lru_cache

NORM = "norm"
# The pieces of a name: capitals that stand together, a word with or without a capital, a number with its unit (2d).
_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+[a-z]*")
_NORMS = re.compile(r"(.*?)(?:norms?|normali[sz]ation)")


def matches(pattern: str, name: str, kind: str) -> bool:
    """Whether a pattern is meant for the parameter ``name`` of a module of this kind; capitals do not matter.

    It is one by whole words, of a part of the name or of the kind; with dots it is a piece of the path, or a kind and
    what it calls the parameter; with ``*`` or ``?`` it is the whole name or kind.

    >>> matches("norm", "h.0.ln_1.weight", "LayerNorm"), matches("norm", "enormous.weight", "Linear")
    (True, False)
    >>> matches("bias", "fc.bias", "Linear"), matches("bias", "unbiased.weight", "Linear")
    (True, False)
    >>> matches("blocks.1", "blocks.11.weight", "Linear"), matches("LayerNorm.weight", "ln_f.weight", "LayerNorm")
    (False, True)
    """
    if any(sign in pattern for sign in "*?["):
        return any(fnmatch.fnmatchcase(one.lower(), pattern.lower()) for one in (name, kind))
    if "." in pattern:
        places = (name, f"{kind}.{name.rpartition('.')[2]}")
        return any(f".{pattern.strip('.')}.".lower() in f".{place}.".lower() for place in places)
    wanted = "".join(_words(pattern))
    return any(_is_run(wanted, _words(part)) for part in (*name.split("."), kind))


def _is_run(wanted: str, words: tuple[str, ...]) -> bool:
    """Whether neighbouring words are the wanted one when they are written together; the last may be in the plural."""
    for first in range(len(words)):
        for last in range(first + 1, len(words) + 1):
            if "".join(words[first:last]) in (wanted, f"{wanted}s", f"{wanted}es"):
                return True
    return False


@lru_cache(maxsize=4096)
def _words(name: str) -> tuple[str, ...]:
    """The words of a name. What norms are called is often written together, in small letters.

    >>> _words("LlamaRMSNorm"), _words("input_layernorm"), _words("BatchNorm2d")
    (('llama', 'rms', 'norm'), ('input', 'layer', 'norm'), ('batch', 'norm', '2d'))
    """
    found: list[str] = []
    for piece in _PIECES.findall(name):
        norm = _NORMS.fullmatch(piece.lower())
        found += [piece.lower()] if norm is None else [*filter(None, [norm[1]]), NORM]
    return tuple(found)
