"""What the order of samples depends on, so that a position in it is never taken in another one."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from torch.utils.data import DataLoader

from brim.data import Feed, Loader
from brim.data.feed import ReadyBatches
from brim.data.randomness.order import batch_bounds
from brim.sizes import known_length

SAMPLES, STREAM, BATCHES = "samples", "stream", "batches"
PLAIN = (str, int, bool, type(None))


@dataclass(frozen=True)
class SampleOrder:
    """Of one epoch. The number of ranks is not in it: the order does not depend on them.

    ``kind``: samples that brim orders, a stream, or batches of the user's own making, in an order of the user's.
    """

    seed: int
    kind: str
    samples: int | None = None
    shuffle: bool | None = None
    batch_size: int | None = None
    drop_last: bool | None = None
    accumulation: int = 1
    by: str | None = None  # the sampler, or the data set where it has an order of its own
    batches: int | None = None  # of an epoch, where they are the user's
    limit: int | None = None  # of batches in an epoch, where the user gives one

    @classmethod
    def of(cls, feed: Feed, seed: int, accumulation: int, limit: int | None = None) -> "SampleOrder":
        """The order of ``feed`` now: a data set may have grown since the last epoch."""
        if isinstance(feed, Loader):
            is_stream = feed.samples is None
            own = type(feed.data).__name__ if hasattr(feed.data, "epoch_order") else None
            return cls(
                seed, STREAM if is_stream else SAMPLES, feed.samples, feed.shuffle and not is_stream, feed.batch_size,
                feed.drop_last, accumulation, own, limit=limit,
            )  # fmt: skip
        source = feed.source if isinstance(feed, ReadyBatches) else feed
        return replace(_of_batches(source, seed, accumulation), limit=limit)

    def what_differs(self, now: "SampleOrder") -> list[str]:
        """Names and values of what is another in ``now``."""
        names = [f.name for f in fields(self) if getattr(self, f.name) != getattr(now, f.name)]
        return [f"{SAID.get(name, name)} {getattr(self, name)} then and {getattr(now, name)} now" for name in names]

    def is_same_place(self, now: "SampleOrder") -> bool:
        """Whether a position within an epoch means the same samples, done and to come, in the order ``now``."""
        if (self.kind, self.by) != (now.kind, now.by):
            return False
        if self.kind == BATCHES:  # only whole ones can be passed over, and nobody knows how a sampler draws
            return self == replace(now, accumulation=self.accumulation, limit=self.limit)
        if self.shuffle != now.shuffle:
            return False
        # In an order that is drawn, seed and length are all that it depends on; else more samples follow, or fewer.
        is_drawn = bool(self.shuffle) or self.by is not None or self.kind == STREAM
        return not is_drawn or (self.seed, self.samples) == (now.seed, now.samples)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> "SampleOrder | None":
        """What :meth:`to_json` gave; None for a checkpoint of an earlier version."""
        if value is None:
            return None
        names = {f.name for f in fields(cls)}
        sound = isinstance(value, dict) and {"seed", "kind"} <= set(value) <= names
        if not sound or not all(type(one) in PLAIN for one in value.values()):
            raise ValueError("its order of samples is not one of brim's")
        return cls(**value)


SAID = {
    "samples": "number of samples", "by": "order by", "kind": "data as", "accumulation": "accumulated batches",
    "limit": "limit_train_batches",
}  # fmt: skip


def is_last_position(feed: Feed, position: int) -> bool:
    """Whether no batch of the epoch is left after ``position``, where that is known without asking for one."""
    if not isinstance(feed, Loader) or feed.samples is None:
        return False
    return next(batch_bounds(feed.samples, feed.batch_size, position, feed.drop_last), None) is None


def _of_batches(source: Any, seed: int, accumulation: int) -> SampleOrder:
    """Batches of the user's: as much as can be asked without reading one."""
    seed = seed if type(source) not in (list, tuple) else 0  # these draw nothing
    if not isinstance(source, DataLoader):  # a feed of another room, or anything that can be iterated over
        told = {name: _plain(source, name) for name in ("samples", "shuffle", "batch_size", "drop_last")}
        name, batches = type(source).__name__, known_length(source)
        return SampleOrder(seed, BATCHES, **told, accumulation=accumulation, by=name, batches=batches)
    sampler = source.batch_sampler if source.batch_sampler is not None else source.sampler
    return SampleOrder(
        seed, BATCHES, known_length(source.dataset), None, _plain(sampler, "batch_size"), _plain(sampler, "drop_last"),
        accumulation, type(getattr(sampler, "sampler", sampler)).__name__, known_length(source),
    )  # fmt: skip


def _plain(owner: Any, name: str) -> Any:
    value = getattr(owner, name, None)
    return value if type(value) in (int, bool) else None
