"""A reader of files that may come from anywhere, and one case for it: files that were changed, and what came out."""

import shutil
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from brim.errors import BrimError
from fuzzing.formats import Files


@dataclass(frozen=True)
class Reader:
    """``make`` writes valid files into a folder, ``spoil`` changes them, ``read`` reads the folder.

    ``read`` may raise a BrimError and nothing else. The generators that it gets are those of the case.
    """

    make: Callable[[Path], None]
    spoil: Callable[[Random, Files], None]
    read: Callable[[Path, Random], None]

    @cached_property
    def valid(self) -> Files:
        with TemporaryDirectory() as folder:
            self.make(Path(folder))
            found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}

    def prepare(self, case: str, folder: Path, spoiled: bool = True) -> Random:
        """Put the changed files of a case into ``folder``, which is emptied first."""
        random, files = Random(case), dict(self.valid)
        if spoiled:
            self.spoil(random, files)
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return random


@dataclass(frozen=True)
class Outcome:
    """What came of a case: ``read``, ``refused`` (a BrimError), or ``failed`` with the traceback in ``what``."""

    kind: str
    what: str = ""


def try_case(reader: Reader, case: str, folder: Path) -> Outcome:
    """One case, from its name alone."""
    random = reader.prepare(case, folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(folder, random)
    except BrimError as error:
        return Outcome("refused", str(error))
    except Exception:
        return Outcome("failed", traceback.format_exc())
    return Outcome("read")
