"""What happens when memory runs out: on a real GPU, with real failures, under caps and beside another process.

    python benchmarks/out_of_memory.py [cost caps recovery neighbour] [--json out.json]

``cost``: what the transaction takes of a step when nothing goes wrong. ``caps``: GPT-2 124M, batch 64 x 512, bf16,
under memory caps, beside the best micro-batch of a search by hand. ``recovery``: the time that one failure costs.
``neighbour``: another process takes 20 GiB in the middle of a run near the limit, and gives it back.
"""

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from about import about
from transformers import GPT2Config, GPT2LMHeadModel

from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.oom.memory_watch import usable_memory
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep

GPU = torch.device("cuda", 0)
GIB = 1 << 30


def tokens(batch: int, length: int = 512) -> torch.Tensor:
    return torch.randint(0, 50257, (batch, length), generator=torch.Generator().manual_seed(0)).to(GPU)


def language_loss(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(input_ids=batch, labels=batch).loss
    return loss


def eager_step(micro_batch: int | None = None) -> tuple[EagerStep, torch.nn.Module]:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(use_cache=False)).to(GPU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return EagerStep(loss_of(model, language_loss), optimizer, Precision("bf16", GPU), micro_batch), model


def seconds_of(work: Callable[[], Any], times: int = 1) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def clean() -> None:
    import gc

    gc.collect()
    torch.cuda.empty_cache()


def cost(rounds: int) -> dict[str, Any]:
    """GPT-2 124M, batch 8 x 512, bf16: milliseconds a step, plain and guarded, interleaved."""
    step, model = eager_step()
    guard = GuardedStep(step, model)
    window = [tokens(8)]
    for _ in range(5):
        guard(window)
    found: dict[str, list[float]] = {"plain": [], "guarded": []}
    for _ in range(rounds):
        found["plain"].append(seconds_of(lambda: step(window), 20))
        found["guarded"].append(seconds_of(lambda: guard(window), 20))
    ratio = statistics.median(g / p for g, p in zip(found["guarded"], found["plain"], strict=True))
    alone = seconds_of(guard.transaction.snapshot.take, 1000)
    plain = statistics.median(found["plain"])
    return {
        "ms a step, plain": round(plain * 1e3, 3),
        "ms a step, guarded": round(statistics.median(found["guarded"]) * 1e3, 3),
        "ratio, median of rounds": round(ratio, 4),
        "snapshot alone, share of a step": round(alone / plain, 5),
        "rounds, seconds a step": found,
    }


def cap(gib: float | None) -> None:
    total = torch.cuda.mem_get_info(GPU)[1]
    torch.cuda.set_per_process_memory_fraction(1.0 if gib is None else gib * GIB / total, GPU)


def caps(rounds: int) -> dict[str, Any]:
    """GPT-2 124M, batch 64 x 512, bf16: samples/s after recovery, beside the best micro-batch by hand."""
    window, found = [tokens(64)], {}
    for gib in (4, 6, 8, 12):
        clean()
        cap(gib)
        by_hand = {}
        for size in (2, 3, 4, 5, 6, 8, 11, 13, 16, 22):
            speed = speed_by_hand(size, window)
            if speed is None:
                break
            by_hand[size] = round(speed, 1)
        clean()
        told: list[str] = []
        step, model = eager_step()
        guard = GuardedStep(step, model, lambda sentence, told=told, **facts: told.append(sentence))
        began = time.perf_counter()
        for _ in range(17):  # at steps 4 and 16 it is asked again what the loss counts, which is not timed here
            loss = guard(window).loss
        settled = time.perf_counter() - began
        speed = 64 / seconds_of(partial(guard, window), 3)
        best = max(by_hand.values(), default=0.0)
        found[f"{gib} GiB"] = {
            "by hand": by_hand,
            "brim, samples/s": round(speed, 1),
            "brim, micro-batch": guard.micro_batch,
            "failures": guard.failures,
            "seconds of the first 17 steps": round(settled, 1),
            "share of the best by hand": round(speed / best, 3) if best else None,
            "loss is finite": bool(torch.isfinite(loss)),
            "first words": told[0] if told else "",
        }
        print(json.dumps({gib: found[f"{gib} GiB"]}), flush=True)
        del step, model, guard, loss
    cap(None)
    return found


def speed_by_hand(size: int, window: list[torch.Tensor]) -> float | None:
    step, model = eager_step(size)
    try:
        step(window)
        return 64 / seconds_of(partial(step, window), 2)
    except torch.OutOfMemoryError:
        return None
    finally:
        del step, model
        clean()


def recovery(rounds: int) -> dict[str, Any]:
    """Batch 32 x 512 under 8 GiB: the time of a step with a failure in it, in steps of the size that it found."""
    clean()
    cap(8)
    window = [tokens(32)]
    step, model = eager_step()
    guard = GuardedStep(step, model)
    first = seconds_of(lambda: guard(window))
    tries = guard.failures
    for _ in range(8):
        guard(window)
    usual = seconds_of(lambda: guard(window), 3)
    slices = guard.search.number if guard.search else 1
    extra = []
    for _ in range(rounds):  # one failure at a time: too few slices on purpose
        assert guard.search is not None
        guard.search.good, guard.search.bad, guard.search.number = slices, 0, max(1, slices // 2)
        guard.step.micro_batch = guard.search.size
        before = guard.failures
        took = seconds_of(lambda: guard(window))
        if guard.failures == before + 1:
            extra.append(took - usual)
    cap(None)
    return {
        "steps beyond the retried one, one failure": round(statistics.median(extra) / usual, 2) if extra else None,
        "failures timed": len(extra),
        "first step: tries that failed": tries,
        "first step: steps' time": round(first / usual, 2),
        "ms of a usual step": round(usual * 1e3, 1),
    }


def _neighbour(gib: int, take: Any, taken: Any, give_back: Any) -> None:
    take.wait()
    held = torch.empty(gib * GIB, dtype=torch.uint8, device="cuda")
    held.fill_(1)
    torch.cuda.synchronize()
    taken.set()
    give_back.wait()


def neighbour(rounds: int) -> dict[str, Any]:
    """A run near the card's limit; another process takes 20 GiB and returns it: micro-batch by step, what was said."""
    clean()
    context = multiprocessing.get_context("spawn")
    take, taken, give_back = context.Event(), context.Event(), context.Event()
    other = context.Process(target=_neighbour, args=(20, take, taken, give_back), daemon=True)
    other.start()
    time.sleep(8)  # its CUDA context
    # All but a little is spoken for: the batch just fits, and does not beside the neighbour.
    standing = torch.empty(usable_memory(GPU) - 26 * GIB, dtype=torch.uint8, device=GPU)
    window, told = [tokens(28)], []
    step, model = eager_step()
    guard = GuardedStep(step, model, lambda sentence, **facts: told.append(sentence))
    sizes: list[int | None] = []

    def run(steps: int) -> None:
        for _ in range(steps):
            loss = guard(window).loss
            sizes.append(guard.micro_batch)
        assert bool(torch.isfinite(loss))

    run(8)
    clean()
    take.set()
    if not taken.wait(30):
        return {"error": "the neighbour could not take its memory"}
    run(20)
    give_back.set()
    other.join(20)
    for _ in range(10):
        run(4)
        time.sleep(0.4)
    del standing
    return {"micro-batch by step": sizes, "failures": guard.failures, "told": told, "steps done": len(sizes)}


PARTS = {"cost": cost, "caps": caps, "recovery": recovery, "neighbour": neighbour}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = about("transformers")
    for part in arguments.parts or PARTS:
        print(f"{part}: {PARTS[part].__doc__}", flush=True)
        results[part] = PARTS[part](arguments.rounds)
        print(json.dumps(results[part], indent=1), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
