"""Run the benchmarks that fit on this machine, one after another, and say how long each took.

    python benchmarks/run_all.py cpu|gpu [--only NAME ...] [--to FOLDER] [--limit SECONDS] [--list]

Results go to ``benchmarks/results``, under the names that figures are read from, unless ``--to`` names a folder. What
one lacks (data in ``BRIM_TEST_DATA``, a package) is said, and the others go on. They want the machine for themselves.
With ``--limit`` each is ended after so many seconds, with all that it started; what it has written by then stays.
"""

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

BENCHMARKS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Benchmark:
    """A script with its arguments. ``{to}`` in them is the folder of results."""

    name: str
    command: str
    packages: tuple[str, ...] = ()
    needs_data: bool = False


ON_CPU = (
    Benchmark("overhead", "overhead.py --device cpu --json {to}/overhead-2-cores.json", ("lightning", "accelerate")),
    Benchmark("feed", "feed.py columns memory shards --cpu-time --json {to}/feed-2-cores.json", ("webdataset",)),
    Benchmark("shards", "shards.py --json {to}/shards-2-cores.json", ("webdataset", "lightning")),
    Benchmark("first-step", "first_step.py --device cpu --json {to}/first-step-2-cores.json", ("lightning",)),
    Benchmark("ports", "ports.py --json {to}/ports-2-cores.json", ("transformers", "lightning", "peft")),
    Benchmark("memory", "memory.py", ("accelerate", "transformers")),
    Benchmark("memory-expandable", "memory.py --expandable", ("accelerate", "transformers")),
    Benchmark("speed-up", "speed_up.py --json {to}/speed-up.json", ("transformers",)),
    Benchmark("ranks", "ranks.py --rounds 7 --batch 4096 --json {to}/ranks-2-cores.json"),
    Benchmark("doctor-gain", "doctor_gain.py --json {to}/doctor-gain-2-cores.json"),
    Benchmark("threads", "threads.py --json {to}/threads-2-cores.json"),
    Benchmark("recommender-loops", "recommender_loops.py --json {to}/recommender-loops-2-cores.json", ("lightning",)),
    Benchmark("law", "law.py --json {to}/law-2-cores.json", ("transformers",)),
    Benchmark("text-helps", "text_helps.py --json {to}/text-helps-2-cores.json", ("transformers",)),
    Benchmark("recommender", "recommender.py --rounds 9 --quality --json {to}/recommender-2-cores.json", (), True),
    Benchmark(
        "forecaster",
        "forecaster.py quality --only ETTh1 --only exchange --threads 1 --device cpu "
        "--json {to}/forecaster-2-cores.json",
        ("pandas",),
        True,
    ),
    Benchmark(
        "forecaster-etth2",
        "forecaster.py quality --only ETTh2 --threads 1 --device cpu --json {to}/forecaster-etth2-2-cores.json",
        ("pandas",),
        True,
    ),
    Benchmark(
        "forecaster-defaults",
        "forecaster.py defaults --only exchange --threads 1 --device cpu --json {to}/forecaster-defaults-2-cores.json",
        ("pandas",),
        True,
    ),
    Benchmark("fuzz", "fuzz.py --json {to}/fuzz.json"),
    Benchmark("soak", "soak.py --minutes 12 --json {to}/soak.json"),
    Benchmark("rank-soak", "rank_soak.py --json {to}/rank-soak.json"),
)
ON_GPU = (
    Benchmark("step", "step.py --json {to}/step-h200.json", ("lightning", "transformers")),
    Benchmark("overhead", "overhead.py --json {to}/overhead-h200.json", ("lightning", "accelerate")),
    Benchmark("feed", "feed.py --json {to}/feed-h200.json", ("webdataset", "torchvision")),
    Benchmark("ports", "ports.py --json {to}/ports-h200.json", ("transformers", "lightning", "peft")),
    Benchmark("plain-loop", "plain_loop.py --device cuda --json {to}/plain-loop-h200.json"),
    Benchmark("doctor-gain", "doctor_gain.py --json {to}/doctor-gain-h200.json"),
    Benchmark("first-step", "first_step.py --device cuda --json {to}/first-step-h200.json", ("lightning",)),
    Benchmark("capture-proof", "capture_proof.py --json {to}/capture-proof-h200.json", ("transformers",)),
    Benchmark("compile", "compile.py --json {to}/compile-h200.json", ("transformers",)),
    Benchmark("decisions", "decisions.py --json {to}/decisions-h200.json", ("transformers",)),
    Benchmark("memory-truth", "memory_truth.py", ("transformers", "torchvision")),
    Benchmark("memory-caps", "memory_truth.py --caps", ("transformers", "torchvision")),
    Benchmark("out-of-memory", "out_of_memory.py --json {to}/out_of_memory-h200.json", ("transformers",)),
    Benchmark("saving", "saving.py --json {to}/saving-h200.json", ("transformers",)),
    Benchmark("fit-more", "fit_more.py --json {to}/fit-more-h200.json", ("transformers",)),
    Benchmark("recommender-epoch", "recommender_epoch.py --json {to}/recommender-epoch-h200.json"),
    Benchmark("metrics-cost", "metrics_cost.py --json {to}/metrics-cost-h200.json", ("torchvision", "torchmetrics")),
    Benchmark("recorder-cost", "recorder_cost.py --json {to}/recorder-cost-h200.json"),
)


def lacks(benchmark: Benchmark) -> str | None:
    """What a benchmark needs and this machine has not."""
    missing = [name for name in benchmark.packages if importlib.util.find_spec(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    return "needs BRIM_TEST_DATA" if benchmark.needs_data and "BRIM_TEST_DATA" not in os.environ else None


def run(benchmark: Benchmark, to: Path, limit: float | None) -> str:
    """Run it; how it ended, and how long it took."""
    script, *arguments = benchmark.command.format(to=to).split()
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, str(BENCHMARKS / script), *arguments], start_new_session=True)
    try:
        code = process.wait(limit)
        ended = "" if code == 0 else f", ended with {code}"
    except subprocess.TimeoutExpired:
        ended = ", ended by the limit"
    finally:  # also where this one is ended: its children belong to another group
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return f"{(time.monotonic() - began) / 60:.1f} minutes{ended}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", choices=("cpu", "gpu"))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--to", type=Path, default=BENCHMARKS / "results")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="for each")
    parser.add_argument("--list", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    if arguments.where == "gpu" and not arguments.list and not torch.cuda.is_available():
        sys.exit("there is no CUDA device here")
    chosen = ON_CPU if arguments.where == "cpu" else ON_GPU
    if unknown := set(arguments.only) - {one.name for one in chosen}:
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in chosen)}")
    arguments.to.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for one in chosen:
        if arguments.only and one.name not in arguments.only:
            continue
        reason = lacks(one)
        if reason is not None:
            told = f"left out: {reason}"
        else:
            told = one.command if arguments.list else run(one, arguments.to, arguments.limit)
        lines.append(f"{one.name:20} {told}")
        print(lines[-1], flush=True)
    if not arguments.list:
        print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
