"""The parameters of a user's function, typed by its signature and set in a configuration."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from brim.arguments.nearest import nearest
from brim.engine.components.settings import shorten
from brim.errors import ConfigError
from brim.user_line import users_errors
from brim.workloads.sections import Section

PLAIN = (bool, int, float, str)
SETTABLE = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class _Parameters(Section):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", coerce_numbers_to_str=True)


@dataclass(frozen=True)
class Parameters:
    """All parameters of a function with their values: those that were set, and its own defaults."""

    values: dict[str, Any]  # as the function is called with them
    written: dict[str, Any]  # as a file holds them

    @classmethod
    def read(cls, named: str, function: Callable[..., Any], given: Mapping[str, Any]) -> "Parameters":
        """Check ``given`` against the signature of ``function``.

        >>> def build(hidden: int = 64, dropout=0.1): ...
        >>> Parameters.read("train.py:build", build, {"hidden": "128"}).values
        {'hidden': 128, 'dropout': 0.1}
        """
        fields = _fields(named, function)
        _check_names(named, fields, given)
        # By numbers, because a parameter may have a name that pydantic keeps for itself, such as copy or _size.
        keys = {name: f"p{place}" for place, name in enumerate(fields)}
        try:
            kind = create_model(
                "Parameters", __base__=_Parameters,
                **{keys[name]: (hint, Field(default, alias=name)) for name, (hint, default) in fields.items()},
            )  # type: ignore[call-overload]  # fmt: skip
        except PydanticUserError as error:
            raise ConfigError(f"{named} has a parameter of a type that no file holds: {error.message}") from error
        made = _validated(kind, given)
        values = {name: getattr(made, key) for name, key in keys.items()}
        return cls(values, {name: _as_written(value) for name, value in values.items()})


def _fields(named: str, function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Type and default (``...`` for none) of each parameter that can be set by its name."""
    with users_errors(f"reading the types of {named}"):
        hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        has_default = parameter.default is not inspect.Parameter.empty
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and not has_default:
            raise ConfigError(f"{named} has a parameter {name!r} without a name to set it by; remove the '/' after it")
        if parameter.kind in SETTABLE:
            fallback = type(parameter.default) if type(parameter.default) in PLAIN else Any
            fields[name] = (hints.get(name, fallback), parameter.default if has_default else ...)
    return fields


def _check_names(named: str, fields: dict[str, tuple[Any, Any]], given: Mapping[str, Any]) -> None:
    odd = next((name for name in given if name not in fields), None)
    if odd is not None:
        near = nearest(str(odd), fields, 0.0)
        hint = "it takes none" if near is None else f"did you mean {near!r}?"
        raise ConfigError(f"params: {named} has no parameter {shorten(odd)}; {hint}")
    missing = next((name for name, (_, default) in fields.items() if default is ... and name not in given), None)
    if missing is not None:
        raise ConfigError(f"{named} needs a value for {missing!r}; set params.{missing}=...")


def _validated(kind: type[BaseModel], given: Mapping[str, Any]) -> BaseModel:
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"params.{place}={shorten(first['input'])} cannot be used: {reason[0].lower()}{reason[1:]}"
        ) from error
    except RecursionError as error:
        raise ConfigError("params is nested too deeply") from error


def _as_written(value: Any) -> Any:
    """A value as YAML can hold it: plain data as it is, anything else as its text."""
    if value is None or type(value) in PLAIN:
        return value
    if isinstance(value, Mapping):
        return {str(key): _as_written(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_written(part) for part in value]
    return str(getattr(value, "value", value))  # of an Enum
