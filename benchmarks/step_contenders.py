"""How the contenders of benchmarks/step.py run and are timed: a bare loop, Lightning and brim, all with the same clock.

The clock starts after a warm-up and stops when the time is over; the device is waited for at these two moments only, so
whatever lies between (reading the data, turns of an epoch, the log) counts.
"""

import gc
import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import brim
from brim.engine.evaluation.evaluation import evaluate_model

GPU = torch.device("cuda", 0)
WARM_UP, LONGEST_WARM_UP = 60, 200  # steps
REPLAYS = 40  # replays of a graph in a stretch; five stretches stay within an epoch of the data
LR = 1e-3


@dataclass
class Job:
    """What is trained: the same for every contender."""

    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Any], torch.Tensor]
    batch_size: int
    precision: str  # "32", "tf32" or "bf16"
    ready: Callable[[], list[Any]]  # batches on the device, for loops that bring no loader
    feed: Callable[[], Any]  # what brim trains on


class Clock:
    """Counts steps and takes the time of those after the warm-up."""

    def __init__(self, seconds: float, profiled: bool = False) -> None:
        self.seconds = seconds
        self.steps = self.first = 0
        self.began: float | None = None
        self.took = 0.0
        self.busy: float | None = None
        self.is_settled: Callable[[], bool] = lambda: True  # whether the warm-up has done what it is for
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) if profiled else None

    def tick(self) -> bool:
        """One more step was handed to the device; True when the time is over."""
        self.steps += 1
        if self.began is None:
            if self.steps >= LONGEST_WARM_UP or (self.steps >= WARM_UP and self.is_settled()):
                self._start()
            return False
        if time.perf_counter() - self.began < self.seconds:
            return False
        self._stop(self.began)
        return True

    def samples_per_second(self, batch_size: int) -> float:
        if not self.took:
            raise RuntimeError(f"it ended after {self.steps} steps, before it could be timed")
        return (self.steps - self.first) * batch_size / self.took

    def _start(self) -> None:
        if self._profile is not None:
            self._profile.start()
        torch.cuda.synchronize()
        self.first, self.began = self.steps, time.perf_counter()

    def _stop(self, began: float) -> None:
        torch.cuda.synchronize()
        self.took = time.perf_counter() - began
        if self._profile is not None:
            self._profile.stop()
            kernels = sum(event.self_device_time_total for event in self._profile.key_averages()) / 1e6
            self.busy = kernels / self.took


@dataclass
class Measured:
    """One turn of one contender."""

    samples_per_second: float
    busy: float | None = None
    report: dict[str, Any] = field(default_factory=dict)


Contender = Callable[[Clock], Measured]


def clean() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def timed(batches: Iterable[Any], clock: Clock) -> Iterator[Any]:
    """The batches, epoch after epoch, until the time is over."""
    while True:
        for batch in batches:
            yield batch
            if clock.tick():
                return


@contextmanager
def matmuls_in(precision: str) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    if precision == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def bare(
    job: Job,
    batches: Callable[[], Iterable[Any]] | None = None,
    fused: bool | None = None,
    wrap: Callable[[nn.Module], nn.Module] = lambda model: model,
) -> Contender:
    """The loop that people write; ``wrap``: with the model in torch's DistributedDataParallel, for one."""

    def run(clock: Clock) -> Measured:
        torch.manual_seed(0)
        model = wrap(job.model().to(GPU))
        optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=fused)
        source = (job.ready if batches is None else batches)()
        with matmuls_in(job.precision):
            for batch in timed(source, clock):
                batch = [part.to(GPU, non_blocking=True) for part in batch]
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cuda", torch.bfloat16, enabled=job.precision == "bf16"):
                    loss = job.loss(model, batch)
                loss.backward()
                optimizer.step()
        return Measured(clock.samples_per_second(job.batch_size), clock.busy)

    return run


class TimedSource:
    """Batches without a length, as Lightning takes them; it goes through them once."""

    def __init__(self, batches: list[Any], clock: Clock) -> None:
        self.batches, self.clock = batches, clock

    def __iter__(self) -> Iterator[Any]:
        return timed(self.batches, self.clock)


def lightning_trainer(job: Job) -> Contender:
    """Lightning, with everything switched off that is not training, on batches that are on the device already."""

    def run(clock: Clock) -> Measured:
        import lightning

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.model = job.model()

            def training_step(self, batch, index):  # type: ignore[no-untyped-def]
                return job.loss(self.model, batch)

            def configure_optimizers(self):  # type: ignore[no-untyped-def]
                return torch.optim.Adam(self.parameters(), lr=LR)

        torch.manual_seed(0)
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
            precision="bf16-mixed" if job.precision == "bf16" else "32-true",
        )  # fmt: skip
        with matmuls_in(job.precision):
            trainer.fit(Module(), TimedSource(job.ready(), clock))
        return Measured(clock.samples_per_second(job.batch_size), clock.busy)

    return run


