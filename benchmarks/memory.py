"""The memory forecast beside what a GPU really took, and beside the rules that people use.

    python benchmarks/memory.py                # every case of results/memory_truth.jsonl; a few minutes on two cores
    python benchmarks/memory.py --only lstm    # cases whose name contains a word
    python benchmarks/memory.py --new          # popular models, the held-back third apart; writes memory_new.json
    python benchmarks/memory.py --new --resume # those of them that memory_new.json has no row of
    python benchmarks/memory.py --expandable   # those measured with expandable segments; writes memory_expandable.json
    python benchmarks/memory.py --speed        # how long forecasts take, on an idle machine; writes memory_speed.json

Runs on a machine without a GPU: the truth was measured before, by memory_truth.py, and lies in results/. Prints the
errors of the forecast, of `accelerate estimate-memory` and of four times the parameters, and the largest batch under
caps; writes results/memory.json. Jobs of torchvision and peft are left out where these are not installed.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
from about import about
from memory_zoo import CAPS, CASES, FRESH, JOBS, NEW, OPTIMIZERS, Case
from rich.console import Console
from rich.progress import track
from rich.table import Table

from brim import forecast, largest_batch

RESULTS = Path(__file__).parent / "results"
MIB = 2**20
Row = dict[str, Any]


def read(name: str) -> tuple[Row, list[Row]]:
    """The header and the rows of a measurement."""
    header, *rows = (json.loads(line) for line in (RESULTS / name).read_text().splitlines())
    return header, [row for row in rows if "error" not in row]


def can_build(job: str) -> bool:
    if job in ("gpt2_lora", "llama_lora", "gpt2_lora_dropout"):
        return find_spec("peft") is not None
    built_by_torchvision = getattr(JOBS[job].model, "__qualname__", "").startswith("_torchvision")
    return find_spec("torchvision") is not None or not (built_by_torchvision or job.startswith("resnet50_"))


def arguments_of(case: Case, header: Row) -> dict[str, Any]:
    job = JOBS[case.job]
    return {
        "model": job.model, "batch": job.batch, "loss": job.loss, "optimizer": OPTIMIZERS[case.optimizer],
        "precision": case.precision, "card": header["card"], "runtime": header["torch"],
    }  # fmt: skip


def compare(case: Case, truth: Row, header: Row, expandable: bool) -> Row:
    """One case: relative errors of every estimate."""
    began = time.perf_counter()
    made = forecast(**arguments_of(case, header), batch_size=case.batch_size, expandable_segments=expandable)
    seconds = time.perf_counter() - began
    device = truth["reserved"] + truth["context"] + header["driver_reserve"]
    return {
        "case": case.name,
        "held_back": truth["held_back"],
        "allocated": made.allocated / truth["allocated"] - 1,
        "reserved": made.reserved / truth["reserved"] - 1,
        "device": made.device / device - 1,
        "accelerate": accelerate_says(truth["parameters"], case.precision) / truth["allocated"] - 1,
        "four times": 16 * truth["parameters"] / truth["allocated"] - 1,
        "seconds": seconds,
    }


def compare_all(cases: list[Case], truth: list[Row], header: Row, only: str, expandable: bool = False) -> list[Row]:
    """Every case that was measured, can be built here, and has the word in its name."""
    by_case = {(row["job"], row["batch_size"], row["optimizer"], row["precision"]): row for row in truth}
    known = [case for case in cases if only in case.name and can_build(case.job)]
    rows = []
    for case in track(known, "forecasting", console=Console(stderr=True)):
        measured = by_case.get((case.job, case.batch_size, case.optimizer, case.precision))
        if measured is not None:
            rows.append(compare(case, measured, header, expandable))
    return rows


def accelerate_says(parameters: int, precision: str) -> float:
    """What ``accelerate estimate-memory`` prints as "Training using Adam"."""
    try:
        from accelerate.commands.estimate import estimate_training_usage
    except ImportError:
        return float("nan")
    mixed = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[precision]
    return float(max(estimate_training_usage(4 * parameters, mixed).values()))


def summary(rows: list[Row], name: str) -> Row:
    errors = sorted(abs(row[name]) for row in rows)
    return {
        "median": median(errors),
        "p95": errors[min(len(errors) - 1, int(0.95 * len(errors)))],
        "worst": errors[-1],
        "under by more than 2 %": sum(row[name] < -0.02 for row in rows),
    }


def show(console: Console, rows: list[Row], title: str) -> Row:
    table = Table(
        "estimate", "median", "95th percentile", "worst", "under by > 2 %", title=f"{title}: {len(rows)} cases"
    )
    found = {}
    for name in ("allocated", "reserved", "device", "accelerate", "four times"):
        found[name] = summary(rows, name)
        figures = [f"{100 * found[name][key]:.2f} %" for key in ("median", "p95", "worst")]
        table.add_row(name, *figures, str(found[name]["under by more than 2 %"]))
    console.print(table)
    return found


def caps(console: Console, only: str) -> list[Row]:
    """The largest batch under a cap, beside the one that a search on the card found."""
    header, rows = read("memory_caps.jsonl")
    table = Table("job", "cap", "true largest", "forecast", "share", title="largest batch under a cap")
    found = []
    for row in rows:
        search = (row["job"], row["optimizer"], row["precision"], row["cap_gib"])
        if search not in CAPS or only not in row["job"] or not can_build(row["job"]):
            continue
        arguments = arguments_of(Case(row["job"], 1, row["optimizer"], row["precision"]), header)
        began = time.perf_counter()
        ours = largest_batch(**arguments, memory=f"{row['cap_gib']}GiB")
        found.append({**row, "forecast": ours, "seconds": time.perf_counter() - began})
        name = f"{row['job']} {row['optimizer']} {row['precision']}"
        share = f"{ours / row['largest']:.3f}" + (" OVER" if ours >= row["too_large"] else "")
        table.add_row(name, f"{row['cap_gib']} GiB", f"{row['largest']:,}", f"{ours:,}", share)
    console.print(table)
    return found


def timed(function: Callable[[], Any]) -> Row:
    began = time.perf_counter()
    function()
    return {
        "seconds": time.perf_counter() - began,
        "GiB of the process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def gpt2_forecast_and_largest() -> None:
    arguments = arguments_of(Case("gpt2", 8, "adamw", "bf16"), {"card": "NVIDIA H200", "torch": "2.11"})
    forecast(**arguments, batch_size=8)
    largest_batch(**arguments, memory="8GiB")


def llama_of_eight_billion() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128_256, use_cache=False,
    )  # fmt: skip

    def batch(n: int) -> tuple[tuple[()], dict[str, torch.Tensor]]:
        tokens = torch.zeros(n, 2048, dtype=torch.long)
        return (), {"input_ids": tokens, "labels": tokens}

    forecast(
        lambda: LlamaForCausalLM(config).to(torch.bfloat16), batch, batch_size=1, precision="bf16", card="NVIDIA H200"
    )


def compare_expandable(console: Console, only: str, facts: Row) -> None:
    """The cases that were measured with ``expandable_segments:True``, as far as they can be built here."""
    header, truth = read("memory_truth_expandable.jsonl")
    rows = compare_all(CASES, truth, header, only, expandable=True)
    summed = show(console, rows, f"expandable segments, of {len(truth)} measured")
    if not only:
        result = {**facts, "truth": header, "measured": len(truth), "cases": rows, "all": summed}
        (RESULTS / "memory_expandable.json").write_text(json.dumps(result, indent=1) + "\n")


def compare_new(console: Console, only: str, facts: Row, resume: bool) -> None:
    """The popular models: errors one by one of those that may be looked at, and only sums of the held-back third."""
    header, truth = read("memory_new.jsonl")
    out = RESULTS / "memory_new.json"
    rows: list[Row] = json.loads(out.read_text())["cases"] if resume else []
    done = {row["case"] for row in rows}
    for case in (case for case in NEW if case.name not in done and only in case.name):
        rows += compare_or_refuse(case, truth, header)
        if not only:
            result = {**facts, "truth": header, "measured": len(truth), "cases": rows}
            out.write_text(json.dumps(result, indent=1) + "\n")
    seen, held_back = ([row for row in rows if row["held_back"] == held] for held in (False, True))
    result = {**facts, "truth": header, "measured": len(truth), "cases": rows}
    for name, chosen in (("all", rows), ("looked at", seen), ("held back", held_back)):
        known = [row for row in chosen if "refused" not in row]
        if known:
            refused = len(chosen) - len(known)
            result[name] = {"cases": len(known), "refused": refused, **show(console, known, name)}
    if not only:
        out.write_text(json.dumps(result, indent=1) + "\n")
    show_new(console, seen)


def compare_or_refuse(case: Case, truth: list[Row], header: Row) -> list[Row]:
    """The row of a case; one that says why where there is no forecast; none where the case cannot be built here."""
    try:
        return compare_all([case], truth, header, "")
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:300]
        return [{"case": case.name, "held_back": case.held_back, "refused": why}]


def show_new(console: Console, seen: list[Row]) -> None:
    for row in seen:
        if "refused" in row:
            console.print(f"{row['case']}: {row['refused']}")
    known = [row for row in seen if "refused" not in row]
    table = Table("case", "allocated", "reserved", "device", title="largest errors of those that may be looked at")
    for row in sorted(known, key=lambda row: -max(abs(row["allocated"]), abs(row["reserved"])))[:25]:
        table.add_row(row["case"], *(f"{100 * row[key]:+.2f} %" for key in ("allocated", "reserved", "device")))
    console.print(table)


SPEED = {"gpt2": gpt2_forecast_and_largest, "llama-8b": llama_of_eight_billion}
EACH = "each"


def speed(console: Console) -> dict[str, Row]:
    """Each in a process of its own, its imports included."""
    found = {}
    for name in SPEED:
        began = time.perf_counter()
        said = subprocess.run([sys.executable, __file__, "--speed", name], capture_output=True, text=True, check=True)
        found[name] = {**json.loads(said.stdout.splitlines()[-1]), "seconds with imports": time.perf_counter() - began}
        console.print(f"{name}: {found[name]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--speed", nargs="?", const=EACH, choices=[EACH, *SPEED], help="time each, or one here")
    parser.add_argument("--expandable", action="store_true", help="the cases measured with expandable segments")
    parser.add_argument("--new", action="store_true", help="the popular models of memory_new.jsonl")
    parser.add_argument("--resume", action="store_true", help="with --new: keep the rows of memory_new.json")
    options = parser.parse_args()
    if options.speed in SPEED:
        print(json.dumps(timed(SPEED[options.speed])))
        return
    console, facts = Console(), about("transformers", "torchvision", "peft", "accelerate")
    if options.speed:
        (RESULTS / "memory_speed.json").write_text(json.dumps({**facts, "speed": speed(console)}, indent=1) + "\n")
        return
    if options.new:
        compare_new(console, options.only, facts, options.resume)
        return
    if options.expandable:
        compare_expandable(console, options.only, facts)
        return
    header, truth = read("memory_truth.jsonl")
    rows = compare_all(CASES, truth, header, options.only)
    fresh = compare_all(FRESH, read("memory_fresh.jsonl")[1], header, options.only)
    result = {**facts, "truth": header, "forecast with torch": torch.__version__, "cases": rows, "fresh cases": fresh}
    settled = [row for row in rows if not row["held_back"]]
    held_back = [row for row in rows if row["held_back"]]
    if rows:
        result["all"] = show(console, rows, "all cases")
    if settled:
        result["settled with"] = show(console, settled, "cases that the rules were settled with")
    if held_back:
        result["held back"] = show(console, held_back, "cases held back")
    if fresh:
        result["fresh"] = show(console, fresh, "fresh cases")
    result["caps"] = caps(console, options.only)
    if not options.only:
        (RESULTS / "memory.json").write_text(json.dumps(result, indent=1) + "\n")
    worst = sorted(rows + fresh, key=lambda row: -abs(row["device"]))[:12]
    table = Table("case", "allocated", "reserved", "device", title="largest errors of device memory")
    for row in worst:
        table.add_row(row["case"], *(f"{100 * row[key]:+.2f} %" for key in ("allocated", "reserved", "device")))
    console.print(table)


if __name__ == "__main__":
    main()
