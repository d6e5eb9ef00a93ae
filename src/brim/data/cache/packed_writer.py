"""Writing packed samples into files: one of raw bytes for each leaf, offsets and shapes where these vary, a header."""

import json
import os
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brim.data.cache.packed_sample import PackedSample, layout_leaves
from brim.errors import DataError

FORMAT = 1
HEADER = "header.json"
MOST_LAYOUTS = 256
MOST_LEAVES = 4096
PENDING_BYTES = 16 << 20


def data_file(layout: int, leaf: int, part: str) -> str:
    return f"{layout}-{leaf}.{part}"


class PackedWriter:
    """Appends packed samples to files in ``folder``, which are complete after :meth:`finish`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes = 0
        self._layouts: dict[str, _LayoutWriter] = {}
        self._which = array("i")
        self._pending = 0

    def add(self, sample: PackedSample) -> None:
        layout = self._layouts.get(sample.layout) or self._new_layout(sample.layout)
        self._which.append(layout.number)
        layout.add(sample)
        self.bytes += sample.bytes
        self._pending += sample.bytes
        if self._pending >= PENDING_BYTES:
            self._flush()

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write what is missing, the header with ``facts`` last, and wait until the disk has it."""
        self._flush()
        layouts = list(self._layouts.values())
        for layout in layouts:
            layout.write_offsets(self.folder)
        if len(layouts) > 1:
            which = np.array(self._which, dtype=np.int32)
            rows = np.empty(len(which), dtype=np.int64)
            for layout in layouts:
                rows[which == layout.number] = np.arange(layout.rows)
            (self.folder / "layouts").write_bytes(which.tobytes())
            (self.folder / "rows").write_bytes(rows.tobytes())
        header = {"format": FORMAT, "samples": len(self._which), "layouts": [layout.header() for layout in layouts]}
        (self.folder / HEADER).write_text(json.dumps({**header, **facts}), encoding="utf-8")
        for file in self.folder.iterdir():
            with file.open("rb+") as open_file:
                os.fsync(open_file.fileno())

    def _new_layout(self, key: str) -> "_LayoutWriter":
        layout = self._layouts[key] = _LayoutWriter(len(self._layouts), key)
        leaves = sum(len(known.leaves) for known in self._layouts.values())
        if len(self._layouts) > MOST_LAYOUTS or leaves > MOST_LEAVES:
            raise DataError(
                f"the samples up to number {len(self._which)} have {len(self._layouts)} different structures with "
                f"{leaves:,} leaves, too many for the cache; return tensors instead of containers of varying length"
            )
        return layout

    def _flush(self) -> None:
        for layout in self._layouts.values():
            layout.flush(self.folder)
        self._pending = 0


class _LayoutWriter:
    """The samples of one layout."""

    def __init__(self, number: int, key: str) -> None:
        self.number = number
        self.tree = json.loads(key)
        self.leaves = layout_leaves(self.tree)
        self.rows = 0
        self._pending: list[list[bytes]] = [[] for _ in self.leaves]
        self._first: list[tuple[int, ...]] = []
        self._shapes: list[array[int] | None] = [None for _ in self.leaves]  # once they differ

    def add(self, sample: PackedSample) -> None:
        self._first = self._first or sample.shapes
        for leaf, (value, shape) in enumerate(zip(sample.values, sample.shapes, strict=True)):
            self._pending[leaf].append(value)
            shapes = self._shapes[leaf]
            if shapes is None and shape != self._first[leaf]:
                shapes = self._shapes[leaf] = array("q", self._first[leaf] * self.rows)
            if shapes is not None:
                shapes.extend(shape)
        self.rows += 1

    def flush(self, folder: Path) -> None:
        for leaf, values in enumerate(self._pending):
            with (folder / data_file(self.number, leaf, "data")).open("ab") as file:
                file.writelines(values)
            values.clear()

    def write_offsets(self, folder: Path) -> None:
        for leaf, shapes in enumerate(self._shapes):
            if shapes is None:
                continue
            table = np.array(shapes, dtype=np.int64).reshape(self.rows, self.leaves[leaf].dims)
            offsets = np.concatenate([np.zeros(1, dtype=np.int64), table.prod(axis=1).cumsum()])
            (folder / data_file(self.number, leaf, "offsets")).write_bytes(offsets.tobytes())
            (folder / data_file(self.number, leaf, "shapes")).write_bytes(table.tobytes())

    def header(self) -> dict[str, Any]:
        shapes = [
            {"shape": list(first)} if varying is None else {"shape": None, "length": _length(varying, leaf.dims)}
            for first, varying, leaf in zip(self._first, self._shapes, self.leaves, strict=True)
        ]
        return {"tree": self.tree, "rows": self.rows, "leaves": shapes}


def _length(shapes: "array[int]", dims: int) -> int:
    return int(np.array(shapes, dtype=np.int64).reshape(-1, dims).prod(axis=1).sum())
