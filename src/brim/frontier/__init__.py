"""What makes a training fit, at the least cost in speed: a job comes in, rungs with their memory and their time go out.

A rung is a micro-batch, blocks that are computed again in the backward pass, and logits whole or in chunks. Each gives
the same training: the same bits for blocks, the same sums in another order for micro-batches and chunks.
"""

from brim.frontier.frontier import Frontier
from brim.frontier.rung import Costed, Rung

__all__ = ["Costed", "Frontier", "Rung"]
