"""From stored samples to the device: brim beside what people use today, in one run, as ratios.

    python benchmarks/feed.py [columns memory shards | resident workers images] [--cpu-time] [--json out.json]

Parts that need no GPU: ``columns`` (a million rows of numbers), ``shards`` (beside webdataset), ``memory`` (a million
Python objects in worker processes), ``workers`` (how close the measured number of workers comes to the best of a grid).
With a GPU: ``resident`` (the same rows with a recommender's training step) and ``images`` (share of the ceiling with
ResNet-50, and how much of the copies runs under the computation). Rounds are interleaved, figures are medians.
``--cpu-time`` is for machines with other work: one thread, and the seconds that the process computed instead of those
that passed. It is fair to ``columns`` and ``shards``, which read in one process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from about import about
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import brim
from brim.data import DevicePrefetcher

ROWS, BATCH = 1_000_000, 2048
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "CPU of the process": time.process_time}
IN_ONE_PROCESS = {"columns", "shards"}


def columns_of_numbers() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randint(0, 1_000_000, (ROWS,)) for _ in range(3))


def seconds(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    work()
    return clock() - began


def drain(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass


def interleaved(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each contender says in each round; the first round warms everything up and does not count."""
    said: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            value = run()
            if number:
                said[name].append(value)
    return said


