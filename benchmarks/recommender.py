"""BPR on MovieLens-1M: brim beside RecBole, epoch by epoch, and how well brim's model ranks in the end.

Both train matrix factorisation on the same split with the same settings and rank all items for every user of the
validation split. RecBole lives in a process and an environment of its own; the two take turns, an epoch and an
evaluation each, and the table shows medians over the rounds; checkpoints are in the times of neither. With
``--quality``, brim trains until the validation NDCG@10 has not risen for 10 epochs, and the test split is ranked with
training and validation items left out.

    python benchmarks/recommender.py [--data ml-1m] [--recbole-python PATH] [--quality] [--json out.json]

RecBole 1.2.1 needs older packages than brim, so it wants an environment of its own:

    python -m venv recbole-venv
    recbole-venv/bin/pip install torch==2.13.0
    recbole-venv/bin/pip install recbole==1.2.1 "numpy<2" "pandas<2.3" "scipy<1.14" "setuptools<81"
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from about import about

if TYPE_CHECKING:  # RecBole's environment runs this file too, and has no brim
    from brim import Result
    from brim.workloads.recommender import ML1MDataset

EMBED_DIM, BATCH, LR, K = 64, 2048, 1e-3, (10, 20)
BAR_SPEED = 2.0
BAR_NDCG = 0.2385  # RecBole's BPR reaches 0.2399 on this split
EASE_BY_RECBOLE = {"recall@10": 0.2094, "ndcg@10": 0.2767, "recall@20": 0.3072, "ndcg@20": 0.2886}
WARM_UP = 1
EVENTS = ("epoch", "evaluation")


class RecBole:
    """RecBole's BPR in a process of its own, which waits for its turn."""

    def __init__(self, python: Path, split: Path, folder: Path, threads: int | None) -> None:
        write_atomic_files(split, folder / "ml-1m")
        self.errors = folder / "recbole.log"
        # RecBole's checkpoints hold more than weights, which torch refuses to load since 2.6.
        environment = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [python.absolute(), Path(__file__).resolve(), "--as-recbole", folder],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder, env=environment,
            )  # fmt: skip
        self.facts = self._read()

    def turn(self) -> dict[str, Any]:
        """Train an epoch and evaluate; the seconds of both, and the validation NDCG@10."""
        assert self.process.stdin is not None
        self.process.stdin.write("turn\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"RecBole ended early:\n{self.errors.read_text()[-3000:]}")
        return json.loads(line)


def write_atomic_files(split: Path, folder: Path) -> None:
    """The split as the files RecBole reads: a type behind each column's name."""
    folder.mkdir()
    for name in ("train", "valid", "test"):
        _, _, pairs = (split / f"{name}.tsv").read_text().partition("\n")
        (folder / f"ml-1m.{name}.inter").write_text("user_id:token\titem_id:token\n" + pairs)


def serve_recbole(folder: Path) -> None:
    """What the process of :class:`RecBole` runs: a line of JSON when ready, and one for every turn."""
    answers, sys.stdout = sys.stdout, sys.stderr  # RecBole prints too
    sys.argv = sys.argv[:1]  # RecBole takes settings from the command line
    import recbole
    from recbole.config import Config
    from recbole.data import create_dataset, data_preparation
    from recbole.model.general_recommender import BPR
    from recbole.trainer import Trainer
    from recbole.utils import init_seed

    settings = {
        "data_path": str(folder), "benchmark_filename": ["train", "valid", "test"],
        "load_col": {"inter": ["user_id", "item_id"]}, "use_gpu": False, "show_progress": False,
        "embedding_size": EMBED_DIM, "train_batch_size": BATCH, "learning_rate": LR, "learner": "adam",
        "train_neg_sample_args": {"distribution": "uniform", "sample_num": 1, "alpha": 1.0, "dynamic": False,
                                  "candidate_num": 0},
        # Counted in scores, not users: RecBole's own benchmark configurations set this, its default is a user a batch.
        "eval_batch_size": 4_096_000,
        "metrics": ["Recall", "MRR", "NDCG", "Hit", "Precision"], "topk": list(K), "valid_metric": "NDCG@10",
    }  # fmt: skip
    config = Config(model="BPR", dataset="ml-1m", config_dict=settings)
    init_seed(config["seed"], config["reproducibility"])
    dataset = create_dataset(config)
    train, valid, _ = data_preparation(config, dataset)
    trainer = Trainer(config, BPR(config, train.dataset).to(config["device"]))

    def answer(facts: dict[str, Any]) -> None:
        print(json.dumps(facts), file=answers, flush=True)

    version = f"RecBole {recbole.__version__}, torch {torch.__version__}"
    answer({"train": len(train.dataset), "threads": torch.get_num_threads(), "version": version})
    for number, _ in enumerate(sys.stdin):
        began = time.perf_counter()
        trainer._train_epoch(train, number, show_progress=False)
        trained = time.perf_counter()
        metrics = trainer.evaluate(valid, load_best_model=False, show_progress=False)
        evaluated = time.perf_counter()
        answer({"epoch": trained - began, "evaluation": evaluated - trained, "ndcg@10": metrics["ndcg@10"]})


def take_turns(dataset: "ML1MDataset", rounds: int, threads: int | None, peer: RecBole | None) -> dict[str, list[Any]]:
    """The rounds of brim and, between its epochs, of RecBole. The first ones warm both up and are not in the lists."""
    import brim
    from brim.workloads.recommender import BPR, EvalDataLoader, TrainDataLoader

    train, validation = dataset.get_split_data("train"), dataset.get_split_data("validation")
    turns: dict[str, list[Any]] = {"brim": [], "RecBole": []}
    clock = {"epoch began": 0.0}

    class TimedEvaluation(EvalDataLoader):
        def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
            began = time.perf_counter()
            metrics = super().evaluate(model)
            evaluation = time.perf_counter() - began
            turns["brim"].append(
                {"epoch": began - clock["epoch began"], "evaluation": evaluation, "ndcg@10": metrics["ndcg@10"]}
            )
            return metrics

    class LetRecBoleRun(brim.Callback):
        def on_fit_start(self, trainer: brim.Trainer) -> None:
            clock["epoch began"] = time.perf_counter()

        def on_epoch_end(self, trainer: brim.Trainer, epoch: int) -> None:
            turns["brim"][-1]["threads"] = torch.get_num_threads()
            if peer is not None:
                turns["RecBole"].append(peer.turn())
            clock["epoch began"] = time.perf_counter()

    torch.manual_seed(0)
    model = BPR(dataset.get_user_num(), dataset.get_item_num(), embed_dim=EMBED_DIM)
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            model, TrainDataLoader(train, batch_size=BATCH, device="cpu"),
            TimedEvaluation(validation, train, device="cpu", k=K), optimizer="Adam", lr=LR, epochs=WARM_UP + rounds,
            device="cpu", threads=threads or "auto", run_dir=Path(folder) / "run", callbacks=[LetRecBoleRun()],
        )  # fmt: skip
        trainer.fit()
    return {name: values[WARM_UP:] for name, values in turns.items()}


