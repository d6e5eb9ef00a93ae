"""A model whose weights, gradients and optimizer state are spread over the ranks: torch's FSDP2, in brim's step."""

from brim.engine.fsdp.sharded_training import ShardedTraining

__all__ = ["ShardedTraining"]
