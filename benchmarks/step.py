"""What capturing the step brings: samples a second of brim's captured and eager steps, bare loops and Lightning.

    python benchmarks/step.py [--parts lstm lstm-wide bpr recommender large-batch gpt2 bert evaluation loss rank]
                              [--json FILE]

Everything runs in one go, each part in a process of its own, so that one that fails does not take the others with it.
Within a part the contenders take turns, and the table shows medians over the rounds. ``busy`` is the time that kernels
ran, over the time that passed, in a short stretch under the profiler.
"""

import argparse
import json
import logging
import math
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from about import about
from step_contenders import (
    GPU,
    Job,
    bare,
    brim_trainer,
    clean,
    evaluated,
    final_loss,
    lightning_trainer,
    replay_alone,
    take_turns,
)  # fmt: skip
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import brim
from brim.workloads.recommender import BPR, GPT2RecommenderEnhanced, TrainDataLoader
from brim.workloads.recommender.interactions import Interactions

USERS, ITEMS, PAIRS, TEXT_WIDTH = 6040, 3706, 1_000_000, 768  # MovieLens-1M's size, GPT-2's width
SERIES, LENGTH, FEATURES = 400_000, 30, 16
WORKERS = 8
MOST_CAPTURE_SECONDS = 5.0
LOSS_STEPS, SEEDS = 1000, 3
Result = dict[str, Any]


class Forecaster(nn.Module):
    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, hidden, layers, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.out(self.lstm(x)[0][:, -1])
        return value


def squared_error(model: nn.Module, batch: Any) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[0]).float(), batch[1])


