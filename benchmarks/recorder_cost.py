"""What recording the shares of a step costs: steps with the recorder and without it, in turns within one run.

Every 50 steps the recorder is switched on or off, so that both see the same machine; the cost is the median of the
differences between neighbouring stretches, with the middle half of them. A step without it does what the loop did
before there was one: it measures how long it waits for batches. On a GPU stretches are timed by the clock, on a CPU by
the processor time of the thread that trains, which other programs on the machine disturb less.

    python benchmarks/recorder_cost.py [--device cuda] [--steps 20000] [--capture off] [--json out.json]
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from about import about
from torch import nn

import brim
from brim.engine.run import assembly
from brim.engine.shares.recorded_shares import SharesRecorder, shares_recorder
from brim.engine.shares.tensor_reads import watched_reads

STRETCH = 50  # steps; as many as a line of the log has, and where losses are read the device is waited for
WARM_UP = 6  # stretches
CALLS = 100_000
SIZES = {"tiny": (64, 32), "small": (512, 256), "medium": (1024, 1024)}  # width and batch


class Silent:
    """What the loop needs, and nothing else."""

    def __init__(self) -> None:
        self.asked = 0.0

    def asks_for_batch(self) -> None:
        self.asked = time.perf_counter()

    def got_batch(self) -> float:
        return time.perf_counter() - self.asked

    def calls_step(self) -> None: ...

    def ends_step(self) -> None: ...

    def note_copy(self, start: Any, end: Any) -> None: ...

    def pause(self) -> None: ...

    def forget(self) -> None: ...

    def take(self, seconds: float) -> dict[str, float]:
        return {}


class Alternating:
    """The recorder and none in turns. ``stretches``: the seconds of each, with it and without."""

    def __init__(self, real: SharesRecorder, clock: Callable[[], float]) -> None:
        self.real, self.silent, self.clock = real, Silent(), clock
        self.now: SharesRecorder | Silent = self.silent
        self.stretches: list[float] = []
        self._steps, self._began = 0, clock()

    @contextmanager
    def recording(self) -> Iterator[None]:
        with self.real.recording():
            yield

    def ends_step(self) -> None:
        self.now.ends_step()
        self._steps += 1

    def take(self, seconds: float) -> dict[str, float]:
        """A line is written: the losses have been read."""
        found = self.now.take(seconds)
        if self._steps == STRETCH:
            now = self.clock()
            self.stretches.append(now - self._began)
            self.real.pause()
            self.now = self.silent if self.now is self.real else self.real
            self._began = now
        self._steps = 0 if self._steps >= STRETCH else self._steps
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


def costs(device: str, width: int, batch: int, steps: int, capture: str) -> dict[str, float]:
    """Microseconds a step, and what the recorder adds."""
    made: list[Alternating] = []

    def alternating(chosen: torch.device, accumulation: int) -> Alternating:
        clock = time.perf_counter if chosen.type == "cuda" else time.thread_time
        made.append(Alternating(shares_recorder(chosen, accumulation), clock))
        return made[-1]

    data = [(torch.randn(batch, width, device=device), torch.randn(batch, 1, device=device)) for _ in range(8)]
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    before, assembly.shares_recorder = assembly.shares_recorder, alternating  # type: ignore[assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            brim.Trainer(
                model, Repeated(data, steps), loss_fn=nn.MSELoss(), device=device, threads=1, log_every=STRETCH,
                run_dir=Path(folder) / "run", capture=capture, micro_batch=batch, checkpoint_every=10**9,
            ).fit()  # fmt: skip
    finally:
        assembly.shares_recorder = before
    return _summed_up(made[0].stretches[WARM_UP:])


class Repeated:
    """A few batches, again and again."""

    def __init__(self, batches: list[Any], steps: int) -> None:
        self.batches, self.steps = batches, steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.steps):
            yield self.batches[index % len(self.batches)]


def _summed_up(stretches: list[float]) -> dict[str, float]:
    """Of neighbours: one without it (the first), then one with it."""
    micro = [seconds / STRETCH * 1e6 for seconds in stretches]
    pairs = list(zip(micro[::2], micro[1::2], strict=False))
    differences = [with_it - without for without, with_it in pairs]
    step = statistics.median(without for without, _ in pairs)
    low, middle, high = statistics.quantiles(differences, n=4)
    return {"pairs": len(pairs), "step_us": step, "cost_us": middle, "low_us": low, "high_us": high}


def call_cost(device: str) -> float:
    """Microseconds a step of the recorder's calls alone, more than without it: the median of rounds in turns."""
    recorder, silent, differences = shares_recorder(torch.device(device), 1), Silent(), []
    for _ in range(11):
        plain = _time_calls(silent)
        differences.append(_time_calls(recorder) - plain)
    return statistics.median(differences) * 1e6


def _time_calls(recorder: SharesRecorder | Silent) -> float:
    began = time.thread_time()
    for step in range(CALLS):
        recorder.asks_for_batch()
        recorder.got_batch()
        recorder.ends_step()
        if step % STRETCH == 0:
            recorder.take(1.0)
    return (time.thread_time() - began) / CALLS


def read_cost() -> float:
    """Nanoseconds that a read of a tensor takes longer while a run trains, outside of the steps that are looked at."""

    class Idle:
        is_sampling = False

        def wait_begins(self) -> None: ...

        def wait_ends(self, begin: Any, has_waited: bool) -> None: ...

    value, times = torch.zeros(1), []
    for _ in range(5):
        plain = _time_reads(value)
        with watched_reads(Idle(), "cuda"):
            times.append(_time_reads(value) - plain)
    return statistics.median(times) * 1e9


def _time_reads(value: torch.Tensor) -> float:
    began = time.thread_time()
    for _ in range(CALLS):
        value.item()
    return (time.thread_time() - began) / CALLS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--capture", default="auto", choices=["auto", "off"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    print(f"{'model':8} {'step us':>10} {'recorder us':>12} {'middle half':>18} {'share':>8}")
    for name in options.sizes:
        row = costs(options.device, *SIZES[name], options.steps, options.capture)
        found[name] = row
        middle, share = f"{row['low_us']:.2f} to {row['high_us']:.2f}", row["cost_us"] / row["step_us"]
        print(f"{name:8} {row['step_us']:10.1f} {row['cost_us']:12.2f} {middle:>18} {share:8.2%}")
    calls, reads = call_cost(options.device), read_cost()
    print(f"the recorder's calls alone: {calls:.2f} us a step")
    print(f"a read of a tensor outside of the steps that are looked at: {reads:.0f} ns more (GPU runs only)")
    if options.json:
        told = {
            "about": about(),
            "device": options.device,
            "capture": options.capture,
            "sizes": found,
            "read_ns": reads,
        }
        options.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
