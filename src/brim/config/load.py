"""From a YAML file and ``key=value`` overrides to a checked configuration. Only ConfigError ever comes out."""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from brim.arguments.nearest import nearest
from brim.config.named_workloads import WORKLOADS
from brim.config.own_model import OwnModelConfig
from brim.config.recommender import RecommenderConfig
from brim.config.setting_hints import data_hint, section_hint, trainer_hint
from brim.config.workload_code import WorkloadCode, names_code
from brim.engine.components.settings import check_choice, shorten
from brim.errors import ConfigError, a_type, some_of
from brim.hardware.tiers import TIERS
from brim.record.plain_yaml import MOST_CHARACTERS, read_yaml
from brim.workloads.classifier import ClassifierConfig
from brim.workloads.forecaster.config import ForecasterConfig
from brim.workloads.sections import check_trainer_section

TRIED = r"str|int|float|bool|none|(list|dict|tuple)\[.*"  # members of a union, as pydantic names them
_PARAMETERS = "parameters of the workload stand under params:"
DEEPEST = 10  # levels of a dotted name
MOST_NAMES = 12  # of settings in one sentence
RunConfig = RecommenderConfig | ForecasterConfig | ClassifierConfig | OwnModelConfig


def load_config(path: str | Path | None = None, overrides: Sequence[str] = ()) -> RunConfig:
    """Read ``path`` (or start from the defaults), apply ``overrides`` such as ``trainer.lr=0.01``, and check it all.

    A file that says nothing is refused: it was not saved, or another one is meant. This runs nothing: code that
    ``workload`` names is imported by :func:`brim.config.workload.open_workload`.
    """
    source = str(path) if path is not None else "the command line"
    values = {} if path is None else parse_yaml(_read(Path(path)), source)
    if path is not None and not values:
        raise ConfigError(
            f"{source} holds no settings, so there is nothing to train by; write some, such as 'workload: forecaster' "
            "(brim init makes an example), or leave it out to train the recommender on embedded data"
        )
    for override in overrides:
        values = apply_override(values, override)
    return check_config(values, source)


def _read(path: Path) -> str:
    if path.suffix == ".py":
        raise ConfigError(f"{path} is no configuration; {_meant_by(path)}")
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MOST_CHARACTERS + 1)  # enough to know that it is too long
    except FileNotFoundError as error:
        raise ConfigError(f"there is no configuration file {path}; {_meant_by(path)}") from error
    except UnicodeError as error:
        raise ConfigError(f"cannot read the configuration {path}: it is not UTF-8 text") from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file system takes
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read the configuration {path}: {reason}") from error


def _meant_by(path: Path) -> str:
    """What to write instead of the name of a file that is not there: another file's, or code as a setting."""
    if names_code(str(path)):
        return f"code is a setting: workload={path}, here or in a YAML file"
    workload = nearest(str(path), WORKLOADS)
    if workload is not None and not path.suffix:
        return f"a workload is a setting: workload={workload}"
    if any(str(path) in setting_names(one.config) for one in WORKLOADS.values()):
        return f"a setting has a value: {path}=VALUE"
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    near = nearest(path.name, [one.name for one in beside if one.suffix in (".yaml", ".yml")])
    if near is not None:
        return f"did you mean {path.parent / near}?"
    return "name one, or leave it out to train on embedded data"


def parse_yaml(text: str, source: str) -> dict[str, Any]:
    """The mapping a YAML text holds."""
    values = read_yaml(text, source)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{source} must hold settings such as 'trainer: {{epochs: 3}}', not {a_type(values)}")
    odd = next((key for key in values if not isinstance(key, str)), None)
    if odd is not None or None in values:
        raise ConfigError(f"{source}: the key {odd!r} is not a name; settings have names such as trainer")
    return values


