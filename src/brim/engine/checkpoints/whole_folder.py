"""A folder that is there whole or not at all, and can be told from a damaged one."""

import hashlib
import json
import shutil
from pathlib import Path

from brim.whole_files import flush

CHECKSUMS = "checksums.json"


class WholeFolder:
    """Fill a folder aside, flush it to disk with the checksums of its files, and give it its name only then.

    >>> import tempfile
    >>> home = Path(tempfile.mkdtemp())
    >>> with WholeFolder(home / "made") as aside:
    ...     _ = (aside / "a.txt").write_text("a")
    >>> damage(home / "made") is None
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.aside = path.with_name(f".{path.name}.tmp")

    def __enter__(self) -> Path:
        shutil.rmtree(self.aside, ignore_errors=True)
        self.aside.mkdir(parents=True)
        return self.aside

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            shutil.rmtree(self.aside, ignore_errors=True)
            return
        try:
            self._finish()
        except OSError:
            shutil.rmtree(self.aside, ignore_errors=True)
            raise

    def _finish(self) -> None:
        sums = {file.name: checksum(file) for file in sorted(self.aside.iterdir())}
        (self.aside / CHECKSUMS).write_text(json.dumps(sums))
        for file in self.aside.iterdir():
            flush(file)
        flush(self.aside)
        old = former(self.path)
        shutil.rmtree(old, ignore_errors=True)
        if self.path.exists():  # a rename does not replace a folder that holds something
            self.path.rename(old)
        self.aside.rename(self.path)
        flush(self.path.parent)
        shutil.rmtree(old, ignore_errors=True)


def is_checkpoint(path: object) -> bool:
    """Whether a path is that of a folder which was written whole."""
    try:
        return isinstance(path, str | Path) and (Path(path) / CHECKSUMS).is_file()
    except (OSError, ValueError):  # no permission, or no path
        return False


def former(path: Path) -> Path:
    """Where the folder that is being replaced lies for a moment: whoever finds nothing at ``path`` finds it here."""
    return path.with_name(f".{path.name}.old")


def damage(path: Path) -> str | None:
    """What is wrong with a folder that was written whole; None where nothing is, or where nobody can tell."""
    try:
        sums = json.loads((path / CHECKSUMS).read_text())
        for name, expected in sums.items():
            file = path / Path(name).name  # a name cannot lead out of the folder
            if not file.is_file():
                return f"{file.name} is missing"
            if checksum(file) != expected:
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        missing = Path(error.filename).name if error.filename else "a file"
        return None if missing == CHECKSUMS else f"{missing} is missing"
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        return f"its checksums cannot be read: {error}"
    return None


def checksum(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
