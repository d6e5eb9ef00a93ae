"""What keeps a GPU idle or slow, from profiled steps."""

from brim.doctor.observation import Observation, Profile, TensorCalls, Window
from brim.doctor.order import Cures
from brim.doctor.rules.device_cures import copy_cures
from brim.doctor.rules.finding import WORTH_TELLING, Finding, gain_of, milliseconds, named, percent, those_found
from brim.doctor.shares import Shares

SYNC = COPY = 0.03
FP32 = 0.2  # of the step in matrix products without tensor cores
TF32_SPEED = 3.0  # times as fast, cautiously: the hardware's ratio is 8
SHORT_KERNEL = 10e-6  # seconds
NO_FASTER = 1.1  # of the step: what all GPUs compute together
LESS_MEMORY = (
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, a smaller micro-batch, or activation checkpointing (brim plan)"
)
MANY_SHAPES = 8  # of batches
FULL, IN_PIECES = 0.8, 0.3  # of a GPU's memory; of what is reserved of it


def cuda_findings(seen: Observation, shares: Shares) -> list[Finding]:
    """Waiting for the device, copies, precision, and ways to use several."""
    profile, window = seen.profile, seen.timed
    if seen.host.device != "cuda" or profile is None or window is None:
        return []
    loader = seen.train_loader
    shapes = loader.shapes if seen.host.cudnn_benchmark and loader is not None else 0
    return those_found(
        _sync(seen, shares, profile),
        _copies(seen, shares, profile),
        _precision(seen, profile, window.step),
        _data_parallel(seen, shares) if seen.host.data_parallel > 1 else None,
        _several(profile, window),
        _pinning(seen, window.step),
        _allocator(seen, profile, window.step),
        _benchmark(shapes) if shapes > MANY_SHAPES else None,
        _small_kernels(seen, shares, profile),
    )


def _several(profile: Profile, window: Window) -> Finding | None:
    """What all GPUs compute in a step, one after the other, is what one of them would take for it."""
    alone = sum(profile.devices)
    if len(profile.devices) < 2 or alone > NO_FASTER * window.step:
        return None
    busiest = max(profile.devices) / window.step
    return Finding(
        cause="several-gpus-no-faster",
        what=f"{len(profile.devices)} GPUs take as long for a step as one of them would",
        evidence=f"together they compute {milliseconds(alone)} in a step of {milliseconds(window.step)}; the"
        f" busiest is busy for {percent(busiest)} of it, and the rest is launching, copying and telling each other",
        cure="more samples for each GPU (a larger batch changes the training), or one GPU for this batch;"
        " brim plan tells what several bring",
        share=max(0.0, 1.0 - busiest),
        gain=window.step / alone if alone > 0 else None,
    )


def _pinning(seen: Observation, step: float) -> Finding | None:
    calls = [call for call in seen.calls if call.direction == "pinned"]
    share = sum(call.seconds for call in calls) / step
    if share < WORTH_TELLING:
        return None
    return Finding(
        cause="pin-memory-in-the-loop",
        what="the main thread copies batches to page-locked memory in the loop",
        evidence=f"{milliseconds(share * step)} a step, {percent(share)} of it{_most_on(calls)}",
        cure="DataLoader(..., pin_memory=True) does it in a thread of its own; data that stay can be pinned once,"
        " before the loop",
        share=min(1.0, share),
        gain=gain_of(share),
        line=calls[0].line,
    )


def _sync(seen: Observation, shares: Shares, profile: Profile) -> Finding | None:
    if shares.sync < SYNC:
        return None
    calls = [call for call in seen.calls if call.direction == "to host"]
    return Finding(
        cause="sync-in-the-loop",
        what="the host waits for the GPU in every step, and the GPU then for the host",
        evidence=f"{profile.syncs:.1f} waits a step, {percent(shares.sync)} of it idle{_most_on(calls)}",
        cure="keep losses and metrics as tensors on the GPU and read them every 50 steps; no .item(), .cpu(),"
        " print or if on a tensor in the loop",
        share=shares.sync,
        gain=gain_of(shares.sync),
        line=calls[0].line if calls else "",
    )


