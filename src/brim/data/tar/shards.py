"""Samples in tar files, as webdataset lays them out, reached one by one: a plain data set with a length."""

import copy
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from brim.data.tar.fields import Decoder, decoder_of
from brim.data.tar.files import OpenFiles, find_files
from brim.data.tar.index import Array, IndexedShard, SampleTable, decode_key, join
from brim.data.tar.opening import OpenedShard, open_shards
from brim.data.tar.order import BUFFER, epoch_order
from brim.errors import ConfigError, DataError

Sample = dict[str, Any]


class SamplePlace(NamedTuple):
    """Where one sample lies."""

    file: int
    offset: int
    size: int
    crc32: int
    first_member: int
    end_member: int
    first_key: int
    end_key: int


class DamagedSample(DataError):
    """A sample that is not what was written, or cannot be decoded; a ``transform`` may raise it as well."""


class Shards(Dataset[Any]):
    """The samples of tar shards: a sample is a dict from field to value, with its name under ``"__key__"``.

    Every reading checks the sample's sum.

    Args:
        source: a folder, a pattern (``train-{000000..000009}.tar``, ``train-*.tar``), or a list.
        fields: which are read; by default all.
        decode: whether bytes become values by the field's extension; or functions of a field's bytes (a memoryview) by
            its name, for fields that are not to be decoded by their extension.
        allow_pickle: whether pickled fields are decoded, which runs code.
        on_damage: ``"skip"`` leaves out what a cut file lacks, and samples whose sum is wrong, that cannot be decoded
            or that lack one of ``fields``, with one warning per file; ``"error"`` raises.
        transform: called with each sample; for one that is not to be used it may raise ``brim.data.DamagedSample``.
        may_lack: whether a sample may lack one of ``fields``, which is no damage then.

    Raises:
        DataError: for what is missing or damaged.

    >>> from brim.data.tar.packing import pack
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = pack([{"txt": "a", "cls": 0}, {"txt": "b", "cls": 1}], folder)
    ...     Shards(folder)[1]
    {'__key__': '000000001', 'txt': 'b', 'cls': 1}
    """

    def __init__(
        self,
        source: str | Path | Iterable[str | Path],
        *,
        fields: Iterable[str] | None = None,
        decode: bool | Mapping[str, Decoder] = True,
        allow_pickle: bool = False,
        on_damage: Literal["error", "skip"] = "error",
        transform: Callable[[Sample], Any] | None = None,
        may_lack: bool = False,
    ) -> None:
        if on_damage not in ("error", "skip"):
            raise ConfigError(f"on_damage={on_damage!r} is not known; use 'error' or 'skip'")
        self.on_damage = on_damage
        self.transform = transform
        paths = find_files(source)
        is_folder = isinstance(source, str | Path) and Path(source).expanduser().is_dir()
        opened = open_shards(paths, is_folder, self._damaged)
        shards = [one.shard for one in opened]
        if not any(len(shard.table) for shard in shards):
            raise DataError(f"no sample is found in {paths[0]}{' and what follows it' if len(paths) > 1 else ''}")
        self.counts = [len(shard.table) for shard in shards]
        self.classes = _classes(opened)
        self.fields = tuple(dict.fromkeys(name for shard in shards for name in shard.fields))
        self._files = OpenFiles([path.absolute() for path in paths])
        self._warned: set[int] = set()
        self._table = join([_with_numbers(shard, self.fields) for shard in shards])
        self._keys = self._table.keys.tobytes()
        self._file_ends = np.cumsum(self.counts)
        self._member_ends, self._key_ends = self._table.members.cumsum(), self._table.key_size.cumsum()
        self._required, self._decoders = self._reading(fields, decode, allow_pickle, may_lack)

    def with_fields(
        self,
        fields: Iterable[str] | None = None,
        *,
        decode: bool | Mapping[str, Decoder] = True,
        allow_pickle: bool = False,
        transform: Callable[[Sample], Any] | None = None,
        may_lack: bool = False,
    ) -> "Shards":
        """The same shards read otherwise, without being opened again; the arguments are those of the class."""
        other = copy.copy(self)
        other.transform, other._warned = transform, set()
        other._required, other._decoders = self._reading(fields, decode, allow_pickle, may_lack)
        return other

    def _reading(
        self, fields: Iterable[str] | None, decode: bool | Mapping[str, Decoder], allow_pickle: bool, may_lack: bool
    ) -> tuple[frozenset[str], list[Decoder | None]]:
        """The fields that each sample must have, and the decoder of each field that is read."""
        wanted = _wanted(self.fields, fields)
        own = _own_decoders(self.fields, decode)
        decoders = [
            _decoder(name, own, decode is not False, allow_pickle) if name in wanted else None for name in self.fields
        ]
        return wanted if fields is not None and not may_lack else frozenset(), decoders

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, sample: int) -> Any:
        place = next(self._places(np.array([sample])))
        return self._value(place, self._content(place))

    def __getitems__(self, samples: list[int]) -> list[Any]:
        """Several samples, read in the order of the files, and decoded and transformed in the order asked for.

        A transform that draws at random draws as it would sample by sample. With ``on_damage="skip"`` the list lacks
        those that are damaged; where all are, that is an error.
        """
        numbers = np.asarray(samples, dtype=np.int64)
        in_file_order = np.argsort(numbers, kind="stable")
        read: dict[int, tuple[SamplePlace, bytearray]] = {}
        for position, place in zip(in_file_order.tolist(), self._places(numbers[in_file_order]), strict=True):
            try:
                read[position] = place, self._content(place)
            except DamagedSample as damage:
                self._leave_out(place, damage)
        found = []
        for place, content in (read[position] for position in sorted(read)):
            try:
                found.append(self._value(place, content))
            except DamagedSample as damage:
                self._leave_out(place, damage)
        if len(numbers) and not found:
            raise DataError("every sample of a batch is damaged; use larger batches, or fetch the shards again")
        return found

    def epoch_order(self, seed: int, epoch: int, buffer: int = BUFFER) -> Tensor:
        """All sample numbers, shuffled as :func:`brim.data.tar.order.epoch_order` does it."""
        return epoch_order(self.counts, seed, epoch, buffer)

    def key(self, sample: int) -> str:
        """The name of a sample, without reading it."""
        return self._key(next(self._places(np.array([sample]))))

    def _places(self, samples: Array) -> Iterator[SamplePlace]:
        count = len(self)
        beyond = samples[(samples < -count) | (samples >= count)]
        if len(beyond):
            raise IndexError(f"there are {count:,} samples, and number {beyond[0]} was asked for")
        samples = np.where(samples < 0, samples + count, samples)
        table = self._table
        columns = (
            np.searchsorted(self._file_ends, samples, side="right"),
            *(column[samples] for column in (table.offset, table.size, table.crc32)),
            self._member_ends[samples] - table.members[samples],
            self._member_ends[samples],
            self._key_ends[samples] - table.key_size[samples],
            self._key_ends[samples],
        )
        return map(SamplePlace._make, zip(*(column.tolist() for column in columns), strict=True))

    def _content(self, place: SamplePlace) -> bytearray:
        try:
            content = self._files.read(place.file, place.offset, place.size)
        except OSError as error:
            raise DamagedSample(f"{self._where(place)} cannot be read: {error.strerror}") from error
        if zlib.crc32(content) != place.crc32:
            what = "does not have the sum it was written with" if len(content) == place.size else "is cut off"
            raise DamagedSample(f"{self._where(place)} {what}; fetch the file again, or set on_damage='skip'")
        return content

    def column(self, field: str) -> Iterator[Any]:
        """The decoded values of one field, sample after sample, None for those that lack it.

        With ``on_damage="skip"`` it is None as well where it cannot be read; reading the sample warns of that.

        Only this field is read, so its bytes are not checked by the sum, which is that of the whole sample.
        """
        number = self.fields.index(field)
        decoder = self._decoders[number] or decoder_of(field)
        members = np.flatnonzero(self._table.field == number)
        member_of = dict(zip(np.searchsorted(self._member_ends, members, side="right").tolist(), members, strict=True))
        for sample, place in enumerate(self._places(np.arange(len(self)))):
            member = member_of.get(sample)
            yield None if member is None else self._member_or_none(place, int(member), field, decoder)

    def _member_or_none(self, place: SamplePlace, member: int, field: str, decoder: Decoder) -> Any:
        try:
            return self._member(place, member, field, decoder)
        except DamagedSample:
            if self.on_damage == "skip":
                return None
            raise

    def _member(self, place: SamplePlace, member: int, field: str, decoder: Decoder) -> Any:
        start, length = int(self._table.start[member]), int(self._table.length[member])
        try:
            content = self._files.read(place.file, place.offset + start, length)
        except OSError as error:
            raise DamagedSample(f"{self._where(place)} cannot be read: {error.strerror}") from error
        return self._decoded_field(place, field, decoder, memoryview(content))

    def _value(self, place: SamplePlace, content: bytearray) -> Any:
        sample = self._decoded(place, memoryview(content))
        if self.transform is None:
            return sample
        try:
            return self.transform(sample)
        except DamagedSample as damage:
            raise DamagedSample(f"{self._where(place)} {damage}") from damage

    def _decoded(self, place: SamplePlace, content: memoryview) -> Sample:
        sample: Sample = {"__key__": self._key(place)}
        table, members = self._table, slice(place.first_member, place.end_member)
        starts, lengths = table.start[members].tolist(), table.length[members].tolist()
        for start, length, field in zip(starts, lengths, table.field[members].tolist(), strict=True):
            decoder = self._decoders[field]
            if decoder is None:
                continue
            name = self.fields[field]
            sample[name] = self._decoded_field(place, name, decoder, content[start : start + length])
        if len(sample) <= len(self._required):
            lacking = ", ".join(sorted(self._required - set(sample)))
            raise DamagedSample(
                f"{self._where(place)} lacks the field {lacking}; leave it out of fields=, or set on_damage='skip'"
            )
        return sample

    def _decoded_field(self, place: SamplePlace, name: str, decoder: Decoder, content: memoryview) -> Any:
        try:
            return decoder(content)
        except DataError:
            raise
        except Exception as error:  # a decoder of somebody else's on bytes of anybody's
            what = f"{type(error).__name__}: {error}".strip(": ")
            raise DamagedSample(
                f"the field {name!r} of {self._where(place)} cannot be decoded: {what}; pack it again, or set "
                "on_damage='skip'"
            ) from error

    def _key(self, place: SamplePlace) -> str:
        return decode_key(self._keys[place.first_key : place.end_key])

    def _where(self, place: SamplePlace) -> str:
        return f"the sample {self._key(place)!r} in {self._files.paths[place.file]}"

    def _damaged(self, sentence: str) -> None:
        if self.on_damage == "error":
            raise DataError(f"{sentence}; fetch it again, or set on_damage='skip' to go on without what is missing")
        warnings.warn(f"{sentence}; going on without what is missing", stacklevel=2)

    def _leave_out(self, place: SamplePlace, damage: DamagedSample) -> None:
        if self.on_damage == "error":
            raise damage
        if place.file not in self._warned:
            self._warned.add(place.file)
            warnings.warn(f"left out: {damage} (said once per file)", stacklevel=3)


