"""What an offline run of Weights & Biases has on disk, read back."""

import json
import struct
import time
from pathlib import Path

BLOCK, HEADER = 32768, 7  # LevelDB's log format, behind a header of W&B's own


def offline_runs(folder: Path) -> list[Path]:
    """Their files, the oldest first."""
    return sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)


def records(path: Path) -> list[object]:
    """All of a run that is finished: W&B's own process writes them, and ``finish`` does not wait for the disk."""
    found = _written(path)
    while "exit" not in [record.WhichOneof("record_type") for record in found]:
        time.sleep(0.05)
        found = _written(path)
    return found


def _written(path: Path) -> list[object]:
    from wandb.proto import wandb_internal_pb2

    data, at, parts, found = path.read_bytes(), HEADER, b"", []
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + HEADER])
        if kind == 0 or at + HEADER + length > len(data):
            break
        parts += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            found.append(record)
            parts = b""
    return found


def history(path: Path) -> list[dict[str, float]]:
    """The lines that were logged, without W&B's own numbers."""
    lines = [record.history.item for record in records(path) if record.WhichOneof("record_type") == "history"]
    named = [{(item.key or ".".join(item.nested_key)): json.loads(item.value_json) for item in line} for line in lines]
    return [{name: value for name, value in line.items() if not name.startswith("_")} for line in named]


def of_kind(path: Path, kind: str) -> list[object]:
    return [getattr(record, kind) for record in records(path) if record.WhichOneof("record_type") == kind]
