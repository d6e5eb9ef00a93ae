"""Which of the processes that train together this one is, by the launcher's numbers."""

import os
from dataclasses import dataclass

import torch.distributed as dist

from brim.engine.distributed.process_group import has_formed_group
from brim.errors import ConfigError

VARIABLES = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}  # with their defaults


@dataclass(frozen=True)
class RankIdentity:
    """A rank among all, and among those on its machine; ``is_launched``: by torchrun or its like, be it as one of one.

    >>> RankIdentity(0, 2).is_first, RankIdentity(1, 2).is_first
    (True, False)
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    is_launched: bool = False

    @property
    def is_first(self) -> bool:
        """The rank that speaks and writes."""
        return self.rank == 0

    @classmethod
    def from_environment(cls) -> "RankIdentity":
        """As a launcher (torchrun) says in the environment; alone where none did."""
        if dist.is_available() and dist.is_initialized() and not has_formed_group():  # by the program itself
            local = int(os.environ.get("LOCAL_RANK", "0"))
            return cls(dist.get_rank(), dist.get_world_size(), local, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return cls()
        try:
            rank, world, local_rank, local_world = (int(os.environ.get(*variable)) for variable in VARIABLES.items())
        except ValueError as error:
            raise ConfigError(
                f"the launcher's variables {', '.join(VARIABLES)} must be whole numbers: {error}"
            ) from error
        if not 0 <= rank < world:
            raise ConfigError(f"RANK={rank} is not one of WORLD_SIZE={world} ranks; start them with torchrun")
        if not 0 <= local_rank < local_world:
            raise ConfigError(
                f"LOCAL_RANK={local_rank} is not one of LOCAL_WORLD_SIZE={local_world}; start the ranks with torchrun"
            )
        return cls(rank, world, local_rank, local_world, is_launched=True)
