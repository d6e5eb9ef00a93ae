"""The forecast in the words of people who ask for gigabytes: a model that exists, a batch size, a number of GPUs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brim.arguments.known import known_arguments
from brim.errors import CannotFit, ConfigError
from brim.hardware.cards import Card
from brim.memory.context import context_of
from brim.memory.forecast import Forecast, OptimizerMaker, choose_card, forecast
from brim.memory.planning.largest import largest_batch
from brim.memory.trace.steps import Batch
from brim.model_blocks import Enclosing
from brim.sizes import LEAST_MEMORY, check_whole, parse_bytes, show_bytes

GB = 10**9
GROWING = ("activations", "temporary", "workspace", "fragmentation")  # parts that follow the batch
WORDS = {"parameters": "parameters", "cache": "cached_embeddings", "optimizer": "optimizer_state"}


class ModelWithLoss(Enclosing):
    """A model that computes its own loss, as a module whose output is that loss."""

    def __init__(self, model: nn.Module, compute: Callable[[nn.Module, Any], Any]) -> None:
        super().__init__()
        self.model = model
        self.compute = compute
        self.training = model.training  # one that is in eval mode as a whole is so with this around it

    def forward(self, batch: Any) -> Tensor:
        loss = self.compute(self.model, batch)
        mean: Tensor = loss if isinstance(loss, Tensor) else loss.mean
        return mean

    def get_output_embeddings(self) -> Any:
        """As transformers' models name their last layer, which may be computed in chunks; None where there is none."""
        find = getattr(self.model, "get_output_embeddings", None)
        return find() if callable(find) else None


class WithCache(Enclosing):
    """A model whose ``use_cache`` is as somebody asked for, once it is called."""

    def __init__(self, model: nn.Module, use_cache: bool) -> None:
        super().__init__()
        self.model = model
        self.use_cache = use_cache
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        switch(self.model, self.use_cache)
        return self.model(*args, **kwargs)


def switch(model: Any, use_cache: bool | None) -> None:
    """Set ``use_cache``, unless it is so already: setting it may empty a cache."""
    if use_cache is not None and model.use_cache != use_cache:
        model.use_cache = use_cache


@known_arguments
def estimate_memory_usage(
    model: nn.Module,
    batch_size: int,
    num_gpus: int = 1,
    use_cache: bool | None = None,
    *,
    batch: Callable[[int], Batch] | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerMaker | None = None,
    precision: str = "32",
    card: str | Card | None = None,
) -> dict[str, float]:
    """What training takes of each GPU, by part and as ``total_per_gpu``, in GB (10^9 bytes).

    Args:
        model: one with ``calculate_loss`` and ``example_batch`` (brim's own have them) needs nothing more.
        batch_size: the optimisation batch, shared by the GPUs with DDP.
        num_gpus: how many.
        use_cache: whether encodings are cached, where the model can.
        batch, loss, optimizer, precision, card: for other models, as for `brim.forecast`.

    >>> parts = estimate_memory_usage(nn.Linear(512, 512), 64, batch=lambda n: ((torch.empty(n, 512),), {}),
    ...                               loss=lambda out: out.sum(), card="NVIDIA H200")
    >>> 0 < parts["parameters"] < parts["total_per_gpu"]
    True
    """
    check_whole("num_gpus", num_gpus)
    share = get_optimal_batch_size(num_gpus, batch_size)
    job = _job(model, use_cache, batch, loss)
    made: Forecast = forecast(
        job.model, job.batch, job.loss, optimizer, batch_size=share, precision=precision, card=card, gpus=num_gpus,
        strategy="ddp" if num_gpus > 1 else "single",
    )  # fmt: skip
    parts = {WORDS.get(name, name): size / GB for name, size in made.parts.items()}
    return {**parts, "total_per_gpu": made.device / GB, "batch_size_per_gpu": float(share)}