def apply_override(values: dict[str, Any], override: str) -> dict[str, Any]:
    """``values`` with ``a.b=value`` put in; the value is read as YAML."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    shown = shorten(override)
    if not equals or not all(keys):
        raise ConfigError(f"{shown} is not an override; write it as trainer.epochs=3")
    if len(keys) > DEEPEST:
        raise ConfigError(f"the override {shown} names a setting {len(keys)} levels deep; no setting is that deep")
    parsed = parse_yaml(f"value: {text}", f"the override {shown}")
    if set(parsed) != {"value"}:
        raise ConfigError(f"the override {shown} sets more than one thing; write an override for each")
    changed = copy.deepcopy(values)
    section = changed
    for key in keys[:-1]:
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            raise ConfigError(f"{shown} cannot be applied: {key} is not a section")
    section[keys[-1]] = parsed["value"]
    return changed


def check_config(values: dict[str, Any], source: str) -> RunConfig:
    """The typed configuration, or the first thing that is wrong with it."""
    kind, trainer_defaults = _kind_of(values.get("workload", "recommender"), source)
    if isinstance(values.get("trainer"), dict):
        values = {**values, "trainer": {**trainer_defaults, **values["trainer"]}}
    if kind is RecommenderConfig:
        values = with_tier(values)
    try:
        config = kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error.errors()[0], kind, source)) from error
    except RecursionError as error:
        raise ConfigError(f"{source} is nested too deeply") from error
    try:
        check_trainer_section(config.trainer)
    except ConfigError as error:
        raise type(error)(f"{source}: trainer.{error}") from error
    return config


def _kind_of(workload: Any, source: str) -> tuple[type[RunConfig], Mapping[str, Any]]:
    """What the configuration of a workload holds: of one of brim's own, by its name, or of the user's code."""
    if not names_code(workload):
        try:
            check_choice("workload", workload, WORKLOADS)
        except ConfigError as error:
            raise ConfigError(f"{error} (a function of yours is written train.py:build)") from None
        return WORKLOADS[workload].config, WORKLOADS[workload].trainer_defaults
    try:
        WorkloadCode.parse(workload)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    return OwnModelConfig, {}


def with_tier(values: dict[str, Any]) -> dict[str, Any]:
    """The recommender's batch and cache as ``trainer.tier`` has them, where they are not set; else they must agree."""
    name = values["trainer"].get("tier") if isinstance(values.get("trainer"), dict) else None
    if not isinstance(name, str) or name not in TIERS:
        return values  # none, or refused with the other settings of the trainer
    changed, tier = dict(values), TIERS[name]
    for place, setting, value in (("train_ds", "batch_size", tier.batch_size), ("model", "use_cache", tier.use_cache)):
        section = changed.get(place, {})
        if isinstance(section, dict):
            changed[place] = {setting: value, **section}
            if changed[place][setting] != value:
                raise ConfigError(
                    f"{place}.{setting}={shorten(changed[place][setting])} contradicts trainer.tier={name!r}, which is "
                    f"{setting}={value}; leave one of them out"
                )
    return changed


def _explain(error: ErrorDetails, kind: type[BaseModel], source: str) -> str:
    place = _place(error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{source}: {_what_there_is(place, kind)}"
    if error["type"] in ("model_type", "model_attributes_type"):
        return f"{source}: {place}={shorten(error['input'])} cannot be used: it is a section, as in '{place}: {{...}}'"
    reason = error["msg"].removeprefix("Value error, ")
    is_of_another_type = error["type"].endswith("_type")
    if isinstance(error["input"], dict) and not is_of_another_type:  # settings that contradict each other
        return f"{source}: {place}{': ' if place else ''}{reason}"
    return f"{source}: {place}={shorten(error['input'])} cannot be used: {reason[0].lower()}{reason[1:]}"


def _place(path: tuple[int | str, ...]) -> str:
    """The dotted name of a setting, without the types that pydantic tried for it: ``trainer.metrics.str``."""
    parts = [str(part) for part in path]
    while len(parts) > 1 and re.fullmatch(TRIED, parts[-1]):
        parts.pop()
    return ".".join(parts)


def _what_there_is(place: str, kind: type[BaseModel]) -> str:
    """What to write instead of a setting that there is not."""
    section, _, name = place.rpartition(".")
    near = nearest_setting(place, kind)
    if near == place:  # a dotted name as one key
        return f"write {shorten(place)} as '{section}: {{{name}: ...}}'"
    is_elsewhere = near is not None and near.rpartition(".")[2] == name
    if kind is OwnModelConfig and place.partition(".")[0] not in kind.model_fields:
        meant = near if is_elsewhere or near in kind.model_fields else section_hint(place)
        return f"there is no section {shorten(place)}; " + (f"did you mean {meant!r}?" if meant else _PARAMETERS)
    hint = None if is_elsewhere else trainer_hint(place, is_own=kind is OwnModelConfig) or data_hint(place, kind)
    if hint is None and near is None:
        names = [
            name.removeprefix(f"{section}.") for name in setting_names(kind) if section and name.startswith(section)
        ]
        has = f"{section if names else 'a configuration'} has {some_of(names or kind.model_fields, MOST_NAMES)}"
        hint = f"{has}; brim train --show-config shows all of them"
    return f"there is no setting {shorten(place)}; {hint or f'did you mean {near!r}?'}"


def nearest_setting(place: str, kind: type[BaseModel]) -> str | None:
    """The known name that looks most like ``place``: in its section, if there is one; an exact last part wins."""
    known = list(setting_names(kind))
    section, _, last = place.rpartition(".")
    exact = [name for name in known if name.rpartition(".")[2] == last]
    if exact:
        return place if place in known else min(exact, key=lambda name: not name.startswith("trainer."))
    beside = {name.rpartition(".")[2]: name for name in known if section and name.rpartition(".")[0] == section}
    near = nearest(last, beside)
    return beside[near] if near is not None else None if beside else nearest(place, [*kind.model_fields, *known])


def setting_names(kind: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every setting of a configuration as a dotted name."""
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from setting_names(inner, f"{prefix}{name}.")
        else:
            yield prefix + name
