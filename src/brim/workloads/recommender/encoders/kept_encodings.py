"""Encodings on disk: what an encoder made of texts, made once for all runs and ranks on a machine.

An entry is found by a hash of the encoder's weights, of how it is used and of the texts' tokens, so that it can never
be another encoder's. One process builds it, the others wait; what a killed one leaves is removed by the next, and an
entry is there as a whole or not at all.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from brim.data.cache.folder import CacheFolder, discard, lock_in_use, remove_left_overs_of
from brim.engine.state.fingerprint import contents
from brim.errors import DataError
from brim.hardware.host import cache_folder
from brim.sizes import show_bytes
from brim.whole_files import flush
from brim.workloads.recommender.encoders.loading import TINY
from brim.workloads.recommender.encoders.pooling import AUTO

FORMAT = 1
MAX_SIZE = 20 << 30
FILE, NAME, SUM = "encodings.safetensors", "encodings", "sum"


def encodings_folder(wanted: str | Path | None, gpt2: str) -> Path | None:
    """Where encodings of the encoder ``gpt2`` are kept on disk; None for nowhere.

    The tiny encoder makes them faster than they can be found there.

    >>> encodings_folder("auto", "tiny") is None
    True
    """
    if wanted is None or (wanted == AUTO and gpt2 == TINY):
        return None
    return cache_folder() / "encodings" if wanted == AUTO else Path(wanted)


def encodings_key(model: nn.Module, how: str, ids: Tensor, lengths: Tensor) -> str:
    """The name of an entry. ``how``: what decides encodings beside the weights and the tokens."""
    tensors = {f"weight {name}": tensor for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    sums = contents({**tensors, "ids": ids, "lengths": lengths})
    told = [f"format {FORMAT}", how, *(f"{name}: {sums[name]}" for name in sorted(sums))]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]


class KeptEncodings:
    """Those in ``folder``.

    Args:
        folder: shared by runs and ranks; the entries used longest ago go first when it has 20 GiB.
        say: takes sentences: who builds, who waits, and why something could not be kept.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self.say = folder.absolute(), say
        self._shelf = CacheFolder(self.folder, MAX_SIZE)

    def get(self, key: str, shape: tuple[int, int], build: Callable[[], Tensor]) -> Tensor:
        """The encodings of an entry, on the CPU or where ``build`` made them; a cache that fails does not end a run."""
        entry = self._shelf.entry(key)
        try:
            found = _read(entry, shape)
            if found is not None:
                return found
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._shelf.building(entry, self.say):
                return self._read_or_build(entry, shape, build)
        except OSError as error:
            self.say(
                f"encodings are not kept on disk, in {self.folder}: {error.strerror or error}; they are made anew in "
                "each run"
            )
            return build()

    def _read_or_build(self, entry: Path, shape: tuple[int, int], build: Callable[[], Tensor]) -> Tensor:
        """For the one who holds the building lock: another may have built it while we waited."""
        found = _read(entry, shape)
        if found is not None:
            return found
        discard(entry)  # a damaged one
        remove_left_overs_of(entry)
        made = build()
        size = made.numel() * made.element_size()
        try:
            with self._shelf.half(entry) as half:
                self._shelf.make_room(size, half)
                _write(half / FILE, made.detach().cpu().contiguous())
        except (OSError, DataError, SafetensorError) as error:
            self.say(f"encodings of {show_bytes(size)} are not kept on disk: {error}; they are made anew in each run")
        return made


def _write(file: Path, encodings: Tensor) -> None:
    """With the sum of its bytes, and on the disk when this returns: after it the file gets its name."""
    tensors = {NAME: encodings}
    save_file(tensors, file, metadata={SUM: contents(tensors)[NAME]})
    flush(file)


def _read(entry: Path, shape: tuple[int, int]) -> Tensor | None:
    """The encodings of an entry, or None where it is not there or is damaged."""
    lock = lock_in_use(entry)
    if lock is None:
        return None
    try:
        with safe_open(entry / FILE, framework="pt") as file:
            found: Tensor = file.get_tensor(NAME)
            told = (file.metadata() or {}).get(SUM)
    except (OSError, SafetensorError):
        return None
    finally:
        lock.close()
    is_whole = tuple(found.shape) == shape and contents({NAME: found})[NAME] == told
    return found if is_whole else None
