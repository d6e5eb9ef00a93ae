"""What makes GPT-2 124M fit under caps, and how fast it then is: 512 tokens, bf16, on one GPU.

    python benchmarks/fit_more.py --json fit-more-h200.json              # 8 minutes of it; again for the rest
    python benchmarks/fit_more.py --json fit-more-h200.json --parts plans
    python benchmarks/fit_more.py --smoke --json /tmp/smoke.json         # a small model on the CPU: whether it runs

Every item is measured in a process of its own and kept in the file, and a later call makes those that are missing. The
next processes import while one measures; only one at a time has the GPU.

- ``largest``: the largest micro-batch under 8 GiB and samples a second, for a plain loop, the same with the last layer
  in chunks, with all blocks recomputed, with both, and for transformers.Trainer with and without its checkpointing.
- ``plans``: batches of 64 under 3, 4, 6, 8 and 12 GiB: what ``brim.Trainer(fit="auto")`` takes by itself, beside all
  combinations of micro-batch, recomputed blocks and logits by hand, each in micro-batches with a plain optimizer step.
- ``order``: the forecast step time of each combination that was measured; how many pairs it puts in the right order.
"""

import argparse
import fcntl
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from about import about

from brim.engine.oom.activation_checkpointing import Checkpointing
from brim.logits.chunked_head import chunked_logits
from brim.model_blocks import chosen_blocks

CONTENDERS = ("plain", "chunked", "recomputed", "both", "transformers", "transformers, checkpointing")
LOOPS = {"plain": (False, 0.0), "chunked": (True, 0.0), "recomputed": (False, 1.0), "both": (True, 1.0)}
PARTS = ("largest", "plans", "order")
CAPS = (3.0, 4.0, 6.0, 8.0, 12.0)
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the blocks, recomputed
BATCH = 64
SIZES = (64, 32, 22, 16, 13, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1)
MOST = 512  # samples of a micro-batch
AHEAD = 3  # processes at a time
FARTHER = 0.1  # pairs whose times differ by more have an order


def main() -> None:
    options = _options()
    if options.child is not None:
        print("RESULT " + json.dumps(_child(options, json.loads(options.child))))
        return
    result = _begun(options)
    ends = time.monotonic() + 60 * options.minutes
    with tempfile.NamedTemporaryFile() as turn:
        options.turn = Path(turn.name)
        while time.monotonic() < ends and (missing := _missing(options, result["items"])):
            _run_all(options, missing, result, ends)
    _show(result["items"])
    if left := len(_missing(options, result["items"])):
        print(f"at least {left} items are left: call it again with the same --json")


def _missing(options: argparse.Namespace, done: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: item for name, item in _items(options, done) if name not in done}


