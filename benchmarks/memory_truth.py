"""Measure, on a GPU, the peak memory of every case in the zoo, each in a fresh process.

    python benchmarks/memory_truth.py                 # writes benchmarks/results/memory_truth.jsonl
    python benchmarks/memory_truth.py --only lstm     # cases whose name contains a word
    python benchmarks/memory_truth.py --fresh         # the few cases that were measured last
    python benchmarks/memory_truth.py --only new      # popular models; writes benchmarks/results/memory_new.jsonl
    python benchmarks/memory_truth.py --only new --resume     # those of them that have no row yet
    python benchmarks/memory_truth.py --caps          # the largest batch that really trains under a cap

A case is three steps of: make a batch while the last one is alive, zero_grad, forward and loss under autocast,
backward, step. Rows say what torch allocated and reserved at the peak, and what the process takes of the card beyond
that (the context). What NVML shows as used on the card is reserved + context + the driver's own reserve.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
from about import about
from memory_zoo import CAPS, CASES, FRESH, JOBS, NEW, OPTIMIZERS, Case

RESULTS = Path(__file__).parent / "results"
DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
STEPS = 3
MOST_TRIES = 24


def train(case: Case, after_step: Callable[[int], None] = lambda step: None) -> int:
    """The steps that the forecast is about, on the GPU; the answer is the model's number of parameters.

    A step that the scaler of fp16 skips, because the gradients overflowed, is not counted: it makes no optimizer state.
    """
    job = JOBS[case.job]
    dtype = DTYPES[case.precision]
    torch.manual_seed(0)
    model = job.model().cuda().train()
    optimizer = OPTIMIZERS[case.optimizer]([p for p in model.parameters() if p.requires_grad])
    scaler = torch.amp.GradScaler("cuda", enabled=case.precision == "fp16")
    taken = tries = 0
    while taken < STEPS and tries < MOST_TRIES:
        with torch.device("cuda"):
            args, kwargs = job.batch(case.batch_size)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
            loss = job.loss(model(*args, **kwargs))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scale = scaler.get_scale()
        scaler.update()
        tries += 1
        taken += scaler.get_scale() >= scale
        after_step(tries)
    torch.cuda.synchronize()
    return sum(parameter.numel() for parameter in model.parameters())


def measure(case: Case) -> dict[str, Any]:
    """One row of the truth; run in a process of its own."""
    row: dict[str, Any] = {
        "job": case.job, "batch_size": case.batch_size, "optimizer": case.optimizer, "precision": case.precision,
    }  # fmt: skip
    try:
        parameters = train(case)
    except Exception as error:
        return {**row, "error": f"{type(error).__name__}: {error}"[:300]}
    return {
        **row,
        "held_back": case.held_back,
        "parameters": parameters,
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "context": process_memory() - torch.cuda.memory_reserved(),
    }


def process_memory() -> int:
    """Bytes of the card that NVML counts for this process."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if process.pid == os.getpid() and process.usedGpuMemory:
            return int(process.usedGpuMemory)
    raise RuntimeError("NVML does not say what this process uses")


def card_memory() -> int:
    """Bytes of the card in use by everybody, the driver included."""
    import pynvml

    pynvml.nvmlInit()
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)


def in_fresh_processes(
    function: Callable[[Any], Any], items: list[Any], at_once: int
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Results in order. Children are forked before CUDA starts, so that imports are paid once and peaks never mix."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(at_once, mp_context=context, max_tasks_per_child=None) as pool:
        # A worker thread per slot, and a forked process per item.
        yield from zip(items, pool.map(_in_child, [(function, item) for item in items]), strict=True)


def _in_child(task: tuple[Callable[[Any], Any], Any]) -> dict[str, Any]:
    function, item = task
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)

    def work() -> None:
        torch.set_num_threads(2)
        writer.send(function(item))

    child = context.Process(target=work)
    child.start()
    writer.close()
    try:
        answer: dict[str, Any] = reader.recv()
    except EOFError:
        answer = {"error": "the process died"}
    child.join()
    return answer


def largest_batch(search: tuple[str, str, str, int]) -> dict[str, Any]:
    """The largest batch size whose steps run under a cap: doubling, then bisection to about one part in a hundred."""
    job, optimizer, precision, cap = search

    def fits(batch_size: int) -> bool:
        return "error" not in _in_child((_measure_capped, (Case(job, batch_size, optimizer, precision), cap)))

    low, high = 0, 1
    while fits(high):
        low, high = high, high * 2
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return {
        "job": job, "optimizer": optimizer, "precision": precision, "cap_gib": cap, "largest": low, "too_large": high,
    }  # fmt: skip


