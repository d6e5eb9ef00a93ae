"""Drawings that a workload leaves in a run folder, for the page of the run."""

import base64
from dataclasses import dataclass
from pathlib import Path

PICTURES = "pictures"
MOST, MOST_BYTES = 8, 1 << 20  # pictures on a page, and bytes of one


@dataclass(frozen=True)
class Picture:
    """An SVG drawing by the name of its file. A page shows it as an image: nothing in it runs or is fetched."""

    name: str
    svg: bytes

    @property
    def address(self) -> str:
        """The drawing itself, as the address of an image."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode()}"


def pictures_in(run: str | Path) -> tuple[Picture, ...]:
    """Those in a run folder, the first few by their names; one that is too large for a page is left out.

    >>> pictures_in("nowhere")
    ()
    """
    found: list[Picture] = []
    if not str(run):  # a record that was not read from a folder
        return ()
    try:
        files = sorted(path for path in (Path(run) / PICTURES).glob("*.svg") if path.is_file())
        for path in files[:MOST]:
            if path.stat().st_size <= MOST_BYTES:
                found.append(Picture(path.stem, path.read_bytes()))
    except OSError:  # gone meanwhile
        return tuple(found)
    return tuple(found)