def columns(rounds: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """A million rows of three whole numbers, shuffled, batches of 2,048: samples a second of an epoch."""
    data = columns_of_numbers()
    default = DataLoader(TensorDataset(*data), BATCH, shuffle=True)
    ours = {
        "brim.Loader, a tuple of tensors": brim.Loader(data, BATCH),
        "brim.Loader, a Dataset with batched access": brim.Loader(ByIndex(data), BATCH, feed="batched"),
    }
    contenders = {"DataLoader, default": lambda: ROWS / seconds(lambda: drain(default), clock)}
    for name, loader in ours.items():
        contenders[name] = lambda loader=loader: ROWS / seconds(lambda: drain(loader), clock)  # type: ignore[misc]
    rates = interleaved(contenders, rounds)
    return _beside("samples/s", rates, "DataLoader, default")


class ByIndex(Dataset[Any]):
    """A Dataset that indexes its arrays, and so can be asked for many samples by name (feed="batched")."""

    def __init__(self, data: tuple[Tensor, ...]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data[0])

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(column[index] for column in self.data)


def resident(rounds: int) -> dict[str, Any]:
    """BPR with 64-wide embeddings and Adam on (user, item, negative): samples a second with the training step."""
    users, items = 6040, 3706
    torch.manual_seed(0)
    data = torch.randint(0, users, (ROWS,)), torch.randint(0, items, (ROWS,)), torch.randint(0, items, (ROWS,))
    device = torch.device("cuda")

    def steps(batches: Iterator[Any], number: int) -> float:
        torch.manual_seed(0)
        of_user, of_item = nn.Embedding(users, 64).to(device), nn.Embedding(items, 64).to(device)
        optimizer = torch.optim.Adam([*of_user.parameters(), *of_item.parameters()], lr=1e-3)

        def run(count: int) -> None:
            for user, item, other in islice(batches, count):
                user, item, other = (part.to(device, non_blocking=True) for part in (user, item, other))
                optimizer.zero_grad(set_to_none=True)
                vector = of_user(user)
                margin = (vector * (of_item(item) - of_item(other))).sum(1)
                nn.functional.softplus(-margin).mean().backward()
                optimizer.step()
            torch.cuda.synchronize()

        run(30)
        return number * BATCH / seconds(lambda: run(number))

    usual = DataLoader(
        TensorDataset(*data), BATCH, shuffle=True, num_workers=8, pin_memory=True, persistent_workers=True,
        prefetch_factor=4,
    )  # fmt: skip
    ours = brim.Loader(data, BATCH, device="cuda")
    host = brim.Loader(data, BATCH)
    prefetch = DevicePrefetcher(device)
    rates = interleaved(
        {
            "DataLoader, 8 workers, pinned, persistent, prefetch 4": lambda: steps(iter(usual), 300),
            "brim, columns in host memory, prefetched": lambda: steps(prefetch(iter(host)), 400),
            "brim, resident": lambda: steps(iter(ours), 400),
        },
        rounds,
    )
    table = _beside("samples/s with the step", rates, next(iter(rates)))
    alone = interleaved(
        {
            "DataLoader, 8 workers, pinned, persistent, prefetch 4": lambda: ROWS / seconds(lambda: drain(usual)),
            "brim, resident": lambda: ROWS / seconds(lambda: (drain(ours), torch.cuda.synchronize())),
        },
        2,
    )
    return {**table, "without a step": _beside("samples/s", alone, next(iter(alone)))}


class Burning(Dataset[Any]):
    """5 ms of computation a sample, as decoding and augmenting take."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass
        return torch.full((3, 32, 32), index % 256, dtype=torch.uint8), index


def loader_rate(batches: Iterator[Any], warm_up: int, wave: int, at_least: float = 1.5) -> float:
    """Batches a second in whole waves: workers that take equally long deliver all at once."""
    drain(islice(batches, warm_up))
    began, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < at_least:
        drain(islice(batches, wave))
        count += wave
    return count / elapsed


def workers(rounds: int) -> dict[str, Any]:
    """A transform of 5 ms a sample, batches of 64: the number of workers that brim measures, beside a grid."""
    data, size = Burning(200_000), 64
    cores = len(os.sched_getaffinity(0))
    grid = [(0, 2)] + [(count, ahead) for count in (2, 4, 8, 12, 16) if count <= cores for ahead in (2, 4, 8)]

    def torchs(count: int, ahead: int) -> float:
        settings: dict[str, Any] = {"num_workers": count, "prefetch_factor": ahead} if count else {}
        return size * loader_rate(iter(DataLoader(data, size, shuffle=True, **settings)), max(1, count), max(1, count))

    rates = {f"{count} workers, prefetch {ahead}": torchs(count, ahead) for count, ahead in grid}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BRIM_CACHE"] = folder  # measured now, not remembered
        loader = brim.Loader(data, size)
        tuning = seconds(lambda: loader.choice)
    choice = loader.choice
    best = sorted(rates, key=lambda name: -rates[name])[:3]
    contenders: dict[str, Callable[[], float]] = {
        name: partial(torchs, *setting) for name, setting in zip(rates, grid, strict=True) if name in best
    }
    wave = max(1, choice.workers)
    contenders["brim"] = lambda: size * loader_rate(loader.batches(0, 0), wave, wave)
    rounds_again = interleaved(contenders, max(2, rounds // 2))
    again = {name: statistics.median(values) for name, values in rounds_again.items()}
    top = max(value for name, value in again.items() if name != "brim")
    return {
        "grid": {name: round(rate, 1) for name, rate in rates.items()},
        "best three once more": {name: round(value, 1) for name, value in again.items()},
        "chosen": f"{choice.workers} workers, prefetch {choice.prefetch}",
        "why": choice.reason,
        "share of the best": round(again["brim"] / top, 4),
        "tuned in seconds": round(tuning, 1),
    }


class TutorialPrefetcher:
    """The side-stream prefetcher of PyTorch's tutorial on data loading, written again from its description."""

    def __init__(self, batches: Iterator[Any], device: torch.device) -> None:
        self.batches, self.device, self.stream = batches, device, torch.cuda.Stream()
        self._load()

    def _load(self) -> None:
        self.next = next(self.batches, None)
        if self.next is not None:
            with torch.cuda.stream(self.stream):
                self.next = tuple(part.to(self.device, non_blocking=True) for part in self.next)

    def __iter__(self) -> Iterator[Any]:
        while self.next is not None:
            current = torch.cuda.current_stream()
            current.wait_stream(self.stream)
            batch = self.next
            for part in batch:
                part.record_stream(current)
            self._load()
            yield batch


def images(rounds: int) -> dict[str, Any]:
    """ResNet-50, bf16, batches of 64 x 3 x 224 x 224 in pinned memory: share of the speed without any copying."""
    from torchvision.models import resnet50

    device = torch.device("cuda")
    torch.manual_seed(0)
    model = resnet50().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    pinned = [(torch.randn(64, 3, 224, 224).pin_memory(), torch.randint(0, 1000, (64,)).pin_memory()) for _ in range(6)]
    pageable = [(x.clone(), y.clone()) for x, y in pinned]
    on_device = [tuple(part.to(device) for part in batch) for batch in pinned]

    def train(batches: Iterable[Any], steps: int = 40) -> float:
        batches = iter(batches)

        def run(count: int) -> None:
            for x, y in islice(batches, count):
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            torch.cuda.synchronize()

        run(5)
        return steps * 64 / seconds(lambda: run(steps))

    prefetch = DevicePrefetcher(device)
    moved = ((x.to(device), y.to(device)) for x, y in cycle(pinned))
    rates = interleaved(
        {
            "ceiling: batches on the device": lambda: train(cycle(on_device)),
            "brim, pinned batches": lambda: train(prefetch(cycle(pinned))),
            "brim, pageable batches": lambda: train(prefetch(cycle(pageable))),
            "tutorial's prefetcher, pinned": lambda: train(TutorialPrefetcher(cycle(pinned), device)),
            "plain .to(device), pinned": lambda: train(moved),
            "plain .to(device), pageable": lambda: train((x.to(device), y.to(device)) for x, y in cycle(pageable)),
        },
        rounds,
    )
    table = _beside("images/s", rates, "ceiling: batches on the device")
    return {**table, "copy under computation": overlap(lambda: train(prefetch(cycle(pinned)), 10))}


def overlap(work: Callable[[], Any]) -> dict[str, float]:
    """How much of the copies to the device ran while kernels ran, from a profile of the device's own clock."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    spans = [(e["ts"], e["ts"] + e["dur"], e["cat"], e["name"]) for e in events if e.get("ph") == "X"]
    kernels = _union([(a, b) for a, b, kind, _ in spans if kind == "kernel"])
    copies = [(a, b) for a, b, kind, name in spans if kind == "gpu_memcpy" and "HtoD" in name]
    total = sum(b - a for a, b in copies)
    under = sum(max(0.0, min(b, d) - max(a, c)) for a, b in copies for c, d in kernels)
    return {"copies in ms": round(total / 1e3, 3), "share under kernels": round(under / total, 4)}


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def memory(rounds: int) -> dict[str, Any]:
    """A million small Python objects in a list, 4 workers, 3 epochs: memory of all processes, shared pages by part."""
    found = {}
    for who in ("DataLoader", "brim"):
        child = [sys.executable, __file__, f"_memory_of_{who}"]
        output = subprocess.run(child, capture_output=True, text=True, check=True).stdout
        found[who] = json.loads(output.splitlines()[-1])
    return {
        who: {**figures, "growth": round(figures["MB after each epoch"][-1] / figures["MB at the start"] - 1, 4)}
        for who, figures in found.items()
    }


class Listed(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def memory_of(who: str) -> dict[str, Any]:
    from brim.hardware.host import process_memory

    def in_use() -> float:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return sum(process_memory(pid) or 0 for pid in ("self", *children)) / 1e6

    items = [(index, f"item {index}", index * 0.5) for index in range(ROWS)]
    settings: dict[str, Any] = {"num_workers": 4, "persistent_workers": True}
    loader: Any = (
        DataLoader(Listed(items), BATCH, shuffle=True, **settings)
        if who == "DataLoader"
        else brim.Loader(items, BATCH, **settings)
    )
    after, start = [], 0.0
    for epoch in range(3):
        for number, _ in enumerate(loader):
            if epoch == 0 and number == 8:
                start = in_use()
        after.append(round(in_use(), 1))
    return {"MB at the start": round(start, 1), "MB after each epoch": after}


def shards(rounds: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """20,000 samples of a 3 x 32 x 32 image and a class in tar shards, decoded, in one process: samples a second."""
    import webdataset  # a peer, not something brim needs

    from brim.data import Shards, pack

    samples = 20_000
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (samples, 3, 32, 32), dtype=torch.uint8)
    with tempfile.TemporaryDirectory() as folder:
        pack(({"npy": pixels[i], "cls": i % 10} for i in range(samples)), Path(folder) / "s", samples_per_shard=2000)
        names = sorted(str(path) for path in (Path(folder) / "s").glob("*.tar"))

        def theirs(buffer: int) -> float:
            stream = webdataset.WebDataset(names, shardshuffle=len(names) if buffer else False, seed=0)
            stream = (stream.shuffle(buffer) if buffer else stream).decode()
            return samples / seconds(lambda: drain(stream), clock)

        def theirs_in_batches() -> float:
            stream = webdataset.WebDataset(names, shardshuffle=len(names), seed=0).shuffle(1000).decode()
            return samples / seconds(lambda: drain(stream.to_tuple("npy", "cls").batched(256)), clock)

        data = Shards(Path(folder) / "s")
        loader = brim.Loader(data, 256, feed="samples", collate_fn=_pixels_and_class)
        rates = interleaved(
            {
                "webdataset, in order": lambda: theirs(0),
                "brim.Shards, in order": lambda: (
                    samples / seconds(lambda: drain(data[i] for i in range(samples)), clock)
                ),
                "webdataset, shuffle(1000), batches of 256": theirs_in_batches,
                "brim.Loader(Shards), shuffled, batches of 256": lambda: (
                    samples / seconds(lambda: drain(loader), clock)
                ),
            },
            rounds,
        )
    return {
        "in order": _beside("samples/s", dict(list(rates.items())[:2]), "webdataset, in order"),
        "shuffled": _beside("samples/s", dict(list(rates.items())[2:]), "webdataset, shuffle(1000), batches of 256"),
    }


def _pixels_and_class(samples: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
    return torch.stack([sample["npy"] for sample in samples]), torch.tensor([sample["cls"] for sample in samples])


def _beside(unit: str, rates: dict[str, list[float]], anchor: str) -> dict[str, Any]:
    """Medians, and the ratios within each round, so that what the machine did meanwhile cancels out."""
    ratios = {name: [a / b for a, b in zip(values, rates[anchor], strict=True)] for name, values in rates.items()}
    return {
        "unit": unit,
        "rates": {name: round(statistics.median(values), 1) for name, values in rates.items()},
        "ratios": {name: round(statistics.median(values), 4) for name, values in ratios.items()},
        "ranges": {name: [round(min(values), 4), round(max(values), 4)] for name, values in ratios.items()},
        "rounds": {name: [round(value, 1) for value in values] for name, values in rates.items()},
    }


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "columns": columns, "memory": memory, "shards": shards, "workers": workers, "resident": resident, "images": images,
}  # fmt: skip
WITHOUT_GPU = ("columns", "memory", "shards")


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1].startswith("_memory_of_"):
        print(json.dumps(memory_of(sys.argv[1].removeprefix("_memory_of_"))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu-time", action="store_true", help="one thread, timed by what the process computed")
    arguments = parser.parse_args()
    clock = "CPU of the process" if arguments.cpu_time else "wall"
    if arguments.cpu_time:
        torch.set_num_threads(1)
    gpu = torch.cuda.is_available()
    parts = arguments.parts or (WITHOUT_GPU if not gpu else tuple(PARTS))
    results: dict[str, Any] = {**about("webdataset", "torchvision"), "clock": clock}
    print(", ".join(f"{name} {fact}" for name, fact in results.items()), flush=True)
    for part in parts:
        print(f"{part}: {PARTS[part].__doc__}", flush=True)
        timed = {"clock": CLOCKS[clock]} if part in IN_ONE_PROCESS else {}
        results[part] = PARTS[part](arguments.rounds, **timed)
        print(json.dumps(results[part], indent=2), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