def _run_all(
    options: argparse.Namespace, items: dict[str, dict[str, Any]], result: dict[str, Any], ends: float
) -> None:
    """Those that begin before the end, some processes ahead of the one that measures."""
    with ThreadPoolExecutor(AHEAD) as pool:
        runs = {pool.submit(_run, options, item, ends): name for name, item in items.items()}
        for run in as_completed(runs):
            found = run.result()
            if found is None:
                continue
            result["items"][runs[run]] = found
            print(f"{runs[run]}: {json.dumps(found)}", flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(result, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--caps", nargs="+", type=float, default=CAPS, help="GiB, of the part plans")
    parser.add_argument("--memory-gib", type=float, default=8.0, help="of the part largest")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of the part largest")
    parser.add_argument("--minutes", type=float, default=8.0, help="no item begins later")
    parser.add_argument("--json", type=Path, help="where the result goes, and where earlier items are found")
    parser.add_argument("--smoke", action="store_true", help="a small model on the CPU")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--turn", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _begun(options: argparse.Namespace) -> dict[str, Any]:
    """The file of an earlier call, if its measurements are of the same kind."""
    settings = {"tokens": options.tokens, "memory_gib": options.memory_gib, "smoke": options.smoke}
    if options.json is not None and options.json.exists():
        found: dict[str, Any] = json.loads(options.json.read_text())
        if found.get("settings") == settings:
            return found
        sys.exit(f"{options.json} is of another kind of measurement ({found.get('settings')}): name another file")
    return {"about": about("transformers"), "settings": settings, "items": {}}


def _items(options: argparse.Namespace, done: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What there is to measure, by name; what depends on an earlier item comes once that is there."""
    if "largest" in options.parts:
        for name in CONTENDERS:
            yield f"largest/{name}", {"what": "largest", "name": name, "cap": options.memory_gib}
        for part in range(options.rounds if "largest/plain" in done else 0):
            for name in CONTENDERS:
                own = done.get(f"largest/{name}", {}).get("largest")
                for where, size in (("at plain", done["largest/plain"]["largest"]), ("at own", own)):
                    if size:
                        item = {"what": "rate", "name": name, "cap": options.memory_gib, "size": size}
                        yield f"rate/{name}/{where}/{part}", item
    if "plans" in options.parts:
        for cap in options.caps:
            yield f"plans/{cap:g}/auto", {"what": "auto", "cap": cap}
            for chunked in (False, True):
                for share in SHARES:
                    item = {"what": "by hand", "cap": cap, "chunked": chunked, "share": share}
                    yield f"plans/{cap:g}/{'chunked' if chunked else 'whole'}/{share:g}", item
    if "order" in options.parts:
        yield "order/forecast", {"what": "forecast"}


def _run(options: argparse.Namespace, item: dict[str, Any], ends: float) -> dict[str, Any] | None:
    """What a process found; None where it would begin too late."""
    if time.monotonic() > ends:
        return None
    command = [sys.executable, __file__, "--child", json.dumps(item), "--tokens", str(options.tokens)]
    command += ["--turn", str(options.turn)]
    command += ["--steps", str(options.steps), *(["--smoke"] if options.smoke else [])]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        return {"failed": done.stderr[-1500:]}
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


# -- in a process of its own ------------------------------------------------------------------------------------------


def _child(options: argparse.Namespace, item: dict[str, Any]) -> dict[str, Any]:

    with _turn(options.turn):
        return _measured(options, item)


@contextmanager
def _turn(file: Path) -> Iterator[None]:
    """Alone among the processes that were given the same file."""
    with file.open() as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def _measured(options: argparse.Namespace, item: dict[str, Any]) -> dict[str, Any]:
    if not options.smoke and "cap" in item:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(item["cap"] * 2**30 / total)
    if item["what"] == "auto":
        return _auto(options)
    if item["what"] == "by hand":
        return _by_hand(options, item)
    if item["what"] == "forecast":
        return _forecast(options)
    steps = _transformers_steps if item["name"].startswith("transformers") else _loop_steps
    if item["what"] == "rate":
        return {"rate": item["size"] * options.steps / steps(options, item["name"], item["size"], options.steps)}
    most = 4 if options.smoke else MOST
    return {"largest": _largest(lambda size: _fits(lambda: steps(options, item["name"], size, 2)), most)}


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """By doubling, and then between the last that fits and the first that does not."""
    good, bad = 0, 1
    while bad <= most and fits(bad):
        good, bad = bad, 2 * bad
    while bad - good > 1 and bad <= most:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _fits(steps: Callable[[], object]) -> bool:
    try:
        steps()
    except torch.OutOfMemoryError:
        fits = False
    else:
        fits = True
    gc.collect()  # outside of except; frames of recomputed blocks go in circles, and hold the tensors of what failed
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return fits


def _model(options: argparse.Namespace) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    small = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 500} if options.smoke else {}
    return GPT2LMHeadModel(GPT2Config(n_positions=options.tokens, **small)).to(_device(options)).train()


def _device(options: argparse.Namespace) -> str:
    return "cpu" if options.smoke else "cuda"


def _sizes(options: argparse.Namespace) -> tuple[int, ...]:
    return (4, 2, 1) if options.smoke else SIZES


def _words(options: argparse.Namespace, model: Any, size: int) -> Any:
    return torch.randint(0, model.config.vocab_size, (size, options.tokens), device=_device(options))


def _rungs(model: Any, chunked: bool, share: float) -> AbstractContextManager[None]:
    """The blocks recomputed from here on, and the context in which logits are computed in chunks."""
    if share:
        Checkpointing(model).apply(share)
    return chunked_logits(model, "chunked") if chunked else nullcontext()


def _step(options: argparse.Namespace, model: Any, optimizer: Any, words: Any, size: int) -> None:
    """An optimizer step of the whole batch in micro-batches."""
    optimizer.zero_grad()
    for part in words.split(size):
        with torch.autocast(_device(options), torch.bfloat16):
            loss = model(input_ids=part, labels=part).loss
        (loss * (len(part) / len(words))).backward()
    optimizer.step()


def _timed(options: argparse.Namespace, step: Callable[[], None], steps: int) -> float:
    """Seconds of so many steps after two that are not counted."""
    for _ in range(2):
        step()
    began = _now(_device(options))
    for _ in range(steps):
        step()
    return _now(_device(options)) - began


def _loop_steps(options: argparse.Namespace, name: str, size: int, steps: int) -> float:
    model = _model(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = _words(options, model, size)
    with _rungs(model, *LOOPS[name]):
        return _timed(options, lambda: _step(options, model, optimizer, words, size), steps)


def _by_hand(options: argparse.Namespace, item: dict[str, Any]) -> dict[str, Any]:
    """Samples a second of the two largest micro-batches that fit."""
    model, found = _model(options), dict[str, float]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = _sizes(options)[0]
    words = _words(options, model, batch)
    with _rungs(model, item["chunked"], item["share"]):
        for size in _sizes(options):
            run = partial(_timed, options, partial(_step, options, model, optimizer, words, size))
            if _fits(partial(run, 0)):  # steps before those that are timed: the first makes the optimizer's state
                found[str(size)] = 3 * batch / run(3)
            if len(found) == 2:
                break
    return {"rates": found, "blocks": len(chosen_blocks(model, item["share"] or None))}


def _auto(options: argparse.Namespace) -> dict[str, Any]:
    """What brim takes by itself, and samples a second after the first steps."""
    import brim

    model, batch, steps = _model(options), _sizes(options)[0], options.steps + 5

    class Clock(brim.Callback):
        began = ended = 0.0

        def on_step_end(self, trainer: Any, step: int, loss: Any) -> None:
            if step == 5:
                self.began = _now(_device(options))
            self.ended = _now(_device(options)) if step == steps else self.ended

    words = _words(options, model, batch).cpu()
    data, clock = [{"input_ids": words, "labels": words}] * steps, Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            model, data, optimizer=lambda p: torch.optim.AdamW(p, lr=1e-4), precision="bf16-mixed", fit="auto",
            capture="off", device=_device(options), run_dir=Path(folder) / "run", callbacks=[clock], max_steps=steps,
        )  # fmt: skip
        began = time.perf_counter()
        trainer.fit()
        whole = time.perf_counter() - began
        said = (Path(folder) / "run" / "events.jsonl").read_text()
    plan = trainer.plan
    return {
        "rate": options.steps * batch / (clock.ended - clock.began), "seconds of the run": whole,
        "cost": "" if plan is None else plan.cost, "micro_batch": None if plan is None else plan.micro_batch,
        "recomputed": 0 if plan is None or not plan.checkpointing else len(plan.checkpointing),
        "logits": None if plan is None else plan.logits, "forecast": None if plan is None else plan.forecast.reserved,
        "reserved": torch.cuda.max_memory_reserved() if torch.cuda.is_available() else None,
        "shortages": said.count("out of memory in"),
    }  # fmt: skip


def _forecast(options: argparse.Namespace) -> dict[str, Any]:
    """The forecast samples a second of every combination, by its name."""
    from brim.frontier import Frontier
    from brim.memory.forecast import make_job, make_setting

    model, sizes = _model(options).cpu(), _sizes(options)

    def batch(n: int) -> Any:
        words = torch.ones(n, options.tokens, dtype=torch.long)
        return (), {"input_ids": words, "labels": words}

    card = "NVIDIA H200" if options.smoke else None
    frontier = Frontier(make_job(model, batch, precision="bf16"), make_setting(card, None, None), sizes[0])
    found = {}
    for logits in ("whole", "chunked"):
        for share in SHARES:
            chosen = len(chosen_blocks(model, share or None))
            for size in sizes:
                found[f"{logits}/{share:g}/{size}"] = sizes[0] / frontier.seconds_of(logits, size, chosen)
    return {"rates": found}


def _transformers_steps(options: argparse.Namespace, name: str, size: int, steps: int) -> float:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):  # type: ignore[misc]
        began = ended = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                self.began = _now(_device(options))
            self.ended = _now(_device(options)) if state.global_step == steps + 2 else self.ended

    model, clock = _model(options), Clock()
    words = _words(options, model, 1).cpu()[0]
    rows = [{"input_ids": words, "labels": words}] * (size * (steps + 2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=size, max_steps=steps + 2, bf16=True, report_to=[], save_strategy="no",
            logging_strategy="no", disable_tqdm=True, use_cpu=options.smoke, learning_rate=1e-4,
            gradient_checkpointing=name.endswith("checkpointing"),
        )  # fmt: skip
        Trainer(model, arguments, train_dataset=rows, callbacks=[clock]).train()
    return clock.ended - clock.began


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


# -- what it says -----------------------------------------------------------------------------------------------------


def _show(items: dict[str, Any]) -> None:
    for name in CONTENDERS:
        if "largest" not in items.get(f"largest/{name}", {}) or "largest" not in items.get("largest/plain", {}):
            continue
        size, base = items[f"largest/{name}"]["largest"], items["largest/plain"]["largest"]
        shares = [f"{where} {_median_share(items, name, where)}" for where in ("at plain", "at own")]
        print(f"{name}: largest {size} ({size / max(base, 1):.2f} of plain), samples/s of plain: {', '.join(shares)}")
    measured = _by_hand_rates(items)
    for cap in dict.fromkeys(cap for cap, _ in measured):
        rates = {name: rate for (of, name), rate in measured.items() if of == cap}
        best, auto = max(rates, key=lambda name: rates[name]), items.get(f"plans/{cap}/auto", {})
        full = max((rate for name, rate in rates.items() if name.startswith("whole/1/")), default=float("nan"))
        own = auto.get("rate", float("nan"))
        print(
            f"{cap} GiB: auto {own:.1f} samples/s ({auto.get('cost')}), {own / rates[best]:.2f} of the best by hand "
            f"({best}: {rates[best]:.1f}), {own / full:.2f} of slices with all blocks recomputed"
        )
    forecast = items.get("order/forecast", {}).get("rates")
    if forecast and measured:
        print(_order(measured, forecast))


def _by_hand_rates(items: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Cap and combination: samples a second."""
    found = {}
    for name, item in items.items():
        part, _, rest = name.partition("/")
        if part == "plans" and "rates" in item:
            cap, _, combination = rest.partition("/")
            found |= {(cap, f"{combination}/{size}"): rate for size, rate in item["rates"].items()}
    return found


def _median_share(items: dict[str, Any], name: str, where: str) -> str:
    """Of the plain loop's speed at its own largest, within a round."""
    shares = []
    for part in range(99):
        own, plain = items.get(f"rate/{name}/{where}/{part}", {}), items.get(f"rate/plain/at plain/{part}", {})
        if "rate" in own and "rate" in plain:
            shares.append(own["rate"] / plain["rate"])
    return f"{sorted(shares)[len(shares) // 2]:.2f}" if shares else "-"


def _order(measured: dict[tuple[str, str], float], forecast: dict[str, float]) -> str:
    """How many pairs of combinations whose speeds differ clearly the forecast puts in the right order."""
    rates: dict[str, float] = {}
    for (_, name), rate in measured.items():
        rates[name] = max(rate, rates.get(name, 0.0))
    known = [name for name in rates if name in forecast]
    pairs = [(a, b) for a, b in combinations(known, 2) if abs(rates[a] - rates[b]) > FARTHER * min(rates[a], rates[b])]
    right = sum((rates[a] > rates[b]) == (forecast[a] > forecast[b]) for a, b in pairs)
    return f"order: {right} of {len(pairs)} pairs that differ by more than 10 % ({right / max(1, len(pairs)):.0%})"


if __name__ == "__main__":
    main()
