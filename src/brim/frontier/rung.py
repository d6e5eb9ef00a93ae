"""One way to make a batch fit, and what it costs."""

from dataclasses import dataclass
from typing import Any

from brim.logits.chunked_head import CHUNKED, WHOLE


@dataclass(frozen=True)
class Rung:
    """What goes through the model at once, what is computed again in the backward pass, and how logits are computed."""

    micro_batch: int
    slices: int  # micro-batches in a batch
    recomputed: tuple[str, ...] = ()  # blocks, by name
    blocks: int = 0  # which the model has
    logits: str = WHOLE
    expandable: bool = False  # the allocator's segments

    @property
    def sentence(self) -> str:
        """What is done, in the words of a plan.

        >>> Rung(16, 4, ("h.0", "h.1"), 12).sentence
        'micro-batch 16, 2 of 12 blocks recomputed'
        """
        parts = [f"micro-batch {self.micro_batch:,}"]
        if self.recomputed:
            parts.append(f"{len(self.recomputed)} of {self.blocks} blocks recomputed")
        if self.logits == CHUNKED:
            parts.append("logits in chunks")
        if self.expandable:
            parts.append("expandable segments")
        return ", ".join(parts)


@dataclass(frozen=True)
class Costed:
    """A rung with its forecast: bytes that torch would reserve, seconds of a step, and those of the plain step."""

    rung: Rung
    reserved: int
    seconds: float
    plain_seconds: float
    fits: bool = True

    @property
    def cost(self) -> str:
        """What a step costs more than the plain one, which may not fit.

        >>> Costed(Rung(16, 4, ("h.0",), 12), 1, 0.109, 0.1).cost
        '+9 % step time'
        """
        more = 100 * (self.seconds / self.plain_seconds - 1)
        return f"{more:+.0f} % step time"

    @property
    def sentence(self) -> str:
        return f"{self.rung.sentence}: {self.cost}"

    def as_json(self) -> dict[str, Any]:
        rung = self.rung
        return {
            "micro_batch": rung.micro_batch, "slices": rung.slices, "recomputed": list(rung.recomputed),
            "blocks": rung.blocks, "logits": rung.logits, "expandable_segments": rung.expandable,
            "reserved": self.reserved, "step_ms": 1e3 * self.seconds, "fits": self.fits, "cost": self.cost,
        }  # fmt: skip
