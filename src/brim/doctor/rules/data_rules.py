"""Batches that come too late."""

from brim.doctor.observation import LineTime, LoaderSeen, Observation, Window
from brim.doctor.order import Cures
from brim.doctor.rules.device_cures import resident_cures
from brim.doctor.rules.finding import WORTH_TELLING, Finding, gain_of, milliseconds, named, percent, those_found
from brim.doctor.rules.worker_model import WAITS, Feeding, feeding
from brim.doctor.shares import Shares

OWN_DATA = 0.1  # of a step: an index into a tensor is no fault
TABLE_ROW = 1 << 16  # bytes a sample; more is not a row of a table
# Seconds a sample: indexing, and converting and collating each of its tensors; more is work of its own.
QUICK_SAMPLE, QUICK_TENSOR = 60e-6, 15e-6
SLOW_COLLATE, MOST_OF_IT = 15e-6, 0.7  # seconds a sample, stacking rows takes less; of what a batch costs
QUICK_ROW = 1e-3  # seconds: a row of a DataFrame, which makes a Series of it
EVERY_STEP = 0.9  # epochs by steps
FEWEST_EPOCHS = 5
SPLITS_ITSELF = "; the stream must split itself among them (torch.utils.data.get_worker_info), or each gives all of it"
SAMPLED = 3.0  # times what a batch costs to make: what is waited for beyond that is not the data set
MUCH = 0.2  # of the step: a loader itself has some overhead for every batch
BATCHED_COST = 1 / 20  # of what a batch costs by sample, measured over indexing at once
FILE_SAMPLE = 1e-3  # seconds: opening a file is a good part of it


def data_findings(seen: Observation, shares: Shares) -> list[Finding]:
    """What keeps batches from being there in time."""
    loader, window = seen.train_loader, seen.timed
    if window is None or shares.data < WORTH_TELLING:
        return []
    if loader is None:
        return those_found(_slow_feed(seen, window))
    wait = min(shares.data, window.data / window.seconds) * seen.part_of_waiting
    restarts = window.worker_starts / window.seconds
    found = []
    if is_begun_every_step(loader, window):
        return [_begun_every_step(loader, wait + _thrown_away(seen))]
    if loader.num_workers and not loader.persistent_workers and restarts >= WORTH_TELLING / 2 and window.epochs > 1:
        found.append(_restarted(loader, window.epochs, window.seconds * restarts / window.epochs, restarts))
    rest = wait - restarts
    costs = feeding(seen)
    if rest < WORTH_TELLING or costs is None or costs.keep_up(loader.num_workers):
        return found
    if loader.num_workers == 0 and rest >= MUCH and rest * window.step > SAMPLED * costs.make:
        return [*found, _sampler(loader, costs, rest, window.step)]
    if is_read_by_file(loader):
        found.append(_small_files(loader, costs, rest))
    elif is_read_by_sample(loader):
        found.append(_by_sample(seen, loader, costs, rest))
    elif loader.num_workers == 0 and window.garbage < MOST_OF_IT * rest * window.seconds:
        found.append(_in_main_process(seen, loader, costs, rest))  # else it is the collector that takes long
    return found


def _slow_feed(seen: Observation, window: Window) -> Finding | None:
    """A feed of brim's is no DataLoader, and reads by the shortest way that it found: what is left is its work."""
    share = window.data / window.seconds
    if share < OWN_DATA:
        return None
    lines = [line for line in seen.lines if line.kind == "loader"]
    return Finding(
        cause="batches-too-expensive",
        what="the training waits for brim's feed, which reads the data by the shortest way that it has found",
        evidence=f"{milliseconds(window.data / window.steps)} a step, {percent(share)} of it;"
        f" most of it on {_worst(lines)}",
        cure="make samples cheaper, or once and for all: brim.cached keeps what a deterministic transform returns;"
        " where cores are free, give num_workers= by number",
        share=share,
        gain=gain_of(share),
        line=lines[0].line if lines else "",
    )


def own_data_findings(seen: Observation, shares: Shares) -> list[Finding]:
    """Batches that the script makes itself, without a DataLoader."""
    lines = [line for line in seen.lines if line.kind == "data"]
    share = min(shares.data, sum(line.share for line in lines))
    if share < OWN_DATA:
        return []
    return [
        Finding(
            cause="data-made-in-the-loop",
            what="the training waits while the script makes its batches itself, or gets them from somewhere",
            evidence=f"{percent(share)} of the step, most of it on {_worst(lines)}",
            cure="make batches ahead of time: whole batches from tensors by indexing, a Dataset in a DataLoader with"
            " workers, or brim's loader",
            share=share,
            gain=gain_of(share),
            line=lines[0].line,
        )
    ]


