"""What ``compile=`` says: whether, with which backend and mode of torch, and with whose random numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from brim.arguments.choices import check_choice, shorten
from brim.errors import ConfigError

AUTO, INDUCTOR = "auto", "inductor"
SAME, FAST = RANDOM = ("same", "fast")
MODEL, BLOCK = PER = ("model", "block")
GRAPHS = "triton.cudagraphs"  # the option by which Inductor makes CUDA graphs of its own
REDUCES_OVERHEAD = "reduce-overhead"  # a mode that is nothing but these
KEYS = ("backend", "mode", "random", "per")


@dataclass(frozen=True)
class Compiler:
    """How losses are compiled.

    Args:
        is_auto: whether a measurement decides; otherwise the user has.
        backend: of ``torch.compile``.
        mode: of Inductor, by torch's names.
        random: ``"same"`` for the numbers that eager steps draw, ``"fast"`` for Inductor's own.
        per: ``"block"`` where blocks that occur several times are compiled once, ``"model"`` for all as one.

    >>> Compiler.of("max-autotune").mode, Compiler.of(True).per, Compiler.of({"random": "fast"}).random
    ('max-autotune', 'model', 'fast')
    """

    is_auto: bool = False
    backend: str = INDUCTOR
    mode: str = "default"
    random: str = SAME
    per: str = MODEL

    @classmethod
    def of(cls, value: Any) -> "Compiler | None":
        """What ``compile=value`` means; None where nothing is compiled."""
        if isinstance(value, bool) or value is None:
            return cls() if value else None
        if value == AUTO:
            return cls(is_auto=True, per=BLOCK)
        if isinstance(value, Mapping):
            return cls._of_mapping(value)
        usual = [False, True, AUTO, *_modes()]
        check_choice("compile", value, [*usual, *_backends()], offered=usual)
        return cls(mode=value) if value in _modes() else cls(backend=value)

    @classmethod
    def _of_mapping(cls, value: Mapping[str, Any]) -> "Compiler":
        for key, one in value.items():
            check_choice("compile key", key, KEYS)
            check_choice(f"compile[{key!r}]", one, _choices(key))
        made = cls(**value)
        if made.backend != INDUCTOR and (made.mode != "default" or made.random != SAME):
            raise ConfigError(
                f"compile={shorten(dict(value))}: modes and random numbers are Inductor's; leave 'backend' out"
            )
        return made

    @property
    def has_graphs(self) -> bool:
        """Whether torch's mode brings CUDA graphs of its own, in whose place brim captures the whole step."""
        return bool(self._of_mode().get(GRAPHS))

    def _of_mode(self) -> dict[str, Any]:
        return dict(torch._inductor.list_mode_options(self.mode)) if self.backend == INDUCTOR else {}

    def arguments(self) -> dict[str, Any]:
        """Those of ``torch.compile``.

        Options, for they stay with what is compiled: a backward pass is compiled late, and a module-wide switch of
        torch's would be back where it was by then.
        """
        if self.backend != INDUCTOR:
            return {"backend": self.backend}
        options = self._of_mode() | ({GRAPHS: False} if self.has_graphs else {})
        return {"options": options | {"fallback_random": self.random == SAME}}

    def check_capture(self, capture: str) -> None:
        """Refuse a mode that is nothing but CUDA graphs where these are forbidden."""
        if capture == "off" and self.mode == REDUCES_OVERHEAD:
            raise ConfigError(
                f"compile={REDUCES_OVERHEAD!r} is compiling with CUDA graphs, and capture='off' forbids these; leave "
                "capture='auto', or use compile=True"
            )

    def check_logits(self, logits: str) -> None:
        """Refuse logits that torch.compile does not follow; a measurement decides for eager steps with them."""
        if logits == "chunked" and not self.is_auto:
            raise ConfigError("logits='chunked' is not followed by torch.compile; leave out compile= or logits=")


def _choices(key: str) -> list[Any]:
    return {"backend": _backends, "mode": _modes, "random": lambda: list(RANDOM), "per": lambda: list(PER)}[key]()  # type: ignore[no-untyped-call]


def _modes() -> list[str]:
    return list(torch._inductor.list_mode_options())


def _backends() -> list[str]:
    return list(torch._dynamo.list_backends(exclude_tags=()))