def _measure_capped(capped: tuple[Case, int]) -> dict[str, Any]:
    case, cap = capped
    torch.cuda.set_per_process_memory_fraction(cap * 2**30 / torch.cuda.get_device_properties(0).total_memory)
    return measure(case)


def header() -> dict[str, Any]:
    """What the figures depend on."""
    return _in_child((_header, None))


def _header(_: None) -> dict[str, Any]:
    import pynvml

    pynvml.nvmlInit()
    idle = card_memory()
    torch.zeros(1, device="cuda")
    return {
        "card": torch.cuda.get_device_name(),
        "card_memory": torch.cuda.get_device_properties(0).total_memory,
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver_reserve": idle,
        **about("transformers", "torchvision", "peft"),
    }


def import_everything() -> None:
    """Before the fork: what every child would import for itself."""
    import peft  # noqa: F401
    import pynvml  # noqa: F401
    import torchvision  # noqa: F401
    from transformers import (  # noqa: F401
        BertForMaskedLM,
        DistilBertForSequenceClassification,
        GPT2LMHeadModel,
        LlamaForCausalLM,
        T5ForConditionalGeneration,
    )


def weight_of(case: Case) -> int:
    """What a case costs, roughly: its parameters, which the host draws. Built without memory; unknown counts most."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in JOBS[case.job].model().parameters())
    except Exception:  # models that ask for numbers while they are built
        return 1 << 40


def measured_already(out: Path) -> set[tuple[Any, ...]]:
    """The cases that have a row without an error."""
    rows = [json.loads(line) for line in out.read_text().splitlines()[1:]] if out.exists() else []
    keys = ("job", "batch_size", "optimizer", "precision")
    return {tuple(row[key] for key in keys) for row in rows if "error" not in row and "job" in row}


def chosen_cases(only: str, fresh: bool, done: set[tuple[Any, ...]]) -> list[Case]:
    """The cases to measure, the light ones of the new ones first: whatever the time allows is then there."""
    if only == "new" or only.startswith("new:"):
        word = only.removeprefix("new").removeprefix(":")
        left = [case for case in NEW if word in case.name and astuple(case) not in done]
        weights = {case.job: weight_of(case) for case in left}
        return sorted(left, key=lambda case: weights[case.job])
    return [case for case in (FRESH if fresh else CASES) if only in case.name and astuple(case) not in done]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a word in the names of the cases to measure; new for the new ones")
    parser.add_argument("--resume", action="store_true", help="keep the rows that are there, and measure the others")
    parser.add_argument("--at-once", type=int, default=6, help="processes side by side on the card")
    parser.add_argument("--caps", action="store_true", help="search the largest batch under caps instead")
    parser.add_argument("--fresh", action="store_true", help="measure the fresh cases instead")
    parser.add_argument("--out", type=Path, help="by default memory_truth.jsonl, _caps or _fresh in benchmarks/results")
    options = parser.parse_args()
    if not torch.cuda.device_count():
        sys.exit("memory_truth.py measures on a GPU, and there is none here")
    import_everything()
    is_new = options.only.split(":")[0] == "new"
    kind = "caps" if options.caps else "fresh" if options.fresh else "new" if is_new else "truth"
    out = options.out or RESULTS / f"memory_{kind}.jsonl"
    work: list[Any] = [search for search in CAPS if options.only in search[0]]
    resumes = options.resume and out.exists()
    if not options.caps:
        work = chosen_cases(options.only, options.fresh, measured_already(out) if resumes else set())
    function = largest_batch if options.caps else measure
    started = time.monotonic()
    with out.open("a" if resumes else "w") as file:
        if not resumes:
            file.write(json.dumps(header()) + "\n")
        for done, (item, row) in enumerate(in_fresh_processes(function, work, options.at_once), 1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            name = " ".join(map(str, item)) if options.caps else item.name
            print(f"{done:4d}/{len(work)} {time.monotonic() - started:5.0f} s  {name:44s} {_figures(row)}", flush=True)


def _figures(row: dict[str, Any]) -> str:
    if "largest" in row:
        return f"largest batch {row['largest']:,}"
    if "error" in row:
        return str(row["error"])
    return f"{row['allocated'] / 2**20:9.1f} MiB allocated {row['reserved'] / 2**20:9.1f} reserved"


if __name__ == "__main__":
    main()