def is_read_by_sample(loader: LoaderSeen) -> bool:
    """Whether batches are put together from small samples, each of which costs little but Python's overhead."""
    samples = loader.samples_per_batch
    if (
        loader.batched_access
        or loader.stream
        or samples < 16
        or loader.make_seconds is None
        or loader.files_opened >= 1
        or _has_slow_collate(loader)
    ):
        return False
    quick = QUICK_ROW if loader.frame else QUICK_SAMPLE + QUICK_TENSOR * loader.batch_tensors
    return loader.batch_bytes / samples <= TABLE_ROW and _own_seconds(loader) / samples <= quick


def _has_slow_collate(loader: LoaderSeen) -> bool:
    """Whether a ``collate_fn`` of the script's own does more with samples than to stack them."""
    collate = loader.collate_seconds or 0.0
    is_most = collate >= MOST_OF_IT * (loader.make_seconds or 0.0)
    return not loader.default_collate and is_most and _own_seconds(loader) / loader.samples_per_batch >= SLOW_COLLATE


def is_read_by_file(loader: LoaderSeen) -> bool:
    """Whether each sample is a file, and opening it costs more than what is done with it."""
    samples = loader.samples_per_batch
    if not samples or loader.make_seconds is None or loader.files_opened < samples / 2:
        return False
    waits = (loader.make_cpu_seconds or 0.0) < WAITS * loader.make_seconds
    return waits or _own_seconds(loader) / samples <= FILE_SAMPLE


def _own_seconds(loader: LoaderSeen) -> float:
    """What a batch takes where the cores are free: its computing, and its waiting for anything but a core."""
    make = loader.make_seconds or 0.0
    if loader.make_running_seconds is None or loader.make_cpu_seconds is None:
        return make
    return loader.make_running_seconds + max(0.0, make - loader.make_cpu_seconds)


def is_begun_every_step(loader: LoaderSeen, window: Window) -> bool:
    """Whether a loader of several batches is begun anew for every one: ``next(iter(loader))``."""
    if loader.length is None or not loader.batch_size or loader.length <= 2 * loader.batch_size:
        return False
    return window.steps >= FEWEST_EPOCHS and window.epochs >= EVERY_STEP * window.steps


def _thrown_away(seen: Observation) -> float:
    """The share in which an order of samples is given up, on the line that has begun it and outside of the loader."""
    return sum(line.share for line in seen.lines if line.kind == "data" and "iter(" in line.text)


def _begun_every_step(loader: LoaderSeen, wait: float) -> Finding:
    workers = f", starts {loader.num_workers} workers" if loader.num_workers else ""
    return Finding(
        cause="epoch-every-step",
        what="every step begins a new epoch of the loader, takes its first batch, and throws the rest away",
        evidence=f"{percent(wait)} of the step goes into it: each time the loader draws an order of {loader.length:,}"
        f" samples{workers}",
        cure="make one iterator and keep it: batches = iter(loader) before the loop, next(batches) in it; or loop over"
        " the loader. Beside the time, next(iter(loader)) never shows the end of an epoch",
        share=wait,
        gain=gain_of(wait),
        line=loader.line,
    )


def _restarted(loader: LoaderSeen, epochs: int, seconds: float, share: float) -> Finding:
    return Finding(
        cause="workers-restarted",
        what=f"{loader.num_workers} worker processes are started anew in every epoch",
        evidence=f"{milliseconds(seconds)} an epoch, {percent(share)} of the time, over {epochs} epochs",
        cure="make the DataLoader once, before the loop over epochs, with persistent_workers=True"
        if loader.made > 1
        else "DataLoader(..., persistent_workers=True)",
        share=share,
        # New workers also have nothing ready: what an epoch waits for its first batch comes on top.
        gain=gain_of(share),
        line=loader.line,
        cures=Cures() if loader.made > 1 else Cures(persistent_workers=True),
    )


def _by_sample(seen: Observation, loader: LoaderSeen, costs: Feeding, wait: float) -> Finding:
    samples = loader.samples_per_batch
    per_sample = (loader.make_seconds or 0.0) / samples
    batches = costs.make / loader.make_seconds if loader.make_seconds else 1.0  # a step
    at_once = costs.make * BATCHED_COST if loader.batched_seconds is None else loader.batched_seconds * batches
    after = costs.rest + at_once
    tried = f"; by one index it takes {milliseconds(at_once)}" if loader.batched_seconds is not None else ""
    now = costs.rest / max(0.01, 1 - wait)
    how = (
        "index whole batches: DataLoader(data, sampler=BatchSampler(...), batch_size=None), or brim's loader"
        if loader.columns
        else "give the data set __getitems__(indices) that returns the whole batch, and an identity collate_fn; or"
        " keep its columns as tensors"
    )
    # Where the data set was asked and did not give whole batches, it has to be changed first.
    refuses = loader.was_probed and loader.batched_seconds is None
    return Finding(
        cause="per-sample-access",
        what=f"batches of {samples:,.0f} rows are fetched and collated one sample at a time",
        evidence=f"{1e6 * per_sample:.0f} us a sample, {milliseconds(costs.make)} a step, for"
        f" {loader.batch_bytes / samples:,.0f} bytes a sample; waiting for it is {percent(wait)} of the step{tried}",
        cure=how,
        share=wait,
        gain=max(1.0, now / after),
        line=loader.line,
        cures=Cures() if refuses else Cures(batched_access=True, num_workers=0),
        further=() if refuses else resident_cures(seen),
    )


