"""What can be done about copies of batches to a GPU without the script's help."""

from brim.doctor.observation import LoaderSeen, Observation
from brim.doctor.order import Cures

PART = 0.25  # of the GPU's free memory that a data set may take


def copy_cures(seen: Observation) -> tuple[Cures, ...]:
    """What to try where copies take time, in this order: no copies, then some that the host or the GPU need not wait
    for."""
    if seen.host.device != "cuda" or seen.train_loader is None:
        return ()
    calls = [call for call in seen.calls if call.direction == "to device"]
    waits = not calls or any(not call.pinned or not call.non_blocking for call in calls)
    pinned = (Cures(pinned_copies=True),) if waits else ()
    return (*resident_cures(seen), *pinned, Cures(device_prefetch=True))


def resident_cures(seen: Observation) -> tuple[Cures, ...]:
    """The data set held on the GPU, where it consists of columns and fits well."""
    loader = seen.train_loader
    if seen.host.device != "cuda" or loader is None or not loader.default_collate or not _gives_columns(loader):
        return ()
    if loader.length is None or not loader.samples:
        return ()
    size = loader.length * loader.batch_bytes / max(1.0, loader.samples_per_batch)
    fits = size <= PART * seen.host.memory_free
    return (Cures(resident_data=True, batched_access=True, num_workers=0),) if fits else ()


def _gives_columns(loader: LoaderSeen) -> bool:
    """Whether its samples are rows of tensors by contract, or one index was seen to give the same batch."""
    return not loader.stream and (loader.columns or loader.batched_seconds is not None)
