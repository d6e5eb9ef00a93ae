"""Public data, brought to a folder: fetched, checked against the published sum, and there as a whole or not at all."""

import hashlib
import io
import shlex
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from brim.errors import DataError
from brim.whole_files import folder_made

TIMEOUT_S = 30.0
CHUNK = 1 << 16
MOST_BYTES = 1 << 30  # of an archive: a server that goes on sending must not fill the memory

State = Literal["there", "downloaded"]
OnBytes = Callable[[int, int | None], None]
"""Called with the bytes that have arrived and, where the server says it, how many there will be."""


@dataclass(frozen=True)
class Source:
    """Where data comes from, under which licence, and what of its archive is needed."""

    name: str
    about: str
    url: str
    page: str
    md5: str
    licence: str
    required: tuple[str, ...]
    """The files without which the data cannot be used."""
    extra: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.extra, *self.required)


SOURCES = {
    "ml-1m": Source(
        name="ml-1m",
        about="MovieLens-1M: 1,000,209 ratings of 6,040 users on 3,706 movies.",
        url="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
        page="https://grouplens.org/datasets/movielens/1m/",
        md5="c4d9eecfca2ab87c1945afe126590906",
        licence="For research only: no redistribution and no commercial use without permission of GroupLens. "
        "Cite Harper and Konstan, The MovieLens Datasets: History and Context, ACM TiiS 5(4), 2015.",
        required=("users.dat", "movies.dat", "ratings.dat"),
        extra=("README",),
    )
}


def obtain(source: Source, folder: Path, on_bytes: OnBytes = lambda done, total: None) -> State:
    """Have the files of ``source`` in ``folder``, downloading them only where they are not there.

    Files that are in the folder are never overwritten, and after an error or Ctrl-C nothing is left behind.

    >>> obtain(SOURCES["ml-1m"], Path("data/ml-1m"))  # doctest: +SKIP
    'downloaded'
    """
    try:
        if is_there(source, folder):
            return "there"
        _refuse_to_overwrite(source, folder)
        with _aside(folder) as aside:  # before the download: a folder that cannot be written is known at once
            archive = fetch(source, on_bytes)
            check_sum(source, archive)
            for name, content in unpack(source, archive).items():
                (aside / name).write_bytes(content)
            _put_in_place(source, aside, folder)
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {_reason(error)}; name another folder with --to") from error
    return "downloaded"


def is_there(source: Source, folder: Path) -> bool:
    """Whether ``folder`` holds all that is needed."""
    return all((folder / name).is_file() for name in source.required)


def how_to_use(source: Source, folder: Path | str) -> str:
    """The command that trains on the data, as it can be pasted into a shell.

    >>> how_to_use(SOURCES["ml-1m"], "my data")
    "brim train data.name=ml-1m 'data.path=my data'"
    """
    return shlex.join(["brim", "train", f"data.name={source.name}", f"data.path={folder}"])


def fetch(source: Source, on_bytes: OnBytes) -> bytes:
    """The archive as the server sends it. In memory, as the archives are a few megabytes."""
    try:
        with urllib.request.urlopen(source.url, timeout=TIMEOUT_S) as response:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else None
            archive = bytearray()
            while chunk := response.read(CHUNK):
                archive += chunk
                on_bytes(len(archive), total)
                if len(archive) > MOST_BYTES:
                    raise ValueError(f"it does not end after {MOST_BYTES:,} bytes")
    except (OSError, HTTPException, ValueError) as error:  # ValueError: a proxy variable that is not an address
        raise _by_hand(source, _reason(error)) from error
    if total is not None and len(archive) < total:  # read(n) of http.client does not raise for it
        raise _by_hand(source, f"the connection ended after {len(archive):,} of {total:,} bytes")
    return bytes(archive)


def check_sum(source: Source, archive: bytes) -> None:
    """Refuse an archive that is not the published one.

    >>> check_sum(SOURCES["ml-1m"], b"a login page")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    brim.errors.DataError: ... has the MD5 sum ... and not c4d9eecfca2ab87c1945afe126590906...
    """
    found = hashlib.md5(archive, usedforsecurity=False).hexdigest()
    if found != source.md5:
        raise DataError(
            f"what came from {source.url} has the MD5 sum {found} and not {source.md5}, so nothing of it was kept; "
            f"try again, or download it by hand from {source.page}"
        )


def unpack(source: Source, archive: bytes) -> dict[str, bytes]:
    """The known files of the archive, by their bare names: no other member is looked at, so none can go elsewhere."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as members:
            return {name: members.read(f"{source.name}/{name}") for name in source.files}
    except Exception as error:  # zipfile raises whatever its decompressors do
        what = (str(error.args[0]) if error.args else "") or "it is damaged"
        raise DataError(f"cannot unpack {source.url}: {what}; download it by hand from {source.page}") from error


def _by_hand(source: Source, reason: str) -> DataError:
    return DataError(
        f"cannot download {source.url}: {reason}; download it by hand from {source.page}, unpack it and name its "
        f"folder: {how_to_use(source, 'FOLDER')}"
    )


def _reason(error: Exception) -> str:
    """An error in a few words, without its number: urllib wraps what the system said."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()  # it is the open response
        return f"HTTP {error.code} {error.reason}".strip()
    cause = getattr(error, "reason", None) or error
    if isinstance(cause, TimeoutError):
        return f"no answer in {TIMEOUT_S:g} s"
    words = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return " ".join(str(words).split())


def _refuse_to_overwrite(source: Source, folder: Path) -> None:
    present = [name for name in source.files if (folder / name).exists() or (folder / name).is_symlink()]
    if present:
        missing = [name for name in source.required if not (folder / name).is_file()]
        raise DataError(
            f"{folder} holds {', '.join(present)} and lacks {', '.join(missing)}, and brim overwrites nothing; "
            "move them away, or name another folder with --to"
        )


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A place inside ``folder``, so on its disk, that is gone at the end; so are the folders made for it if empty."""
    with folder_made(folder), TemporaryDirectory(prefix=".download-", dir=folder) as aside:
        yield Path(aside)


def _put_in_place(source: Source, aside: Path, folder: Path) -> None:
    try:
        for name in source.files:
            (aside / name).rename(folder / name)
    except BaseException:  # Ctrl-C too
        for name in source.files:
            if not (aside / name).exists():
                (folder / name).unlink(missing_ok=True)
        raise
