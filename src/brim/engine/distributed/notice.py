"""What a rank that cannot go on leaves in the store for the others."""

import json
from dataclasses import asdict, dataclass

from brim.errors import RanksLost


@dataclass(frozen=True)
class Notice:
    """Which rank it is, and what it ran out of or ended with.

    ``micro_batch``: what all go on with; 0 where it cannot be smaller, None where the rank has ended with an error.

    >>> Notice.from_json(Notice(1, "ValueError: no").to_json())
    Notice(rank=1, sentence='ValueError: no', micro_batch=None)
    """

    rank: int
    sentence: str
    micro_batch: int | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Notice":
        return cls(**json.loads(text))

    def error(self, rank: int, world: int) -> RanksLost:
        """The error that another rank raises because this one has ended."""
        return RanksLost(
            f"rank {rank} of {world} cannot go on: rank {self.rank} ended with {self.sentence}; mend that, and start "
            "again with resume"
        )