def measure_speed(dataset: "ML1MDataset", arguments: argparse.Namespace) -> dict[str, Any]:
    """Twice: with as many threads as each chooses for itself, and with one."""
    facts: dict[str, Any] = {}
    for title, threads in (("threads as each chooses", None), ("one thread", 1)):
        load = os.getloadavg()[0]
        with recbole_beside(arguments, threads) as peer:
            turns = take_turns(dataset, arguments.rounds, threads, peer)
            used = {"brim": turns["brim"][-1]["threads"], "RecBole": peer and peer.facts["threads"]}
        if peer is not None and peer.facts["train"] != len(dataset.get_split_data("train")):
            raise SystemExit(f"RecBole trains on {peer.facts['train']:,} pairs, which are not those of brim")
        facts[title] = {"threads": used, "load_before": load, **summary(turns)}
        if peer is not None:
            facts["peer"] = peer.facts["version"]
        print_speed(title, facts[title])
    return facts


@contextmanager
def recbole_beside(arguments: argparse.Namespace, threads: int | None) -> Iterator[RecBole | None]:
    if arguments.recbole_python is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        peer = RecBole(arguments.recbole_python, arguments.split, Path(folder), threads)
        try:
            yield peer
        finally:
            peer.close()


def summary(turns: dict[str, list[Any]]) -> dict[str, Any]:
    """Median seconds, and the ratios within each round, so that what the machine did meanwhile cancels out."""
    present = {name: rounds for name, rounds in turns.items() if rounds}
    facts: dict[str, Any] = {
        "seconds": {n: {e: statistics.median(r[e] for r in rounds) for e in EVENTS} for n, rounds in present.items()},
        "ndcg@10": {name: rounds[-1]["ndcg@10"] for name, rounds in present.items()},
        "rounds": {name: {event: [r[event] for r in rounds] for event in EVENTS} for name, rounds in present.items()},
    }
    if "RecBole" in present:
        pairs = list(zip(turns["RecBole"], turns["brim"], strict=True))
        ratios = {event: sorted(theirs[event] / ours[event] for theirs, ours in pairs) for event in EVENTS}
        facts["times_faster"] = {event: statistics.median(values) for event, values in ratios.items()}
        facts["range"] = {event: [values[0], values[-1]] for event, values in ratios.items()}
    return facts