def _sampler(loader: LoaderSeen, costs: Feeding, wait: float, step: float) -> Finding:
    """The main process makes batches, and waits longer than making them takes: for which samples they consist of."""
    drawing = max(0.0, wait - costs.make / step)
    return Finding(
        cause="slow-sampler",
        what="the loader takes longer to draw which samples come next than to read them",
        evidence=f"{milliseconds(wait * step)} a step to wait for a batch, {milliseconds(costs.make)} of it to make it",
        cure="draw the indices of an epoch at once, as tensors (torch.randperm, torch.multinomial), in the sampler's"
        " __iter__; a generator that does Python's work for every sample takes its time in the main process",
        share=drawing,
        gain=gain_of(drawing),
        line=loader.line,
    )


def _small_files(loader: LoaderSeen, costs: Feeding, wait: float) -> Finding:
    per_file = costs.make / max(1.0, loader.files_opened)
    now, workers = costs.rest / max(0.01, 1 - wait), costs.best()
    # What is predicted is what can be tried: more workers, where there are cores for them.
    after = costs.step(workers) if workers > loader.num_workers else costs.rest + costs.make * BATCHED_COST
    return Finding(
        cause="small-files",
        what="every sample is a file of its own, and opening, reading and decoding it takes the time",
        evidence=f"{loader.files_opened:,.0f} files a batch, {milliseconds(per_file)} each; {percent(wait)} of"
        " the step",
        cure="keep a file that is asked again open (once in each worker); pack samples with files of their own into"
        " shards that are read in one go (brim data pack), or cache them in memory"
        f"{f'; until then {with_workers(loader, workers)}' if workers > loader.num_workers else ''}",
        share=wait,
        gain=max(1.0, now / after),
        line=loader.line,
        cures=Cures(num_workers=workers, persistent_workers=True) if workers > loader.num_workers else Cures(),
    )


def _in_main_process(seen: Observation, loader: LoaderSeen, costs: Feeding, wait: float) -> Finding:
    workers = costs.best()
    now, after = costs.step(0), costs.step(workers)
    lines = [line for line in seen.lines if line.kind == "loader"]
    is_collate = (loader.collate_seconds or 0.0) > 0.5 * (loader.make_seconds or 1.0)
    where = (
        "putting batches together (collate_fn) takes"
        if is_collate
        else "the data set's __getitem__ and its transforms take"
    )
    waits = costs.make_cpu < WAITS * costs.make
    cure = with_workers(loader, workers)
    if workers == 0:
        cure = "make samples cheaper, or once and for all (cache): this machine has no cores left for workers"
    elif loader.stream:
        cure += SPLITS_ITSELF
    elif not waits and costs.enough() > workers:
        cure += f"; {costs.enough()} would keep up with the step, on as many cores"
    if is_collate:
        cure += "; pad, mask and stack whole tensors in collate_fn (pad_sequence, torch.stack), not their elements, and"
        cure += " do what is the same in every epoch (tokenising, say) once, before the training"
    return Finding(
        cause="slow-collate" if is_collate else "no-workers",
        what=f"the main process makes every batch itself, and {where} long",
        evidence=f"{milliseconds(costs.make)} a step to make a batch"
        f" ({'mostly waiting' if waits else 'mostly computing'}),"
        f" {percent(wait)} of the step; most of it on {_worst(lines)}",
        cure=cure,
        share=wait,
        gain=max(1.0, now / after),
        line=lines[0].line if lines else loader.line,
        cures=Cures(num_workers=workers, persistent_workers=True) if workers and not loader.stream else Cures(),
    )


def with_workers(loader: LoaderSeen, workers: int) -> str:
    """How a cure asks for worker processes: a loader that is made in every epoch would start them each time."""
    made_once = ", made once, before the loop over epochs" if loader.made > 1 else ""
    return f"DataLoader(..., num_workers={workers}, persistent_workers=True){made_once}"


def _worst(lines: list[LineTime]) -> str:
    """The first of some lines, with its source."""
    return named(max(lines, key=lambda line: line.share)) if lines else "no line of your own"
