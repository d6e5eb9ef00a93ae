"""Settings of the trainer that a file does not have: arguments that are code, and other trainers' names."""

from pydantic import BaseModel

from brim.arguments.other_trainers import VALUES, advice_on, name_here
from brim.workloads.sections import IN_CODE, TrainerSection

SECTION = "trainer."
DATA = {"train_data": "train_ds", "data": "train_ds", "eval_data": "valid_ds", "test_data": "test_ds"}
PLACES = ("path", "folder", "dir", "root", "file", "files", "csv", "shards", "train")  # where data is, by any name


def trainer_hint(place: str, is_own: bool) -> str | None:
    """What to write instead of a setting ``trainer.NAME``; None where only its spelling may tell.

    ``is_own``: whether the configuration names code of the user's.

    >>> trainer_hint("trainer.max_epochs", is_own=True)
    "did you mean 'trainer.epochs'?"
    """
    name = place.removeprefix(SECTION)
    if not place.startswith(SECTION) or "." in name:
        return None
    code = name if name in IN_CODE else name_here(name, IN_CODE)
    if code is not None:
        if is_own:
            return f"{code} is code: let the function that workload: names return it, {{..., {code!r}: ...}}"
        return f"{code} is the workload's own; to hand over yours name a function that returns it, workload: a.py:f"
    if (here := name_here(name, TrainerSection.model_fields)) is not None:
        return f"it is trainer.{VALUES[name]}" if name in VALUES else f"did you mean 'trainer.{here}'?"
    return advice_on(name)


def section_hint(name: str) -> str | None:
    """The section or the setting of the trainer that another name at the top of a file means.

    >>> section_hint("train_dataloader"), section_hint("optimiser"), section_hint("hidden")
    ('train_ds', 'trainer.optimizer', None)
    """
    data = name if name in DATA and name != "data" else name_here(name, DATA)
    if data is not None:
        return DATA[data]
    setting = name_here(name, TrainerSection.model_fields)
    return None if setting is None else f"{SECTION}{setting}"


def data_hint(place: str, kind: type[BaseModel]) -> str | None:
    """The setting that says where the data of a workload is, for other words for it."""
    section, _, name = place.partition(".")
    if section != "data" or name not in PLACES:
        return None
    known = getattr(kind.model_fields["data"].annotation, "model_fields", ()) if "data" in kind.model_fields else ()
    return next((f"did you mean 'data.{one}'?" for one in ("train", "path") if one in known), None)
