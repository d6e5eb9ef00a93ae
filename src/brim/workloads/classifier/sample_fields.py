"""Which fields of a sample a classifier reads: what it sees or hears, and the label."""

from dataclasses import dataclass
from typing import Literal

from brim.data.tar.fields import extension
from brim.errors import ConfigError
from brim.workloads.classifier import pictures, sounds

Kind = Literal["picture", "sound", "array"]
EXTENSIONS: dict[Kind, tuple[str, ...]] = {
    "picture": pictures.EXTENSIONS,
    "sound": sounds.EXTENSIONS,
    "array": ("npy",),
}
LABEL_NAMES = ("label", "class", "target", "y")


@dataclass(frozen=True)
class SampleFields:
    """The fields that hold what is classified (several, where some samples have a jpg and others a png), and the label.

    ``label`` is None where there is none to be read, as in a prediction.
    """

    kind: Kind
    inputs: tuple[str, ...]
    label: str | None


def choose_fields(
    there: tuple[str, ...], given: str | None, label: str | None, wants_label: bool = True
) -> SampleFields:
    """The fields by their extensions, where they are not named.

    >>> choose_fields(("jpg", "png", "json", "cls"), None, None)
    SampleFields(kind='picture', inputs=('jpg', 'png'), label='cls')
    """
    found_label = _label(there, label) if wants_label else None
    others = tuple(field for field in there if field != found_label)
    if given is not None:
        _check_is_there(given.lower(), there, "input")
        kind = kind_of(given)
        if kind is None:
            known = ", ".join(name for names in EXTENSIONS.values() for name in names)
            raise ConfigError(f"data.input={given!r} is neither a picture nor a sound by its extension ({known})")
        return SampleFields(kind, (given.lower(),), found_label)
    kind, inputs = _inputs(others)
    return SampleFields(kind, inputs, found_label)


def kind_of(field: str) -> Kind | None:
    """What a field holds, by its extension."""
    return next((kind for kind, names in EXTENSIONS.items() if extension(field) in names), None)


def _inputs(fields: tuple[str, ...]) -> tuple[Kind, tuple[str, ...]]:
    """Fields that are nothing but an extension go together; of those with a name of their own there may be one."""
    for kind in EXTENSIONS:
        of_kind = tuple(field for field in fields if kind_of(field) == kind)
        plain = tuple(field for field in of_kind if "." not in field)
        if plain or len(of_kind) == 1:
            return kind, plain or of_kind
        if of_kind:
            raise ConfigError(f"which of {', '.join(of_kind)} is to be classified? Name it: data.input={of_kind[0]}")
    shown = ", ".join(fields) or "nothing else"
    raise ConfigError(f"the shards hold no picture, sound or array to be classified, but {shown}; see data.input")


def _label(there: tuple[str, ...], given: str | None) -> str:
    if given is not None:
        _check_is_there(given.lower(), there, "label")
        return given.lower()
    whole = [field for field in there if extension(field) in ("cls", "index")]
    named = [field for field in there if field.partition(".")[0] in LABEL_NAMES]
    found = [field for field in whole if field in named] or whole or named
    if len(found) == 1:
        return found[0]
    what = f"which of {', '.join(found)} is the label" if found else "which field holds the label"
    raise ConfigError(f"{what}? Name it: data.label=...; the shards have {', '.join(there)}")


def _check_is_there(field: str, there: tuple[str, ...], setting: str) -> None:
    if field not in there:
        raise ConfigError(f"data.{setting}={field!r}: no sample has this field; the shards have {', '.join(there)}")
