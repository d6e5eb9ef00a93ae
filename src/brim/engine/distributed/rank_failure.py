"""What a rank leaves behind that ends with an error of its own."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass

from brim.engine.distributed.process_group import ProcessGroup
from brim.errors import RanksLost


@dataclass(frozen=True)
class RankFailure:
    """Which rank has ended, and with what."""

    rank: int
    ended_with: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, word: str) -> "RankFailure | None":
        """None where the word is another one.

        >>> RankFailure.from_json(RankFailure(1, "ValueError: no").to_json())
        RankFailure(rank=1, ended_with='ValueError: no')
        >>> RankFailure.from_json('{"rank": 1, "size": 4}') is None
        True
        """
        value = json.loads(word)
        return cls(value["rank"], value["ended_with"]) if "ended_with" in value else None

    def error(self, rank: int, world: int) -> RanksLost:
        """What another rank ends with."""
        return RanksLost(
            f"rank {rank} of {world} has nobody to go on with: rank {self.rank} ended with {self.ended_with}; start "
            "again with resume when that is mended"
        )


def posted_failure(group: ProcessGroup) -> RankFailure | None:
    """What somebody who ended has said; None where nobody did."""
    with suppress(Exception):  # the store may have gone
        return RankFailure.from_json(group.read_notice()) if group.has_notice() else None
    return None
