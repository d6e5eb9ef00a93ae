"""Model code that asks which card it is on: it is answered with the card of the forecast.

Libraries choose kernels by ``torch.cuda.get_device_capability()``, which a machine without a GPU cannot answer and
another GPU would answer for itself. ``torch.cuda.is_available()`` is left alone: libraries remember its answer beyond
the forecast.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import torch

from brim.hardware.cards import Card
from brim.memory.as_cuda.devices import is_asked_by_job
from brim.replaced import replaced


def models_ask_about(card: Card) -> AbstractContextManager[None]:
    """What the code of the user asks ``torch.cuda`` about the device is answered for this card."""
    properties = SimpleNamespace(
        name=card.name, major=card.capability[0], minor=card.capability[1], total_memory=card.memory,
        multi_processor_count=card.multiprocessors, warp_size=32,
        max_threads_per_multi_processor=card.threads_per_multiprocessor, is_integrated=False, is_multi_gpu_board=False,
    )  # fmt: skip
    answers: dict[str, Callable[..., Any]] = {
        "get_device_capability": lambda *_, **__: card.capability,
        "get_device_name": lambda *_, **__: card.name,
        "get_device_properties": lambda *_, **__: properties,
        "is_bf16_supported": lambda *_, **__: card.is_capable_of_bf16,
        "current_device": lambda: 0,
        "mem_get_info": lambda *_, **__: (card.memory, card.memory),
        "synchronize": lambda *_, **__: None,
    }
    return replaced(*((torch.cuda, name, _for_the_job(name, answer)) for name, answer in answers.items()))


def _for_the_job(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    own: Callable[..., Any] = getattr(torch.cuda, name)

    def asked(*args: Any, **kwargs: Any) -> Any:
        return (answer if is_asked_by_job(sys._getframe(1)) else own)(*args, **kwargs)

    return asked