@known_arguments
def suggest_batch_size(
    model: nn.Module,
    num_gpus: int = 1,
    target_memory_gb: float | None = None,
    use_cache: bool | None = None,
    *,
    batch: Callable[[int], Batch] | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: OptimizerMaker | None = None,
    precision: str = "32",
    card: str | Card | None = None,
) -> int:
    """The largest optimisation batch, over all GPUs, whose share fits on each of them.

    Args:
        model, num_gpus, use_cache, batch, loss, optimizer, precision, card: as for :func:`estimate_memory_usage`.
        target_memory_gb: what may be taken of each GPU, in GB (10^9 bytes); by default all of it.

    >>> suggest_batch_size(nn.Linear(4096, 4096), target_memory_gb=2, batch=lambda n: ((torch.empty(n, 4096),), {}),
    ...                    loss=lambda out: out.sum(), card="NVIDIA H200") > 1000
    True
    """
    job = _job(model, use_cache, batch, loss)
    chosen, strategy = choose_card(card), "ddp" if num_gpus > 1 else "single"

    def forecast_of(size: int) -> Forecast:
        return forecast(
            job.model, job.batch, job.loss, optimizer, batch_size=size, precision=precision, card=chosen, gpus=num_gpus,
            strategy=strategy,
        )  # fmt: skip

    if isinstance(target_memory_gb, str):  # a billion times a text is a text
        raise ConfigError(f"target_memory_gb={target_memory_gb!r} must be a number of GB, such as 8")
    target = None if target_memory_gb is None else parse_bytes(target_memory_gb * GB, "target_memory_gb")
    # The target is one for the whole card, as total_per_gpu is; a limit is one for what torch reserves of it.
    beside = context_of(chosen, True, True).high + chosen.driver_reserve
    largest = largest_batch(
        job.model, job.batch, job.loss, optimizer, precision=precision, card=chosen, gpus=num_gpus, strategy=strategy,
        memory=None if target is None else max(LEAST_MEMORY, target - beside),
    )  # fmt: skip
    return num_gpus * (largest if target is None else _shrunk_to(target, largest, forecast_of))


def _shrunk_to(target: int, batch_size: int, forecast_of: Callable[[int], Forecast]) -> int:
    """The batch size, made smaller until a card that has more than the target does not take more either.

    Under a limit torch gives back what is free before it takes more; on a card with room to spare it does not.
    """
    while (made := forecast_of(batch_size)).device > target:
        growing = sum(made.parts[part] for part in GROWING)
        batch_size = min(batch_size - 1, int(batch_size * (target - made.device + growing) / growing))
        if batch_size < 1:
            raise CannotFit(f"not even one sample fits: {show_bytes(made.device - target)} of the target are missing")
    return batch_size


@known_arguments
def get_optimal_batch_size(num_gpus: int, base_batch_size: int = 2048) -> int:
    """Each GPU's share of an optimisation batch, rounded up.

    Args:
        num_gpus: how many share it; 0 for a CPU, which computes all of it.
        base_batch_size: the optimisation batch.

    >>> get_optimal_batch_size(num_gpus=8, base_batch_size=2048)
    256
    """
    check_whole("base_batch_size", base_batch_size)
    if num_gpus == 0 and type(num_gpus) is int:
        return base_batch_size
    check_whole("num_gpus", num_gpus)
    return -(-base_batch_size // num_gpus)


@dataclass(frozen=True)
class _Described:
    model: nn.Module
    batch: Callable[[int], Batch]
    loss: Callable[[Any], Tensor] | None


def _job(
    model: nn.Module, use_cache: bool | None, batch: Callable[[int], Batch] | None, loss: Callable[[Any], Tensor] | None
) -> _Described:
    if use_cache is not None and not hasattr(model, "use_cache"):
        raise ConfigError(f"use_cache={use_cache} was asked for, and {type(model).__name__} keeps no cache")
    if batch is not None:
        return _Described(model if use_cache is None else WithCache(model, use_cache), batch, loss)
    example = getattr(model, "example_batch", None)
    if example is None or not hasattr(model, "calculate_loss"):
        raise ConfigError(
            f"how {type(model).__name__} is called is not known; pass batch=lambda n: ((inputs of n samples,), {{}}) "
            "and loss=lambda output: ..."
        )

    def compute(copied: Any, samples: Any) -> Any:
        switch(copied, use_cache)
        return copied.calculate_loss(samples)

    return _Described(ModelWithLoss(model, compute), lambda n: ((example(n),), {}), lambda output: output)


@known_arguments
def check_gpu_memory() -> str:
    """One line a GPU: what torch has allocated and reserved of how much. Printed, and handed back.

    >>> isinstance(check_gpu_memory(), str)  # doctest: +SKIP
    True
    """
    lines = []
    for index in range(torch.cuda.device_count()):
        total = torch.cuda.get_device_properties(index).total_memory
        allocated, reserved = torch.cuda.memory_allocated(index), torch.cuda.memory_reserved(index)
        figures = f"{allocated / GB:.2f} GB allocated / {reserved / GB:.2f} GB reserved / {total / GB:.2f} GB total"
        lines.append(f"cuda:{index} {torch.cuda.get_device_name(index)}: {figures}")
    text = "\n".join(lines) or "no GPU in this machine"
    print(text)
    return text