def own_loss(model: Any, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = model.calculate_loss(batch)
    return loss


def series(samples: int = SERIES) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of the last steps of random series: something an LSTM can learn."""
    generator = torch.Generator(GPU).manual_seed(0)
    x = torch.randn(samples, LENGTH, FEATURES, generator=generator, device=GPU)
    return x, x[:, -5:, 0].sum(1, keepdim=True)


def lstm_job(hidden: int, layers: int, batch_size: int, precision: str) -> Job:
    data = series()
    ready = [tuple(column[i : i + batch_size] for column in data) for i in range(0, 16 * batch_size, batch_size)]
    return Job(
        lambda: Forecaster(hidden, layers), squared_error, batch_size, precision, lambda: ready,
        lambda: brim.Loader(data, batch_size, drop_last=True),
    )  # fmt: skip


def random_pairs() -> Interactions:
    generator = torch.Generator().manual_seed(0)
    users = torch.randint(USERS, (PAIRS,), generator=generator)
    return Interactions(users, torch.randint(ITEMS, (PAIRS,), generator=generator), USERS, ITEMS)


def pairs_job(model: Callable[[], nn.Module], precision: str) -> Job:
    pairs, size = random_pairs(), 2048
    users, items = pairs.users.to(GPU), pairs.items.to(GPU)

    def draw() -> Iterator[list[torch.Tensor]]:
        """A resident data set as one would write it by hand, with negatives drawn on the device."""
        for rows in torch.randperm(PAIRS, device=GPU)[: PAIRS // size * size].split(size):
            yield [users[rows], items[rows], torch.randint(ITEMS, (size,), device=GPU)]

    class Drawn:
        def __iter__(self) -> Iterator[list[torch.Tensor]]:
            return draw()

    return Job(
        model, own_loss, size, precision, lambda: Drawn(),  # type: ignore[arg-type, return-value]
        lambda: TrainDataLoader(pairs, size, device="cuda", drop_last=True),
    )  # fmt: skip


def wide_recommender() -> nn.Module:
    """The recommender with kept encodings as wide as GPT-2's. What they say does not matter for the speed."""
    texts = {"users": [f"user {n}" for n in range(USERS)], "items": [f"item {n}" for n in range(ITEMS)]}
    model = GPT2RecommenderEnhanced(USERS, ITEMS, embed_dim=64, dataset=texts, use_cache=True, freeze_gpt2=True)
    for tower, rows in ((model.users, USERS), (model.items, ITEMS)):
        tower.mean = torch.zeros(TEXT_WIDTH)
        tower.whitening = torch.randn(TEXT_WIDTH, tower.whitening.shape[1]) / TEXT_WIDTH**0.5
        tower.keep(torch.randn(rows, TEXT_WIDTH))
    return model


def rate(rows: Result, name: str) -> float:
    rounds = rows[name]["rounds"]
    return statistics.median(rounds) if rounds else math.nan


def times_faster(rows: Result, name: str, than: str) -> float:
    """The median of the ratios within each round, so that what the machine did meanwhile cancels out."""
    ratios = [a / b for a, b in zip(rows[name]["rounds"], rows[than]["rounds"], strict=False)]
    return statistics.median(ratios) if ratios else math.nan


def bar(name: str, value: float, limit: float, at_most: bool = False) -> Result:
    met = value <= limit if at_most else value >= limit
    known = None if math.isnan(value) else value  # JSON has no word for NaN
    return {"what": name, "value": known, "bar": limit, "at_most": at_most, "met": bool(met)}


def capture_time(rows: Result, name: str) -> Result:
    seconds = rows[name].get("report", {}).get("seconds", math.nan)
    return bar("seconds spent on capturing and proving", seconds, MOST_CAPTURE_SECONDS, at_most=True)


def launch_bound_lstm(rounds: int, seconds: float, job: Callable[[], Job], least: float) -> Result:
    work = job()
    rows = take_turns(
        {
            "bare loop": bare(work), "bare loop, fused Adam": bare(work, fused=True),
            "Lightning": lightning_trainer(work), "brim eager": brim_trainer(work, "off"),
            "brim captured": brim_trainer(work, "require"),
        },
        rounds, seconds,
    )  # fmt: skip
    bars = [bar(f"captured, times {than}", times_faster(rows, "brim captured", than), least)
            for than in ("bare loop", "Lightning")]  # fmt: skip
    return {"rows": rows, "bars": [*bars, *beside_replay_alone(work, rows), capture_time(rows, "brim captured")]}


def lstm(rounds: int, seconds: float) -> Result:
    """LSTM 64 x 2, batch 128, 30 steps of 16 features, fp32"""
    return launch_bound_lstm(rounds, seconds, lambda: lstm_job(64, 2, 128, "32"), 15.0)


def lstm_wide(rounds: int, seconds: float) -> Result:
    """LSTM 256 x 3, batch 512, 30 steps of 16 features, bf16"""
    return launch_bound_lstm(rounds, seconds, lambda: lstm_job(256, 3, 512, "bf16"), 6.5)


def bpr(rounds: int, seconds: float) -> Result:
    """BPR of MovieLens-1M's size, 64 dimensions, batch 2,048"""
    job = pairs_job(lambda: BPR(USERS, ITEMS, embed_dim=64), "32")
    pairs = random_pairs()
    columns = torch.utils.data.TensorDataset(pairs.users, pairs.items, torch.randint(ITEMS, (PAIRS,)))
    by_sample = torch.utils.data.DataLoader(
        columns, job.batch_size, shuffle=True, drop_last=True, num_workers=WORKERS, pin_memory=True,
        persistent_workers=True, prefetch_factor=4,
    )  # fmt: skip
    loader = f"bare loop, DataLoader with {WORKERS} workers"
    rows = take_turns(
        {
            loader: bare(job, lambda: by_sample), "bare loop, resident": bare(job),
            "brim eager": brim_trainer(job, "off"), "brim captured": brim_trainer(job, "require"),
        },
        rounds, seconds,
    )  # fmt: skip
    return {
        "rows": rows,
        "bars": [
            bar("captured, times the DataLoader", times_faster(rows, "brim captured", loader), 20.0),
            *beside_replay_alone(job, rows),
            capture_time(rows, "brim captured"),
        ],
    }


def recommender(rounds: int, seconds: float) -> Result:
    """Recommender with kept 768-wide encodings and MLP towers, batch 2,048, resident, TF32"""
    job = pairs_job(wide_recommender, "tf32")
    rows = take_turns(
        {
            "bare loop, resident": bare(job), "brim eager": brim_trainer(job, "off"),
            "brim captured": brim_trainer(job, "require"),
        },
        rounds, seconds,
    )  # fmt: skip
    return {
        "rows": rows,
        "bars": [
            bar("captured, samples/s", rate(rows, "brim captured"), 3.2e6),
            *beside_replay_alone(job, rows),
            capture_time(rows, "brim captured"),
        ],
    }


def beside_replay_alone(job: Job, rows: Result) -> list[Result]:
    """Adds a row for replaying the graph and nothing else. Last, for a replay that goes wrong can spoil the device."""
    try:
        alone = replay_alone(job)
    except Exception as error:
        rows["replaying alone"] = {"rounds": [], "error": f"{type(error).__name__}: {error}"[:300]}
        alone = math.nan
    else:
        rows["replaying alone"] = {"rounds": [alone]}
    return [bar("captured, share of replaying alone", rate(rows, "brim captured") / alone, 0.95)]


def not_launch_bound(rounds: int, seconds: float, job: Job) -> Result:
    rows = take_turns({"brim eager": brim_trainer(job, "off"), "brim auto": brim_trainer(job, "auto")}, rounds, seconds)
    bars = [bar("auto, times eager", times_faster(rows, "brim auto", "brim eager"), 0.98)]
    return {"rows": rows, "bars": [*bars, capture_time(rows, "brim auto")]}


def large_batch(rounds: int, seconds: float) -> Result:
    """LSTM 256 x 3, batch 8,192, bf16: not launch-bound"""
    return not_launch_bound(rounds, seconds, lstm_job(256, 3, 8192, "bf16"))


def gpt2(rounds: int, seconds: float) -> Result:
    """GPT-2 124M, batch 8 x 512, bf16: what brim chooses, beside eager"""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokens = torch.randint(0, 50257, (4096, 512), generator=torch.Generator().manual_seed(0))

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = model(input_ids=batch, labels=batch).loss
        return value

    job = Job(
        lambda: GPT2LMHeadModel(GPT2Config(use_cache=False)), loss, 8, "bf16", list,
        lambda: brim.Loader(tokens, 8, drop_last=True),
    )  # fmt: skip
    return not_launch_bound(rounds, seconds, job)


def hf_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    tokens, mask, labels = batch
    value: torch.Tensor = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
    return value


def bert_job() -> Job:
    """Sentences of 32 to 128 tokens, padded to 128; random weights, as large as BERT-base."""
    from transformers import BertConfig, BertForSequenceClassification

    generator = torch.Generator().manual_seed(0)
    samples, length, size = 8192, 128, 32
    mask = (torch.arange(length) < torch.randint(32, length + 1, (samples, 1), generator=generator)).long()
    tokens = torch.randint(5, 30000, (samples, length), generator=generator) * mask
    data = (tokens, mask, torch.randint(2, (samples,), generator=generator))
    ready = [tuple(column[i : i + size].to(GPU) for column in data) for i in range(0, 16 * size, size)]
    return Job(
        lambda: BertForSequenceClassification(BertConfig()), hf_loss, size, "bf16", lambda: ready,
        lambda: brim.Loader(data, size, drop_last=True),
    )  # fmt: skip


def bert(rounds: int, seconds: float) -> Result:
    """BERT-base, batches of 32 x 128 tokens with a padding mask, bf16"""
    work = bert_job()
    rows = take_turns(
        {
            "bare loop": bare(work), "bare loop, fused Adam": bare(work, fused=True),
            "Lightning": lightning_trainer(work), "brim eager": brim_trainer(work, "off"),
            "brim captured": brim_trainer(work, "auto"),
        },
        rounds, seconds,
    )  # fmt: skip
    bars = [bar("captured, times Lightning", times_faster(rows, "brim captured", "Lightning"), 2.0)]
    is_captured = float(rows["brim captured"].get("report", {}).get("captured", False))
    bars.append(bar("captured at all", is_captured, 1.0))
    return {"rows": rows, "bars": [*bars, capture_time(rows, "brim captured")]}


def evaluation(rounds: int, seconds: float) -> Result:
    """Evaluating an LSTM 64 x 2, batch 128, between the epochs of a run"""
    job = lstm_job(64, 2, 128, "32")
    rows = take_turns({"brim eager": evaluated(job, "off"), "brim captured": evaluated(job, "auto")}, rounds, seconds)
    return {
        "rows": rows,
        "bars": [bar("captured, times eager", times_faster(rows, "brim captured", "brim eager"), 1.0)],
    }


def rank(rounds: int, seconds: float) -> Result:
    """LSTM 64 x 2, batch 128, fp32, as one rank of one, over NCCL"""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29571"}
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", **place)
    job = lstm_job(64, 2, 128, "32")
    rows = take_turns(
        {
            "brim eager": brim_trainer(job, "off", strategy="ddp"),  # first: it forms the group that all use
            "brim captured": brim_trainer(job, "require", strategy="ddp"),
            "bare loop, DistributedDataParallel": bare(job, wrap=DistributedDataParallel),
            "brim captured, no process group": brim_trainer(job, "require", strategy="single"),
        },
        rounds, seconds,
    )  # fmt: skip
    than = "bare loop, DistributedDataParallel"
    bars = [bar("captured, times DistributedDataParallel", times_faster(rows, "brim captured", than), 1.0)]
    return {"rows": rows, "bars": [*bars, capture_time(rows, "brim captured")]}


def loss(rounds: int, seconds: float) -> Result:
    """Final loss after 1,000 steps: captured beside eager, three seeds"""
    jobs = {"LSTM": lstm_job(64, 2, 128, "32"), "BPR": pairs_job(lambda: BPR(USERS, ITEMS, embed_dim=64), "32")}
    finals: Result = {}
    bars = []
    for name, job in jobs.items():
        found: dict[str, list[float]] = {"off": [], "require": []}
        for seed in range(SEEDS):
            for capture, losses in found.items():
                losses.append(final_loss(job, capture, seed, LOSS_STEPS))
                clean()
        eager, captured = found["off"], found["require"]
        apart = max(abs(c - e) / abs(e) for c, e in zip(captured, eager, strict=True))
        spread = (max(eager) - min(eager)) / abs(statistics.mean(eager))
        finals[name] = {"eager": eager, "captured": captured}
        print(f"{name}: eager {eager}, captured {captured}", flush=True)
        bars.append(bar(f"{name}, relative difference of the loss", apart, max(1e-4, spread), at_most=True))
    return {"losses": finals, "bars": bars}


PARTS: dict[str, Callable[[int, float], Result]] = {
    "lstm": lstm, "lstm-wide": lstm_wide, "bpr": bpr, "recommender": recommender, "large-batch": large_batch,
    "gpt2": gpt2, "bert": bert, "evaluation": evaluation, "loss": loss, "rank": rank,
}  # fmt: skip


def show(found: Result) -> None:
    rows = found.get("rows", {})
    if rows:
        base = next((rate(rows, name) for name in rows if rows[name]["rounds"]), math.nan)
        print(f"{'':40}{'samples/s':>14}{'ratio':>9}{'busy':>8}")
    for name, row in rows.items():
        busy = f"{row['busy']:.0%}" if row.get("busy") is not None else ""
        figures = f"{rate(rows, name):14,.0f}{rate(rows, name) / base:9.2f}{busy:>8}" if row["rounds"] else ""
        print(f"{name:40}{figures}{'  ' + row['error'] if 'error' in row else ''}")
        if row.get("report"):
            told = row["report"]
            counts = ", ".join(f"{key} {told[key]}" for key in ("replays", "eager", "graphs", "gain", "seconds"))
            print(f"    {'captured' if told['captured'] else 'not captured: ' + told['reason']}; {counts}")
    for one in found.get("bars", []):
        value = "not measured" if one["value"] is None else f"{one['value']:,.4g}"
        verdict = "met" if one["met"] else "MISSED"
        print(f"{one['what']:52}{value:>14}  {'<=' if one['at_most'] else '>='} {one['bar']:,.4g}  {verdict}")


def run_part(name: str, rounds: int, seconds: float) -> Result:
    part = PARTS[name]
    print(f"\n{name}: {part.__doc__}", flush=True)
    try:
        found = part(rounds, seconds)
    except Exception as error:
        print(f"failed: {type(error).__name__}: {error}", flush=True)
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    show(found)
    return found


def run_apart(name: str, rounds: int, seconds: float) -> Result:
    """A part in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "part.json"
        command = [sys.executable, __file__, "--parts", name, "--rounds", str(rounds), "--seconds", str(seconds)]
        code = subprocess.run([*command, "--json", str(written)], check=False).returncode
        if not written.exists():
            return {"error": f"its process ended with {code}"}
        found: Result = json.loads(written.read_text())["parts"][name]
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=list(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="timed seconds of each turn")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU, so nothing can be captured")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    parts = arguments.parts or list(PARTS)
    run = partial(run_apart if len(parts) > 1 else run_part, rounds=arguments.rounds, seconds=arguments.seconds)
    results: Result = {
        **about("lightning", "transformers"), "rounds": arguments.rounds, "seconds": arguments.seconds, "parts": {},
    }  # fmt: skip
    for name in parts:
        results["parts"][name] = run(name)
        if arguments.json is not None:  # after each part, for one who stops it early
            arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    bars = [(name, one) for name, found in results["parts"].items() for one in found.get("bars", [])]
    if len(parts) > 1:
        missed = [f"{name}: {one['what']} {one['value']}" for name, one in bars if not one["met"]]
        missed += [f"{name}: {found['error']}" for name, found in results["parts"].items() if "error" in found]
        print(f"\n{len(bars) - sum(not one['met'] for _, one in bars)} of {len(bars)} bars met")
        print("\n".join(missed))


if __name__ == "__main__":
    main()
