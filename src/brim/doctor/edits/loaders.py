"""DataLoaders: their arguments, or brim's loader in their place."""

import ast

from brim.doctor.edits.source import CannotEdit, Edit, Source, called, import_of, with_keyword
from brim.doctor.order import WITHOUT_WORKERS, Cures

WORKERS = 5  # the place of num_workers among a DataLoader's positional arguments
# Of a DataLoader's arguments, what brim.Loader takes under the same name, and what it does not need for columns.
KEPT = ("batch_size", "shuffle", "drop_last")
NOT_NEEDED = ("num_workers", "pin_memory", "worker_init_fn", *WITHOUT_WORKERS)


def loader_call(source: Source, line: int) -> ast.Call:
    """Where a DataLoader is made: by its name, or as the base of a class of the user's."""
    found = [call for call in source.calls(line) if called(call) == "DataLoader" or _is_base(call)]
    if len(found) != 1:
        raise CannotEdit
    return found[0]


def _is_base(call: ast.Call) -> bool:
    return called(call) == "__init__" and isinstance(call.func, ast.Attribute) and called(call.func.value) == "super"


def with_settings(source: Source, line: int, cures: Cures, pin_memory: bool = False) -> list[Edit]:
    """A DataLoader with other settings, or a trainer of transformers' that makes one."""
    arguments = [call for call in source.calls() if called(call).endswith("TrainingArguments")]
    if len(arguments) == 1 and not any(called(call) == "DataLoader" for call in source.calls(line)):
        return _joined(_of_transformers(source, arguments[0], cures, pin_memory))
    call = loader_call(source, line)
    wanted: dict[str, object] = {
        "persistent_workers": cures.persistent_workers,
        "prefetch_factor": cures.prefetch_factor,
        "pin_memory": True if pin_memory else None,
    }
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if cures.num_workers == 0:
        named = {keyword.arg for keyword in call.keywords}
        wanted |= {name: value for name, value in WITHOUT_WORKERS.items() if name in named}
    edits = [] if cures.num_workers is None else [_workers(source, call, cures.num_workers)]
    return _joined([*edits, *(with_keyword(source, call, name, repr(value)) for name, value in wanted.items())])


def _of_transformers(source: Source, call: ast.Call, cures: Cures, pin_memory: bool) -> list[Edit]:
    """The same settings by their names in ``TrainingArguments``, whose loaders have page-locked batches by default."""
    wanted: dict[str, object] = {
        "dataloader_num_workers": cures.num_workers,
        "dataloader_persistent_workers": None if cures.num_workers == 0 else cures.persistent_workers,
        "dataloader_prefetch_factor": cures.prefetch_factor,
        "dataloader_pin_memory": True if pin_memory else None,
    }
    return [with_keyword(source, call, name, repr(value)) for name, value in wanted.items() if value is not None]


def _workers(source: Source, call: ast.Call, count: int) -> Edit:
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        raise CannotEdit
    if len(call.args) > WORKERS:
        given = call.args[WORKERS]
        return Edit(source.start(given), source.end(given), str(count))
    return with_keyword(source, call, "num_workers", str(count))


def _joined(edits: list[Edit]) -> list[Edit]:
    """New arguments all go to the same place: as one edit, in their order."""
    joined: dict[tuple[int, int], str] = {}
    for edit in edits:
        joined[edit.start, edit.end] = joined.get((edit.start, edit.end), "") + edit.text
    return [Edit(*place, text) for place, text in joined.items()]


def with_brims_loader(source: Source, line: int) -> list[Edit]:
    """``brim.Loader`` in the place of a DataLoader over columns."""
    call = loader_call(source, line)
    if _is_base(call) or len(call.args) > 3 or any(isinstance(argument, ast.Starred) for argument in call.args):
        raise CannotEdit
    given = dict(zip(("dataset", "batch_size", "shuffle"), call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg not in ("dataset", *KEPT, *NOT_NEEDED):
            raise CannotEdit
        given[keyword.arg] = keyword.value
    if "dataset" not in given or _is_asked_for_more(source, call):
        raise CannotEdit
    texts = {name: source.segment(value) for name, value in given.items()}
    texts.setdefault("batch_size", "1")  # DataLoader's own defaults
    texts.setdefault("shuffle", "False")
    rest = ", ".join(f"{name}={texts[name]}" for name in KEPT if name in texts)
    made = f"brim.Loader({texts['dataset']}, {rest})"
    return [Edit(source.start(call), source.end(call), made), *import_of(source, "brim")]


def _is_asked_for_more(source: Source, call: ast.Call) -> bool:
    """Whether the script uses what only a DataLoader has, or hands its loader to a library."""
    asked = {node.attr for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)}
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported |= {
        (node.module or "").partition(".")[0] for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom)
    }
    libraries = {"lightning", "pytorch_lightning", "accelerate", "transformers", "fastai", "ignite"}
    return bool(asked & {"dataset", "sampler", "batch_sampler"}) or bool(imported & libraries)
