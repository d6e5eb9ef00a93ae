"""Worker processes: too few, too many, or none would be better."""

from brim.doctor.observation import LoaderSeen, Observation
from brim.doctor.order import Cures
from brim.doctor.rules.data_rules import SPLITS_ITSELF, is_read_by_file, is_read_by_sample, with_workers
from brim.doctor.rules.finding import WORTH_TELLING, Finding, gain_of, milliseconds, percent, those_found
from brim.doctor.rules.worker_model import Feeding, feeding
from brim.doctor.shares import Shares

MUCH = 0.2
CLEARLY = 0.9  # of the step's time: what is predicted must be better than that


def worker_findings(seen: Observation, shares: Shares) -> list[Finding]:
    """What is wrong with the number of workers."""
    loader, window, costs = seen.train_loader, seen.timed, feeding(seen)
    if loader is None or window is None or loader.num_workers == 0:
        return []
    wait = (window.data - window.worker_starts) / window.seconds
    if costs is None:
        return [_not_timed(loader, wait)] if wait >= MUCH else []
    if wait < WORTH_TELLING:
        return those_found(_spare_workers(seen, loader, costs))
    if loader.num_workers > seen.host.cores:
        return [_too_many(seen, loader, costs, wait)]
    if is_read_by_sample(loader) or is_read_by_file(loader):
        return []
    if costs.alone < CLEARLY * window.step:
        return [_none_are_better(seen, loader, costs, wait)]
    best = costs.best()
    if best > loader.num_workers and costs.step(best) < CLEARLY * window.step:
        return [_too_few(window.step, loader, costs, best, wait)]
    return [] if costs.keep_up(loader.num_workers) else [_cores_are_full(seen, loader, costs, wait)]


def _too_many(seen: Observation, loader: LoaderSeen, costs: Feeding, wait: float) -> Finding:
    assert seen.timed is not None
    cores = seen.host.cores
    best = min(costs.best(), cores)
    return Finding(
        cause="too-many-workers",
        what=f"{loader.num_workers} worker processes share {cores} cores with the training",
        evidence=f"a batch takes {milliseconds(costs.make)} on the clock and {milliseconds(costs.make_cpu)} of CPU;"
        f" waiting for batches is {percent(wait)} of the step",
        cure=f"num_workers={best}, for {cores} cores",
        share=wait,
        gain=max(1.0, seen.timed.step / costs.step(best)) if costs.step(best) < CLEARLY * seen.timed.step else None,
        line=loader.line,
        cures=Cures(num_workers=best),
    )


def _not_timed(loader: LoaderSeen, wait: float) -> Finding:
    """Workers that are not forked from this process: what a batch costs them is not known."""
    return Finding(
        cause="slow-workers",
        what=f"the training waits for its {_workers(loader)}",
        evidence=f"{percent(wait)} of the step; workers started with {loader.start_method} cannot be looked into",
        cure="more workers where cores are free, none where batches are cheap to make; the start method fork lets the"
        " doctor tell which",
        share=wait,
        line=loader.line,
    )


def _none_are_better(seen: Observation, loader: LoaderSeen, costs: Feeding, wait: float) -> Finding:
    assert seen.timed is not None
    return Finding(
        cause="workers-cost-more",
        what="handing batches over from worker processes takes longer than making them",
        evidence=f"a batch takes {milliseconds(costs.make_cpu)} of CPU to make, and"
        f" {milliseconds(wait * seen.timed.step)} to"
        f" wait for; it has {loader.batch_tensors} tensors, {loader.batch_bytes:,} bytes",
        cure="num_workers=0",
        share=wait,
        gain=seen.timed.step / costs.alone,
        line=loader.line,
        cures=Cures(num_workers=0),
    )


def _too_few(step: float, loader: LoaderSeen, costs: Feeding, best: int, wait: float) -> Finding:
    return Finding(
        cause="too-few-workers",
        what=f"{_workers(loader)} cannot keep up with the step",
        evidence=f"a batch takes {milliseconds(costs.make)} to make, the step without waiting"
        f" {milliseconds(costs.rest)}; waiting is {percent(wait)} of the step",
        cure=f"{with_workers(loader, best)}{SPLITS_ITSELF if loader.stream else ''}",
        share=wait,
        gain=step / costs.step(best),
        line=loader.line,
        cures=Cures() if loader.stream else Cures(num_workers=best, persistent_workers=True),
    )


def _cores_are_full(seen: Observation, loader: LoaderSeen, costs: Feeding, wait: float) -> Finding:
    lines = f"{loader.dataset}'s __getitem__ and transforms"
    return Finding(
        cause="batches-too-expensive",
        what=f"making batches takes more CPU than {seen.host.cores} cores have beside the training",
        evidence=f"{milliseconds(costs.make_cpu)} of CPU a step in workers, {milliseconds(costs.rest)} for the step"
        f" itself; waiting is {percent(wait)} of the step",
        cure=f"make samples cheaper ({lines}), or once and for all: brim.cached keeps what a deterministic"
        f" transform returns",
        share=wait,
        gain=gain_of(wait),
        line=loader.line,
    )


def _spare_workers(seen: Observation, loader: LoaderSeen, costs: Feeding) -> Finding | None:
    """Batches are in time. More workers than cores still take them from the step; nothing says how much."""
    best = min(costs.best(), seen.host.cores)
    if loader.num_workers <= 2 * seen.host.cores or best >= loader.num_workers:
        return None
    return Finding(
        cause="too-many-workers",
        what=f"{loader.num_workers} worker processes share {seen.host.cores} cores with the training",
        evidence=f"a batch takes {milliseconds(costs.make_cpu)} of CPU to make: {best} would be enough",
        cure=f"num_workers={best}",
        share=0.0,
        line=loader.line,
        cures=Cures(num_workers=best),
    )


def _workers(loader: LoaderSeen) -> str:
    return "1 worker process" if loader.num_workers == 1 else f"{loader.num_workers} worker processes"