def _copies(seen: Observation, shares: Shares, profile: Profile) -> Finding | None:
    if shares.copy < COPY:
        return None
    calls = [call for call in seen.calls if call.direction == "to device"]
    pageable = profile.pageable_copies >= 0.5
    cure = "DataLoader(..., pin_memory=True) and .to(device, non_blocking=True)"
    if not pageable:
        cure = "copy the next batch while this one is computed, on a stream of its own: brim's loader does"
    first, *others = copy_cures(seen) or (Cures(),)
    return Finding(
        cause="copy-not-pinned" if pageable else "copy-not-overlapped",
        what="batches are copied to the GPU while it waits",
        evidence=f"{milliseconds(profile.copy_all)} a step, {milliseconds(profile.copy)} of it with nothing else"
        f" running{', from pageable memory' if pageable else ''}{_most_on(calls)}",
        cure=cure,
        share=shares.copy,
        gain=gain_of(shares.copy * (0.6 if pageable else 1.0)),
        line=calls[0].line if calls else "",
        cures=first,
        further=tuple(others),
    )


def _precision(seen: Observation, profile: Profile, step: float) -> Finding | None:
    share = profile.fp32_matmul_seconds / step
    if share < FP32 or seen.host.tf32:
        return None
    return Finding(
        cause="fp32-without-tf32",
        what="matrix products run in full fp32, without tensor cores",
        evidence=f"{milliseconds(profile.fp32_matmul_seconds)} a step, {percent(share)} of it",
        cure="torch.set_float32_matmul_precision('high'), or autocast to bf16; both change the numbers a little",
        share=share,
        gain=gain_of(min(share, 1.0) * (1 - 1 / TF32_SPEED)),
        changes_training=True,
    )


def _data_parallel(seen: Observation, shares: Shares) -> Finding:
    lost = shares.launch + shares.sync
    return Finding(
        cause="data-parallel",
        what=f"nn.DataParallel drives {seen.host.data_parallel} GPUs from one Python thread, and copies the model"
        f" every step",
        evidence=f"the first GPU is idle for {percent(lost)} of the step while the host launches",
        cure="DistributedDataParallel under torchrun, one process a GPU",
        share=lost,
        gain=gain_of(lost),
    )


def _allocator(seen: Observation, profile: Profile, step: float) -> Finding | None:
    """Memory that runs out, lies in pieces, or is given back in every step."""
    host, share = seen.host, min(1.0, profile.allocation / step)
    gain = gain_of(share) if share >= WORTH_TELLING else None
    asked = f"; asking the driver for memory takes {percent(share)} of the step" if gain else ""
    in_pieces = host.memory_reserved >= FULL and host.memory_split >= IN_PIECES
    if host.allocator_retries:
        what = "memory is so full that torch frees its cache and asks again"
        return Finding("allocator-retries", what, f"{host.allocator_retries} retries{asked}", LESS_MEMORY, share, gain)
    if in_pieces:
        what = "memory is full, and a good part of it is free in pieces too small to be used"
        evidence = f"{percent(host.memory_split)} of the {percent(host.memory_reserved)} that torch holds{asked}"
        return Finding("fragmented-memory", what, evidence, LESS_MEMORY, share, gain)
    if gain:
        what = "memory of the GPU is asked for and given back in every step"
        cure = "no torch.cuda.empty_cache() in the loop: torch keeps what was freed, and hands it out again at once"
        return Finding(
            "memory-given-back", what, f"{milliseconds(profile.allocation)} a step{asked}", cure, share, gain
        )
    return None


def _benchmark(shapes: int) -> Finding:
    return Finding(
        cause="variable-shapes",
        what="cudnn.benchmark tries algorithms anew for every shape, and shapes keep changing",
        evidence=f"{shapes} different shapes of batches",
        cure="torch.backends.cudnn.benchmark = False, or pad batches to a few shapes",
        share=0.0,
    )


def _small_kernels(seen: Observation, shares: Shares, profile: Profile) -> Finding | None:
    """The GPU is busy with many short kernels: they could be fewer."""
    if seen.host.compiled or not profile.kernels or shares.compute < 0.5:
        return None
    mean = profile.kernel_seconds / profile.kernels
    if mean > SHORT_KERNEL or profile.kernels < 200:
        return None
    return Finding(
        cause="not-compiled",
        what="the GPU runs very many short kernels",
        evidence=f"{profile.kernels:,.0f} kernels a step of {1e6 * mean:.0f} us",
        cure="torch.compile(model) joins them; measure it, the first steps take minutes",
        share=max(WORTH_TELLING, 0.2 * shares.compute),
        cures=Cures(compile=True),
    )


def _most_on(calls: list[TensorCalls]) -> str:
    return f"; most of it on {named(calls[0])}" if calls else ""
