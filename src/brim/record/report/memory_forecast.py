"""The forecast that a run was planned by, and the plan: from plan.json, or from what the run said when it began."""

from typing import Any

from brim.record.run_record import RunRecord
from brim.record.series import as_number

SIZES = ("reserved", "allocated", "device", "limit", "captured")
SETTINGS = ("batch_size", "micro_batch", "slices", "largest_micro_batch", "gpus", "strategy", "checkpointing", "cache")
MOST = 60  # parts or reasons that are shown: a forecast has eight


def memory_forecast(run: RunRecord) -> dict[str, Any] | None:
    """Bytes by name and by part; None where nothing was forecast."""
    told = run.plan.get("forecast") or _last_told(run, "forecast")
    if not isinstance(told, dict):
        return None
    sizes = {name: size for name in SIZES if (size := as_number(told.get(name))) is not None}
    parts = told.get("parts")
    known = {str(name): as_number(size) for name, size in parts.items()} if isinstance(parts, dict) else {}
    largest = sorted(((size, name) for name, size in known.items() if size), reverse=True)[:MOST]
    if "reserved" not in sizes:
        return None
    return {
        **sizes,
        "parts": {name: size for size, name in largest},
        "card": str(told.get("card") or ""),
        "peak_in": str(told.get("peak_in") or ""),
        "notes": _texts(told.get("notes")),
        "run_parts": _run_parts(run),
    }


def _run_parts(run: RunRecord) -> dict[str, float]:
    """What the run's own peak added up from, which it says at its end."""
    told = _last_told(run, "reserved_parts")
    known = {str(name): as_number(size) for name, size in told.items()} if isinstance(told, dict) else {}
    return {name: size for name, size in list(known.items())[:MOST] if size}


def plan_of(run: RunRecord) -> dict[str, Any] | None:
    """The settings that were chosen, the reason of each and what is left to the user; None without a plan."""
    told = run.plan or _last_told(run, "plan")
    if not isinstance(told, dict) or not told:
        return None
    chosen = {name: told[name] for name in SETTINGS if isinstance(told.get(name), str | int | float)}
    if told.get("larger_may_fit") is True and "largest_micro_batch" in chosen:
        chosen["largest_micro_batch"] = f"{chosen['largest_micro_batch']} or more"
    reasons, advice = _texts(told.get("reasons")), _texts(told.get("advice"))
    if not (chosen or reasons or advice):
        return None
    return {"settings": {name: str(value) for name, value in chosen.items()}, "reasons": reasons, "advice": advice}


def _last_told(run: RunRecord, name: str) -> Any:
    """A fact of the newest event that has it: a run that goes on, or failed, has not written its plan yet."""
    return next((event[name] for event in reversed(run.events) if name in event), None)


def _texts(value: Any) -> list[str]:
    return [str(text) for text in value[:MOST]] if isinstance(value, list) else []
