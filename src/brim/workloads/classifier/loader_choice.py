"""How the shards are read: batch, workers and prefetch by preset and settings, cut down to what the machine has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brim.data.presets import LoaderSettings, fit_workers, loader_preset, preset_of_card
from brim.data.reading.workers import BatchCost, machine_budget
from brim.engine.distributed.rank_identity import RankIdentity
from brim.hardware import DeviceChoice, Gpu, choose_device, inventory
from brim.workloads.classifier.config import AUTO, TrainSection

LABEL_BYTES, TENSORS = 8, 2  # of a sample's label; of a batch


@dataclass(frozen=True)
class LoaderChoice:
    """Keyword arguments of :class:`brim.Loader`, and what was decided, in a sentence; None where all was given."""

    arguments: dict[str, Any]
    sentence: str | None = None


def choose_loader(section: TrainSection, device: Any, sample_bytes: int) -> LoaderChoice:
    """What ``train_ds`` says, the preset for the rest; workers of the preset are cut down to the machine."""
    asked = section.asked
    if section.preset is None:
        return LoaderChoice(asked)
    identity = RankIdentity.from_environment()
    machine = inventory()
    chosen = choose_device(device, machine, local_rank=identity.local_rank, local_ranks=identity.local_world)
    name = preset_of_card(_memory(chosen, machine.gpus)) if section.preset == AUTO else section.preset
    preset = loader_preset(name)
    arguments: dict[str, Any] = {**preset, **asked}
    told = f"preset {name}: {_preset_in_words(preset)}"
    if "num_workers" in asked:
        return LoaderChoice(arguments, told + _instead(preset, asked))
    # A batch is read by ranks together: each has its part of it.
    batch_bytes = (sample_bytes + LABEL_BYTES) * -(-arguments["batch_size"] // identity.world)
    budget = machine_budget(identity.local_world, computes_here=chosen.device.type == "cpu")
    fitted = fit_workers(
        arguments["num_workers"], arguments["prefetch_factor"], BatchCost(0.0, 0.0, batch_bytes, TENSORS), budget
    )
    arguments |= {"num_workers": fitted.workers, "prefetch_factor": fitted.prefetch}
    if fitted.limit is None:
        return LoaderChoice(arguments, told + _instead(preset, asked))
    limit = fitted.limit
    if limit.endswith("cores"):
        half = ", half of them for training" if chosen.device.type == "cpu" else ""
        shared = f", which {identity.local_world} ranks share" if identity.local_world > 1 else ""
        limit = f"{machine.cores} cores{half}{shared}"
    ahead = f" and prefetch {fitted.prefetch}" if fitted.prefetch != preset["prefetch_factor"] else ""
    cut = f"; cut down to {fitted.workers} worker{'' if fitted.workers == 1 else 's'}{ahead} by {limit}"
    return LoaderChoice(arguments, told + _instead(preset, asked) + cut)


def _memory(chosen: DeviceChoice, gpus: Sequence[Gpu]) -> int | None:
    return None if chosen.device.type != "cuda" else gpus[chosen.device.index or 0].memory


def _preset_in_words(preset: LoaderSettings) -> str:
    return (
        f"batch {preset['batch_size']}, {preset['num_workers']} workers, prefetch {preset['prefetch_factor']}, pinned, "
        "persistent"
    )


def _instead(preset: LoaderSettings, asked: dict[str, Any]) -> str:
    other = [f"{name}={value}" for name, value in asked.items() if preset.get(name, value) != value]
    return f"; as set: {', '.join(other)}" if other else ""
