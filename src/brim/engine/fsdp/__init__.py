"""A model whose weights, gradients and optimizer state are spread over the ranks: torch's FSDP2, in brim's step.

In: the user's model on every rank. Out: its sharded copy with a step, evaluations and an average of its own; in the
end the model with the weights.
"""

from brim.engine.fsdp.sharded_training import ShardedTraining

__all__ = ["ShardedTraining"]