def tick_between(feed: Any, clock: Clock, trainer: Callable[[], brim.Trainer]) -> None:
    """Let the clock count batches as they are asked for: a callback would be another way to train."""
    batches = feed.batches

    def ticking(*arguments: Any, **settings: Any) -> Iterator[Any]:
        clock.is_settled = lambda: is_decided(trainer())
        for batch in batches(*arguments, **settings):
            yield batch
            if clock.tick():
                trainer().stop("measured")

    feed.batches = ticking


def is_decided(trainer: brim.Trainer) -> bool:
    """Whether it is known that steps are captured, or why they are not."""
    report = getattr(trainer, "captured", None)
    return report is None or bool(report.captured or report.reason)


def report_of(trainer: brim.Trainer) -> dict[str, Any]:
    report = getattr(trainer, "captured", None)
    return asdict(report) if is_dataclass(report) and not isinstance(report, type) else {}


def fit(
    job: Job, capture: str, clock: Clock | None = None, callbacks: Sequence[brim.Callback] = (), **settings: Any
) -> brim.Trainer:
    """A run as users make it, in a folder that is thrown away; no checkpoint but the last."""
    torch.manual_seed(settings.get("seed", 0))
    feed = job.feed()
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            job.model(), feed, loss_fn=job.loss, optimizer="Adam", lr=LR, precision=job.precision,
            device="cuda", capture=capture, run_dir=Path(folder) / "run", callbacks=callbacks,
            **{"epochs": 1_000_000, "checkpoint_every": 1_000_000_000, **settings},
        )  # fmt: skip
        if clock is not None:
            tick_between(feed, clock, lambda: trainer)
        trainer.fit()
    return trainer


def brim_trainer(job: Job, capture: str, **settings: Any) -> Contender:
    def run(clock: Clock) -> Measured:
        trainer = fit(job, capture, clock, **settings)
        return Measured(clock.samples_per_second(job.batch_size), clock.busy, report_of(trainer))

    return run


def evaluated(job: Job, capture: str) -> Contender:
    """Evaluations of a run, one after the other; the first two warm up."""

    def run(clock: Clock) -> Measured:
        feed = job.feed()
        trainer = brim.Trainer(job.model(), feed, loss_fn=job.loss, precision=job.precision, capture=capture)
        evaluator, model = trainer._evaluators.evaluator(feed), trainer.precision.placed(trainer.model, trainer.loss_fn)
        samples, done = feed.samples, 0
        for _ in range(2):
            evaluate_model(evaluator, model)
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < clock.seconds:
            evaluate_model(evaluator, model)  # ends with a number on the host, so the device is done
            done += samples
        return Measured(done / took)

    return run


class ReplayAlone(brim.Callback):
    """At the end of a run, replays its graph and does nothing else."""

    def __init__(self) -> None:
        self.seconds = 0.0  # of a replay

    def on_fit_end(self, trainer: Any) -> None:
        graph = next(iter(trainer._run.captured.graphs.values()))
        stretches = []
        for _ in range(5):
            graph.inputs.cursor.go_to(0)  # the graph walks through its block of data by itself
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(REPLAYS):
                graph.replay()
            torch.cuda.synchronize()
            stretches.append(time.perf_counter() - began)
        self.seconds = sorted(stretches)[2] / REPLAYS


def replay_alone(job: Job) -> float:
    """Samples a second when nothing happens but replaying the graph of a captured step: what brim cannot exceed."""
    alone = ReplayAlone()
    fit(job, "require", Clock(0.0), [alone])
    return job.batch_size / alone.seconds


def final_loss(job: Job, capture: str, seed: int, steps: int) -> float:
    """The mean loss of the last 50 of so many steps."""

    class Last(brim.Callback):
        def __init__(self) -> None:
            self.losses: list[torch.Tensor] = []

        def on_step_end(self, trainer: brim.Trainer, step: int, loss: torch.Tensor) -> None:
            if step > steps - 50:
                self.losses.append(loss.detach().clone())

    last = Last()
    fit(job, capture, callbacks=[last], seed=seed, max_steps=steps)
    return float(torch.stack(last.losses).double().mean())


def take_turns(
    contenders: dict[str, Contender], rounds: int, seconds: float, busy_seconds: float = 0.1
) -> dict[str, dict[str, Any]]:
    """Interleaved rounds, then a short look with the profiler. Who fails is left out from then on, with the reason."""
    rows: dict[str, dict[str, Any]] = {name: {"rounds": []} for name in contenders}
    names = list(contenders)
    for number, profiled in itertools.chain(((n, False) for n in range(rounds)), [(0, True)]):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            row = rows[name]
            if "error" in row:
                continue
            try:
                found = contenders[name](Clock(busy_seconds if profiled else seconds, profiled))
            except Exception as error:
                message = (str(error).splitlines() or [""])[0]
                row["busy_error" if profiled else "error"] = f"{type(error).__name__}: {message}"[:300]
            else:
                if profiled:
                    row["busy"] = found.busy
                else:
                    row["rounds"].append(found.samples_per_second)
                    row.update({"report": found.report} if found.report else {})
            clean()
    return rows
