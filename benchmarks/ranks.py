"""What a second rank gains on a second core: steps a second of one rank on one core and of two ranks on two.

The same training both times, so each of two ranks computes half of every batch. Between them are two processes that do
the same half without ever meeting: what the machine gives at best, since cores share caches and clocks. Rounds
alternate, since a shared machine has moods; the table shows medians. The meeting is what is left to do and to wait for
when a rank has computed its gradients, most of which are on their way by then. The vote and the transaction (the small
sum in which ranks tell each other how they fared, and the snapshot that a step can be taken back to) are timed by
themselves, with ranks that have just met.

    python benchmarks/ranks.py [--rounds 5] [--steps 100] [--batch 1024] [--json out.json]
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from about import about
from torch import nn

WARM_UP = 20
BAR, VOTE_BAR = 1.8, 0.01
VOTES = 200
WIDTH = 512


def make_model() -> nn.Module:
    torch.manual_seed(0)
    hidden = [layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, 1))


def be_rank(steps: int, batch: int, result: Path) -> None:
    """Train as one of the ranks that the environment speaks of, on a core of its own."""
    import brim
    from brim.engine.step.replicated_step import ReplicatedStep

    core = int(os.environ["BENCHMARK_CORE"])
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})
    torch.set_num_threads(1)
    meetings: list[float] = []
    stamps: list[float] = []

    def timed(function: Any, seconds: list[float]) -> Any:
        def call(*arguments: Any, **settings: Any) -> Any:
            began = time.perf_counter()
            returned = function(*arguments, **settings)
            seconds.append(time.perf_counter() - began)
            return returned

        return call

    finish = timed(ReplicatedStep.finish_overlapped, meetings)
    ReplicatedStep.finish_overlapped = finish  # type: ignore[method-assign]
    x = torch.randn(16 * batch, WIDTH, generator=torch.Generator().manual_seed(1))
    data = brim.Loader((x, x.sum(1, keepdim=True)), batch)
    batches = data.batches

    def stamped(*arguments: Any, **settings: Any) -> Any:
        """When the next batch is asked for. A callback would make ranks ask each other after every step."""
        for one in batches(*arguments, **settings):
            stamps.append(time.perf_counter())
            yield one

    vars(data)["batches"] = stamped
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            make_model(), data, loss_fn=nn.MSELoss(), device="cpu", threads=1, max_steps=WARM_UP + steps,
            run_dir=Path(os.environ.get("BENCHMARK_RUN", folder)), checkpoint_every=1_000_000,
        )  # fmt: skip
        trainer.fit()
        vote = 0.0 if trainer.ranks.is_alone else vote_seconds(trainer)
    of_steps = [later - earlier for earlier, later in zip(stamps[WARM_UP:], stamps[WARM_UP + 1 :], strict=False)]
    if core == 0:
        met = sum(meetings) / max(1, len(meetings)) / statistics.mean(of_steps)
        shares = {"met": met, "vote": vote / statistics.mean(of_steps)}
        result.write_text(json.dumps({"step": statistics.median(of_steps), **shares}))


def vote_seconds(trainer: Any) -> float:
    """What the vote and the transaction take in a step where nothing goes wrong and nobody is late."""
    import torch.distributed as dist

    from brim.engine.components.loss import Loss

    guard, nothing, took = trainer._run.guard, Loss(torch.zeros(()), 0), []
    for _ in range(VOTES):
        dist.barrier()
        began = time.perf_counter()
        guard.transaction.snapshot.take()
        told = guard.exchange._status_tensor(nothing, guard.step.trained, 0.0)
        dist.all_reduce(told)
        told.tolist()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def launch(world: int, meets: bool, steps: int, batch: int, folder: Path) -> dict[str, float]:
    """Ranks as a launcher would start them; or processes that know nothing of each other, each with its own core."""
    result = folder / f"result-{time.time_ns()}.json"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, "--steps", str(steps), "--batch", str(batch), "--rank-result", str(result)]
    ranks = []
    for rank in range(world):
        run = result.with_suffix(".run" if meets else f".run-{rank}")
        told = {"OMP_NUM_THREADS": "1", "BENCHMARK_RUN": str(run), "BENCHMARK_CORE": str(rank)}
        if meets:
            told |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
            told |= {"LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks.append(subprocess.Popen(command, env={**os.environ, **told}, stderr=subprocess.DEVNULL))
    if max(rank.wait(timeout=600) for rank in ranks):
        raise SystemExit(f"a rank of {world} failed")
    measured: dict[str, float] = json.loads(result.read_text())
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rank-result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_result is not None:
        be_rank(options.steps, options.batch, options.rank_result)
        return
    facts = {**about(), "threads": 1}  # each rank has one
    rounds = list[tuple[dict[str, float], ...]]()
    with tempfile.TemporaryDirectory() as name:
        folder, steps, batch = Path(name), options.steps, options.batch
        for _ in range(options.rounds):
            alone, apart = launch(1, False, steps, batch, folder), launch(2, False, steps, batch // 2, folder)
            rounds.append((alone, apart, launch(2, True, steps, batch, folder)))
    one, half, two = (statistics.median(r[kind]["step"] for r in rounds) for kind in range(3))
    met, vote = (statistics.median(r[2][part] for r in rounds) for part in ("met", "vote"))
    gains = [r[0]["step"] / r[2]["step"] for r in rounds]
    shares = f"{met:.1%} meeting; vote and transaction {vote:.2%} (bar {VOTE_BAR:.0%})"
    print(f"one rank, one core        {1000 * one:8.2f} ms a step")
    print(f"two, who never meet       {1000 * half:8.2f} ms a step on half a batch each: {one / half:.2f} x at best")
    print(f"two ranks, two cores      {1000 * two:8.2f} ms a step, of which {shares}")
    gain = statistics.median(gains)  # within a round, so that what the machine did meanwhile cancels out
    print(f"speed-up                  {gain:8.2f} x (rounds {min(gains):.2f} to {max(gains):.2f}; bar {BAR})")
    if options.json is not None:
        found: dict[str, Any] = {
            **facts, "batch": options.batch, "one_rank_ms": 1000 * one, "never_meet_ms": 1000 * half,
            "two_ranks_ms": 1000 * two, "speed_up": gain, "rounds": gains, "at_best": one / half,
            "meeting_share": met, "vote_share": vote, "bar": BAR, "vote_bar": VOTE_BAR,
        }  # fmt: skip
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
