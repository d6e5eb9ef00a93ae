"""What a loss is a mean over, found out by gradients: those of a few samples and of their two halves.

A batch may be split (into micro-batches, over ranks, over an accumulation window) only where the gradients of its parts
add up to its own. With g the gradient of the mean over some samples, and g1, g2 those of their halves, a mean over
something that is counted C = c1 + c2 obeys  g C = g1 c1 + g2 c2.  Each count that the batch offers is a hypothesis, and
is tested so; where none holds, the loss looks across the batch or counts something else.
"""

from dataclasses import dataclass, field

from brim.engine.components.loss_count import SAMPLES, CountRule

SAMPLE_MEAN, LABEL_MEAN, OWN_COUNT = "mean over samples", "mean over labels", "brim.Loss"
ACROSS, UNKNOWN = "looks across the batch, or counts otherwise", "cannot be told"


IN_PYTHON = "what the loss keeps in Python"


@dataclass(frozen=True)
class MovingState:
    """What a module changes in its forward pass without a gradient; ``follows_data``: it becomes another for others."""

    name: str
    follows_data: bool


@dataclass(frozen=True)
class LossVerdict:
    """What is known of a loss. ``reason`` says why its parts do not add up, where they do not."""

    kind: str
    rule: CountRule = SAMPLES
    reason: str = ""
    residual: float = field(default=float("inf"), compare=False)  # of the gradient, by the count that comes nearest
    is_conclusive: bool = field(default=True, compare=False)  # False: of samples that can tell little
    moving: tuple[MovingState, ...] = ()
    rewrites: tuple[str, ...] = ()  # trained weights that the forward pass itself writes to, as max_norm does
    lacks_memory: bool = False  # it could be told with more of it
    says_count: bool = False  # it returns brim.Loss, so whoever wrote it has thought of parts
    gathers: bool = False  # it calls brim.gather
    joins_ranks: bool = False  # and with that, the losses of ranks add up to that of their joined batch

    @property
    def gives_count(self) -> bool:
        """Whether parts of a batch add up to the batch, weighted by what they count."""
        return self.kind in (SAMPLE_MEAN, LABEL_MEAN, OWN_COUNT)
