"""The examples by brim and by transformers.Trainer or Lightning: lines, time to the first step, samples a second.

    python benchmarks/ports.py [--rounds 3] [--json FILE] [EXAMPLE ...]

The same model, data, batch size and optimizer for all, each training in a process of its own, in interleaved rounds;
medians are shown. Everything that a user would leave on is on: evaluation after each epoch, checkpoints, the best
weights at the end, a log. Time to the first step is from the call until the first optimizer step is over, without
imports, and without the garbage collection that they are due. Samples a second are between a fifth of the steps and
the last one, evaluations and checkpoints included. A later call with the same file measures the examples that it lacks.
"""

import argparse
import gc
import importlib.util
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STEPS, WARM = 600, 120
BESIDE = {
    "bert_classifier": "with_transformers",
    "lora_language_model": "with_transformers",
    "image_classifier": "with_lightning",
    "tabular": "with_lightning",
    "contrastive": "with_lightning",
}  # fmt: skip


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parts_of(name: str, folder: str) -> Any:
    """What the example trains, in the form that all trainers take."""
    import torch
    from port_trainings import Parts
    from torch import nn
    from torch.utils.data import TensorDataset

    module = example(name)
    shared: dict[str, Any] = {"steps": STEPS, "folder": folder}
    if name == "bert_classifier":
        data = module.make_sentences(2_000)
        return Parts(
            module.make_model(), data[:1_600], data[1_600:], lambda model, batch: model(**batch).loss, 1e-3, 32,
            collate=module.pad, **shared,
        )  # fmt: skip
    if name == "lora_language_model":
        text = module.make_text(200_000)
        rows = [{key: ids[row] for key, ids in text.items()} for row in range(len(text["input_ids"]))]
        split = len(rows) * 9 // 10
        return Parts(
            module.make_model(), rows[:split], rows[split:], lambda model, batch: model(**batch).loss, 3e-3, 32,
            **shared,
        )  # fmt: skip
    if name == "contrastive":
        torch.manual_seed(0)
        views = module.make_views(4_608)
        train, valid = (TensorDataset(*(view[part] for view in views)) for part in (slice(4_096), slice(4_096, None)))
        return Parts(
            module.Pairs(), train, valid, lambda model, batch: module.contrast(*module.encode(model, batch), model),
            3e-3, 256, **shared,
        )  # fmt: skip
    if name == "tabular":
        torch.manual_seed(0)
        x, y = (torch.from_numpy(part.to_numpy()) for part in module.standardised(module.make_flats(4_000)))
        train, valid = (TensorDataset(x[part], y[part]) for part in (slice(3_200), slice(3_200, None)))
        return Parts(
            module.Prices(), train, valid, lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1]),
            3e-3, 64, **shared,
        )  # fmt: skip
    train, valid = module.Pictures(4_000, 1, shifts=True), module.Pictures(800, 2, shifts=False)
    return Parts(module.make_model(), train, valid, module.mixed_up, 3e-3, 64, **shared)


class Clock:
    """When the first step was over, and how fast the later ones were."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.at: dict[int, float] = {}

    def __call__(self, step: int) -> None:
        if step in (1, WARM, STEPS):
            self.at[step] = time.perf_counter()

    def numbers(self, batch_size: int) -> dict[str, float]:
        seconds = self.at[STEPS] - self.at[WARM]
        return {"first_step": self.at[1] - self.began, "rate": (STEPS - WARM) * batch_size / seconds}


def measure(name: str, trainer: str) -> dict[str, float]:
    import port_trainings

    with tempfile.TemporaryDirectory() as folder:
        parts = parts_of(name, f"{folder}/run")
        # The one full collection that all these imports are due (0.25 s) would meet one contender or another by chance.
        gc.collect()
        gc.freeze()
        clock = Clock()
        getattr(port_trainings, trainer)(parts, clock)
        return clock.numbers(parts.batch_size)


def apart(name: str, trainer: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--one", name, trainer], capture_output=True, text=True, check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{name} {trainer}: {done.stderr[-800:]}")
    found: dict[str, float] = json.loads(lines[-1])
    return found


def lines_of(function: Callable[..., Any]) -> int:
    return sum(bool(line.strip()) for line in inspect.getsource(function).splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", nargs="*", default=list(BESIDE))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    import port_trainings
    from about import about

    known = json.loads(options.json.read_text())["rows"] if options.json is not None and options.json.exists() else {}
    done = {name: row for name, row in known.items() if "failed" not in row}
    found: dict[str, Any] = {**about("lightning", "transformers", "accelerate"), "steps": STEPS, "rows": done}
    print(f"{'':22}{'':14}{'lines':>6}{'first step':>12}{'samples/s':>12}{'ratio':>8}")
    for name in options.examples:
        if name in done:
            continue
        contenders = ("with_brim", BESIDE[name])
        rounds: dict[str, list[dict[str, float]]] = {who: [] for who in contenders}
        try:
            for _ in range(options.rounds):
                for who in contenders:
                    rounds[who].append(apart(name, who))
        except RuntimeError as error:  # the others are worth having
            print(f"{name:22}failed: {error}", flush=True)
            found["rows"][name] = {"failed": str(error)}
            continue
        for who in contenders:
            rates = [one["rate"] for one in rounds[who]]
            ratios = [a["rate"] / b["rate"] for a, b in zip(rounds[who], rounds[BESIDE[name]], strict=True)]
            row = {
                "lines": lines_of(getattr(port_trainings, who)),
                "first_step": statistics.median(one["first_step"] for one in rounds[who]),
                "rate": statistics.median(rates),
                "ratio": statistics.median(ratios),
                "ratios": ratios,
            }
            found["rows"].setdefault(name, {})[who.removeprefix("with_")] = row
            shown = f"{row['lines']:>6}{row['first_step']:>10.2f} s{row['rate']:>12,.0f}{row['ratio']:>8.2f}"
            print(f"{name if who == 'with_brim' else '':22}{who.removeprefix('with_'):14}{shown}", flush=True)
        if options.json is not None:  # after each, so that a run that is ended early leaves what it had
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
