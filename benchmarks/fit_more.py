"""The largest micro-batch that fits under a cap, and its speed: GPT-2 124M, 512 tokens, bf16, on one GPU.

    python benchmarks/fit_more.py --json fit-more-h200.json        # under 8 GiB
    python benchmarks/fit_more.py --smoke                          # a small model on the CPU: whether it runs

Contenders, each in a process of its own: a plain loop, the same with the last layer in chunks (what
``brim.Trainer(logits="chunked")`` does within its step), and transformers.Trainer. The largest micro-batch is found by
running two steps after two others at each size; samples a second are those at the plain loop's largest, and at a
contender's own largest.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from about import about

from brim.logits.chunked_head import chunked_logits

CONTENDERS = ("plain", "chunked", "transformers")
MOST = 512  # samples of a micro-batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-gib", type=float, default=8.0, help="what torch may reserve")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where the result goes")
    parser.add_argument("--smoke", action="store_true", help="a small model on the CPU")
    parser.add_argument("--child", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print("RESULT " + json.dumps(_child(options)))
        return
    largest = {name: _run(options, name)["largest"] for name in CONTENDERS}
    rounds = [
        {
            name: {"at_plain": _rate(options, name, largest["plain"]), "at_own": _rate(options, name, largest[name])}
            for name in CONTENDERS
        }
        for _ in range(options.rounds)
    ]
    result = {
        "about": about("transformers"), "memory_gib": options.memory_gib, "tokens": options.tokens, "largest": largest,
        "samples_a_second": rounds,
    }  # fmt: skip
    _show(result)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def _show(result: dict[str, Any]) -> None:
    print(
        f"{'':14}{'largest':>9}{'of plain':>10}{'samples/s':>11}{'of plain':>10}{'at its largest':>16}{'of plain':>10}"
    )
    base = result["largest"]["plain"]
    for name in CONTENDERS:
        rates = [[row[name][key] for row in result["samples_a_second"]] for key in ("at_plain", "at_own")]
        shares = [
            sorted(own / row["plain"]["at_plain"] for own, row in zip(of, result["samples_a_second"], strict=True))
            for of in rates
        ]
        middle = len(rates[0]) // 2
        at, own = (sorted(of)[middle] for of in rates)
        size = result["largest"][name]
        print(
            f"{name:14}{size:9}{size / max(base, 1):10.2f}{at:11.1f}{shares[0][middle]:10.2f}{own:16.1f}"
            f"{shares[1][middle]:10.2f}"
        )


def _rate(options: argparse.Namespace, name: str, size: int) -> float:
    rate: float = _run(options, name, "--size", str(size))["rate"]
    return rate


def _run(options: argparse.Namespace, name: str, *more: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", name, "--memory-gib", str(options.memory_gib)]
    command += ["--tokens", str(options.tokens), "--steps", str(options.steps), *more]
    done = subprocess.run([*command, *(["--smoke"] if options.smoke else [])], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"{name} gave no result:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


def _child(options: argparse.Namespace) -> dict[str, Any]:
    if not options.smoke:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(options.memory_gib * 2**30 / total)
    steps = _transformers_steps if options.child == "transformers" else _loop_steps
    if options.size is not None:
        return {"rate": options.size * options.steps / steps(options, options.size, options.steps)}
    return {"largest": _largest(lambda size: _fits(steps, options, size), 4 if options.smoke else MOST)}


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """By doubling, and then between the last that fits and the first that does not."""
    good, bad = 0, 1
    while bad <= most and fits(bad):
        good, bad = bad, 2 * bad
    while bad - good > 1 and bad <= most:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _fits(steps: Callable[..., float], options: argparse.Namespace, size: int) -> bool:
    try:
        steps(options, size, 2)
    except torch.OutOfMemoryError:
        fits = False
    else:
        fits = True
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # outside of except: the traceback has let go of its tensors
    return fits


def _model(options: argparse.Namespace) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    small = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 500} if options.smoke else {}
    return GPT2LMHeadModel(GPT2Config(n_positions=options.tokens, **small)).to(_device(options)).train()


def _device(options: argparse.Namespace) -> str:
    return "cpu" if options.smoke else "cuda"


def _loop_steps(options: argparse.Namespace, size: int, steps: int) -> float:
    """Seconds of so many steps after two that are not counted."""
    model, device = _model(options), _device(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(0, model.config.vocab_size, (size, options.tokens), device=device)
    began = 0.0
    with chunked_logits(model, "chunked") if options.child == "chunked" else nullcontext():
        for step in range(steps + 2):
            if step == 2:
                began = _now(device)
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16):
                loss = model(input_ids=words, labels=words).loss
            loss.backward()
            optimizer.step()
    return _now(device) - began


def _transformers_steps(options: argparse.Namespace, size: int, steps: int) -> float:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):  # type: ignore[misc]
        began = ended = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                self.began = _now(_device(options))
            self.ended = _now(_device(options)) if state.global_step == steps + 2 else self.ended

    model, clock = _model(options), Clock()
    words = torch.randint(0, model.config.vocab_size, (options.tokens,))
    rows = [{"input_ids": words, "labels": words}] * (size * (steps + 2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=size, max_steps=steps + 2, bf16=True, report_to=[], save_strategy="no",
            logging_strategy="no", disable_tqdm=True, use_cpu=options.smoke, learning_rate=1e-4,
        )  # fmt: skip
        Trainer(model, arguments, train_dataset=rows, callbacks=[clock]).train()
    return clock.ended - clock.began


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