def _classes(opened: list[OpenedShard]) -> tuple[str, ...]:
    """The names that labels stand for; those of the first shards where others have others, which is warned about."""
    known = list(dict.fromkeys(one.classes for one in opened if one.classes))
    if len(known) > 1:
        warnings.warn(
            f"shards were packed with other classes ({', '.join(known[0][:4])}, ... and {', '.join(known[1][:4])}, "
            "...), so the same label stands for different names in them; pack them together",
            stacklevel=4,
        )
    return known[0] if known else ()


def _wanted(there: tuple[str, ...], fields: Iterable[str] | None) -> frozenset[str]:
    if fields is None:
        return frozenset(there)
    if isinstance(fields, str):
        raise ConfigError(f"fields={fields!r} must be a list of names, such as [{fields!r}]")
    wanted = tuple(name.lower() for name in fields)
    unknown = [name for name in wanted if name not in there]
    if unknown:
        raise ConfigError(f"no sample has the field {unknown[0]!r}; the shards have {', '.join(there)}")
    return frozenset(wanted)


def _own_decoders(there: tuple[str, ...], decode: bool | Mapping[str, Decoder]) -> dict[str, Decoder]:
    if isinstance(decode, bool):
        return {}
    own = {name.lower(): function for name, function in decode.items()}
    unknown = next((name for name in own if name not in there), None)
    if unknown is not None:
        raise ConfigError(f"decode={{{unknown!r}: ...}}: no sample has this field; the shards have {', '.join(there)}")
    return own


def _decoder(field: str, own: Mapping[str, Decoder], decode: bool, allow_pickle: bool) -> Decoder:
    if field in own:
        return own[field]
    return decoder_of(field, allow_pickle) if decode else bytes


def _with_numbers(shard: IndexedShard, fields: tuple[str, ...]) -> SampleTable:
    """The shard's table, whose members name their field by its position among those of all shards."""
    if shard.fields == fields[: len(shard.fields)]:
        return shard.table
    number_of = {name: number for number, name in enumerate(fields)}
    numbers = np.array([number_of[name] for name in shard.fields], np.int32)
    return replace(shard.table, field=numbers[shard.table.field])