def print_speed(title: str, facts: dict[str, Any]) -> None:
    used = ", ".join(f"{name} {threads}" for name, threads in facts["threads"].items() if threads)
    rounds = len(facts["rounds"]["brim"]["epoch"])
    print(f"\n{title} ({used}); median of {rounds} rounds, load before {facts['load_before']:.2f}")
    print(f"{'seconds':16}" + "".join(f"{name:>10}" for name in facts["seconds"]), end="")
    print(f"{'times faster':>14}{'range':>18}{f'bar {BAR_SPEED:.1f}':>10}" if "times_faster" in facts else "")
    for event in EVENTS:
        print(f"{event:16}" + "".join(f"{seconds[event]:10.3f}" for seconds in facts["seconds"].values()), end="")
        if "times_faster" in facts:
            low, high = facts["range"][event]
            faster = facts["times_faster"][event]
            verdict = "met" if faster >= BAR_SPEED else "missed"
            print(f"{faster:14.2f}{f'{low:.2f} to {high:.2f}':>18}{verdict:>10}", end="")
        print()
    print(f"{'NDCG@10 then':16}" + "".join(f"{value:10.4f}" for value in facts["ndcg@10"].values()))


DECAYING = {"name": "AdamW", "weight_decay": 0.1}


def train_until_converged(dataset: "ML1MDataset", seed: int, optimizer: Any = "Adam") -> "Result":
    import brim
    from brim.workloads.recommender import BPR, EvalDataLoader, TrainDataLoader

    train, validation, test = (dataset.get_split_data(split) for split in ("train", "validation", "test"))
    torch.manual_seed(seed)
    model = BPR(dataset.get_user_num(), dataset.get_item_num(), embed_dim=EMBED_DIM)
    with tempfile.TemporaryDirectory() as folder:
        trainer = brim.Trainer(
            model, TrainDataLoader(train, batch_size=BATCH, device="cpu"),
            EvalDataLoader(validation, train, device="cpu", k=K),
            EvalDataLoader(test, train, device="cpu", k=K, also_mask=validation),
            optimizer=optimizer, lr=LR, epochs=500, patience=10, seed=seed, device="cpu",
            threads=1, run_dir=Path(folder) / "run",  # another number of threads rounds differently
        )  # fmt: skip
        return trainer.fit()


