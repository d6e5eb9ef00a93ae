"""Whether the proof of a captured step fails where it must, and only there. Needs a GPU; about three minutes.

    python benchmarks/capture_proof.py [--size tiny|base] [--parts mutations models] [--json FILE]

Mutations: a small encoder is captured by graphs that are each wrong in one way, in fp32, bf16 and compiled, with SGD
and AdamW; each has to be caught, and the right one kept. Models: what people train has to be kept, with what was proven
of it, but for one that torch itself makes wait for the device; only the proof counts here, not whether capturing gains
anything.
"""

import argparse
import gc
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from about import about
from capture_models import Masked, Model, language_models, masked_batch, masked_loss, other_models
from capture_mutations import MUTATIONS
from step_contenders import matmuls_in
from torch import Tensor, nn

import brim
from brim.engine.captured.graph import StepGraph
from brim.errors import ConfigError

STEPS = 6  # enough to be captured and replayed
SCALE = 1.0
HIDDEN = {"scale": 1.0}
Row = dict[str, Any]
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
}


def by_global(model: nn.Module, batch: Any) -> Tensor:
    """A loss that is weighed by a global, which every step changes."""
    global SCALE
    SCALE *= 1.2
    return masked_loss(model, batch) * SCALE


def by_hidden_global(model: nn.Module, batch: Any) -> Tensor:
    """The same where no reading of the code finds it: the gradients have to show it."""
    hidden = globals()["HID" + "DEN"]
    hidden["scale"] *= 1.2
    return masked_loss(model, batch) * hidden["scale"]


def attempt(
    model: nn.Module, loss: Any, batches: list[Any], optimizer: torch.optim.Optimizer, precision: str,
    graph_type: type[StepGraph] = StepGraph, clip_norm: float | None = None, rates_move: bool = False,
) -> Row:  # fmt: skip
    """Some steps; whether they were captured, and what was said about it."""
    told: list[str] = []
    began = time.perf_counter()
    step: Any = brim.Step(
        model, optimizer, loss, precision=precision, capture="require", clip_norm=clip_norm, tell=told.append
    )
    step._captured.graph_type, step._captured.rates_move = graph_type, rates_move
    try:
        for batch in batches[:STEPS]:
            step(batch)
        said = told[-1] if told else ""
    except ConfigError as refused:
        said = str(refused).partition("cannot be captured: ")[2] or str(refused)
    report = step.captured
    return {"captured": bool(report.captured), "said": said, "seconds": round(time.perf_counter() - began, 2)}


def clean() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def mutations() -> Iterator[Row]:
    """Each mutation, beside the right graph, in all numbers and with all optimizers."""
    batches = [{name: tensor.cuda() for name, tensor in masked_batch(number).items()} for number in range(STEPS)]
    losses = {"a frozen global": by_global, "a frozen global that nobody finds": by_hidden_global}
    for numbers in ("fp32", "bf16", "compiled"):
        torch.manual_seed(0)
        model = Masked().cuda()
        if numbers == "compiled":
            model.compile()
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for optimizer, make in OPTIMIZERS.items():
            cases: dict[str, Any] = {"nothing wrong": StepGraph, **MUTATIONS, **losses}
            if optimizer == "SGD":
                del cases["a frozen count of Adam's"]
            for name, case in cases.items():
                model.load_state_dict(start)
                HIDDEN["scale"] = 1.0
                torch.manual_seed(1)
                is_graph = isinstance(case, type)
                found = attempt(
                    model, masked_loss if is_graph else case, batches, make(model.parameters()),
                    "bf16" if numbers == "bf16" else "32", case if is_graph else StepGraph, 1e3, rates_move=True,
                )  # fmt: skip
                clean()
                good = found["captured"] == (name == "nothing wrong")
                yield {"case": name, "numbers": numbers, "optimizer": optimizer, "good": good, **found}


def models(size: str) -> Iterator[Row]:
    """What people train, in every precision that it is trained in."""
    known: dict[str, Model] = {**other_models(), **language_models(size)}
    for name, model in known.items():
        batches = model.batches()
        for precision in model.precisions:
            torch.manual_seed(0)
            made = model.make().cuda()
            if model.is_compiled:
                made.compile()
            trained = [parameter for parameter in made.parameters() if parameter.requires_grad]
            optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
            try:
                with matmuls_in(precision):
                    found = attempt(made, model.loss, batches, optimizer, precision)
            except Exception as error:
                found = {"captured": False, "said": f"{type(error).__name__}: {error}"[:300], "seconds": 0.0}
            del made, optimizer, trained
            clean()
            good = found["captured"] != model.is_refused
            yield {"case": name, "numbers": precision, "optimizer": "AdamW", "good": good, **found}


def show(row: Row) -> None:
    verdict = "kept" if row["captured"] else "refused"
    mark = "" if row["good"] else "   <-- WRONG"
    print(f"{row['case']:36}{row['numbers']:>9}{row['optimizer']:>7}  {verdict:7}{row['seconds']:6.1f} s{mark}")
    print(f"    {row['said'][:230]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["tiny", "base"], default="tiny", help="of the language models")
    parser.add_argument("--parts", nargs="*", choices=["mutations", "models"], default=["mutations", "models"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU, so nothing can be captured")
    warnings.filterwarnings("ignore")
    began = time.perf_counter()
    results: Row = {**about("transformers", "peft"), "size": arguments.size, "parts": {}}
    for part in arguments.parts:
        rows = results["parts"][part] = []
        for row in mutations() if part == "mutations" else models(arguments.size):
            show(row)
            rows.append(row)
            if arguments.json is not None:  # after each, for one who stops it early
                arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    rows = [row for found in results["parts"].values() for row in found]
    wrong = [f"{row['case']} ({row['numbers']}, {row['optimizer']})" for row in rows if not row["good"]]
    print(f"\n{len(rows) - len(wrong)} of {len(rows)} as they should be, in {time.perf_counter() - began:.0f} s")
    print("\n".join(wrong))
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