def measure_quality(dataset: "ML1MDataset", seeds: int) -> dict[str, Any]:
    from brim.workloads.recommender import EASE, EvalDataLoader

    known, validation, test = (dataset.get_split_data(split) for split in ("train", "validation", "test"))
    names = ("ndcg@10", "recall@10", "recall@20", "ndcg@20")
    print("\ntest split, training and validation items left out")
    print(f"{'':16}" + "".join(f"{name:>11}" for name in names) + f"{'epochs':>8}{'seconds':>9}")

    def show(title: str, metrics: dict[str, float], rest: str = "") -> None:
        print(f"{title:16}" + "".join(f"{metrics[name]:11.4f}" for name in names) + rest, flush=True)

    def train(title: str, seed: int, optimizer: Any = "Adam") -> dict[str, Any]:
        result = train_until_converged(dataset, seed, optimizer)
        show(title, result.metrics, f"{result.epochs:8}{result.seconds:9.0f}")
        return {**result.metrics, "epochs": result.epochs, "seconds": result.seconds}

    runs = {f"seed {seed}": train(f"BPR, seed {seed}", seed) for seed in range(seeds)}
    mean = {name: statistics.mean(run[name] for run in runs.values()) for name in names}
    show("BPR, mean", mean)
    # Not RecBole's settings: BPR overfits with them, and this shows what weight decay makes of it.
    decayed = {f"seed {seed}": train(f"decay 0.1, {seed}", seed, DECAYING) for seed in range(seeds)}
    reached = {
        "recbole settings": sum(run["ndcg@10"] >= BAR_NDCG for run in runs.values()),
        "weight decay": sum(run["ndcg@10"] >= BAR_NDCG for run in decayed.values()),
    }
    test_data = EvalDataLoader(test, known, device="cpu", k=K, also_mask=validation)
    ease = test_data.evaluate(EASE(known, regularisation=250))
    show("EASE", ease)
    show("EASE, RecBole", EASE_BY_RECBOLE)
    equal = all(round(ease[name], 4) == value for name, value in EASE_BY_RECBOLE.items())
    print(f"\nof {seeds} seeds reach NDCG@10 {BAR_NDCG}: {reached['recbole settings']} with RecBole's settings, "
          f"{reached['weight decay']} with weight decay; EASE is {'equal' if equal else 'DIFFERENT'}")  # fmt: skip
    bars = {"bar": BAR_NDCG, "reached": reached, "ease_equal": equal}
    return {"runs": runs, "mean": mean, "weight_decay_0.1": decayed, "ease": ease, **bars}


def parse_arguments() -> argparse.Namespace:
    test_data = os.environ.get("BRIM_TEST_DATA")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(test_data) / "ml-1m" if test_data else None,
                        help="the folder of MovieLens-1M (default: ml-1m in $BRIM_TEST_DATA)")  # fmt: skip
    parser.add_argument("--split", type=Path, help="train.tsv, valid.tsv, test.tsv (default: DATA/recbole_split_ge3)")
    parser.add_argument("--recbole-python", type=Path, help="a Python that has RecBole")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds; 0 leaves the speed out")
    parser.add_argument("--quality", action="store_true", help="train brim's BPR to the end, with several seeds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--as-recbole", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.data is None and arguments.as_recbole is None:
        parser.error("say where MovieLens-1M is: --data, or BRIM_TEST_DATA")
    if arguments.split is None and arguments.data is not None:
        arguments.split = arguments.data / "recbole_split_ge3"
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.as_recbole is not None:
        serve_recbole(arguments.as_recbole)
        return
    from brim.workloads.recommender import ML1MDataset

    dataset = ML1MDataset(arguments.data, split_files=arguments.split)
    pairs = len(dataset.get_split_data("train"))
    facts = about()
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()))
    print(f"BPR on {pairs:,} training pairs, {EMBED_DIM} dimensions, batch {BATCH:,}, Adam, learning rate {LR}")
    if arguments.rounds:
        facts["speed"] = measure_speed(dataset, arguments)
        if arguments.recbole_python is None:
            print("\nRecBole was not run; to see it beside brim, install it so and pass --recbole-python:")
            print((__doc__ or "").rpartition(":\n\n")[2])
    if arguments.quality:
        facts["quality"] = measure_quality(dataset, arguments.seeds)
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
