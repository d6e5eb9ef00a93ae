"""How long until training begins: a bare loop, brim, Lightning and transformers.Trainer side by side.

    python benchmarks/first_step.py [WORKLOAD ...] [--device cuda] [--steps 100 1000] [--rounds 3] [--json FILE]

Workloads: ``gpt2`` (124M, 16 x 512), ``bert`` (base, 32 sentences of up to 128 tokens, padded), ``resnet`` (ResNet-50,
64 pictures with augmentation; needs torchvision), and for a CPU ``mlp``, ``small_gpt`` (21M), ``small_bert`` (two
layers; 4,000 sentences as lists of numbers, padded, by 2 workers) and ``small_lora`` (adapters of a causal model; needs
peft). Each training is a process of its own, all contenders of a round one after the other; medians are shown.
``start`` is the time from the start of the process to the end of the first optimizer step, ``fit`` that from the call
that begins training, without imports and without making model and data; then the seconds from that call to the end of
so many steps, of one run of the largest number. ``brim, remembered`` is brim with ``forecast="auto"`` whose forecast an
earlier run has left behind.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTENDERS = ("bare", "brim", "brim, remembered", "lightning", "transformers")
PACKAGES = {"lightning": "lightning", "transformers": "transformers"}
ON_GPU, ON_CPU = ("gpt2", "bert", "resnet"), ("mlp", "small_gpt", "small_bert", "small_lora")
NEEDS = {"resnet": "torchvision", "small_lora": "peft"}
MARK = "TIMES "


@dataclass
class Job:
    """A model that returns its loss, its samples, and how they become batches."""

    model: Any
    data: Any
    collate: Callable[[list[Any]], Any]
    batch_size: int
    workers: int


class Clock:
    """When steps have ended, of those that are asked for; the device is waited for only then."""

    def __init__(self, steps: list[int], device: str) -> None:
        self.wanted, self.device = {1, *steps}, device
        self.began, self.at = 0.0, dict[int, float]()

    def begin(self) -> None:
        self.began = time.time()

    def step(self, number: int) -> None:
        if number in self.wanted and number not in self.at:
            if self.device == "cuda":
                import torch

                torch.cuda.synchronize()
            self.at[number] = time.time()


def job_of(name: str, device: str) -> Job:
    import torch
    from torch import nn

    torch.manual_seed(0)
    if name == "mlp":
        layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        return Job(WithLoss.around(layers), Vectors(100_000), stacked, 64, 0)
    if name == "resnet":
        from torchvision.models import resnet50

        return Job(WithLoss.around(resnet50(weights=None)), Pictures(100_000), stacked, 64, 12)
    import transformers

    if name == "bert":
        config = transformers.BertConfig()
        return Job(
            transformers.BertForSequenceClassification(config), Tokens(100_000, 128, 30_000, True), padded, 32, 4
        )
    if name == "small_bert":
        size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
        model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=1_000, **size))
        return Job(model, Sentences(4_000, 64, 1_000), padded, 16, 2)
    if name == "small_lora":
        from peft import LoraConfig, get_peft_model

        config = transformers.GPT2Config(vocab_size=1_000, n_layer=4, n_embd=64, n_head=4, n_positions=64)
        adapters = LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
        model = get_peft_model(transformers.GPT2LMHeadModel(config), adapters)
        return Job(model, Tokens(4_000, 32, 1_000, False), stacked, 16, 0)
    if name == "small_gpt":
        config = transformers.GPT2Config(n_layer=4, n_embd=320, n_head=5, n_positions=64)
        return Job(transformers.GPT2LMHeadModel(config), Tokens(100_000, 32, 50_257, False), stacked, 2, 0)
    return Job(
        transformers.GPT2LMHeadModel(transformers.GPT2Config()), Tokens(100_000, 512, 50_257, False), stacked, 16, 2
    )  # fmt: skip


class Tokens:
    """Random tokens; of different lengths and with a class each where they are ``ragged``."""

    def __init__(self, samples: int, length: int, vocabulary: int, ragged: bool) -> None:
        self.samples, self.length, self.vocabulary, self.ragged = samples, length, vocabulary, ragged

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, place: int) -> dict[str, Any]:
        import torch

        drawn = torch.Generator().manual_seed(place)
        length = int(torch.randint(20, self.length + 1, (1,), generator=drawn)) if self.ragged else self.length
        ids = torch.randint(5, self.vocabulary, (length,), generator=drawn)
        return {"input_ids": ids, "labels": torch.tensor(place % 2) if self.ragged else ids}


class Sentences:
    """What a tokenizer leaves: a dict of lists of numbers for each sentence."""

    def __init__(self, samples: int, length: int, vocabulary: int) -> None:
        import torch

        drawn = torch.Generator().manual_seed(0)
        lengths = torch.randint(8, length + 1, (samples,), generator=drawn).tolist()
        rows = [torch.randint(5, vocabulary, (one,), generator=drawn).tolist() for one in lengths]
        self.rows = [{"input_ids": ids, "labels": place % 2} for place, ids in enumerate(rows)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        import torch

        return {name: torch.tensor(value) for name, value in self.rows[place].items()}


class Pictures:
    """Noise, cut out at random and mirrored as photographs are."""

    def __init__(self, samples: int) -> None:
        import torch

        self.samples, self.raw = samples, torch.randint(0, 255, (256, 3, 256, 256), dtype=torch.uint8)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, place: int) -> dict[str, Any]:
        import torch

        top, left = torch.randint(0, 32, (2,)).tolist()
        cut = self.raw[place % 256][:, top : top + 224, left : left + 224]
        cut = cut.flip(2) if torch.rand(()) < 0.5 else cut
        return {"x": (cut.float() / 255 - 0.45) / 0.22, "labels": torch.tensor(place % 1000)}


class Vectors:
    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, place: int) -> dict[str, Any]:
        import torch

        return {"x": torch.full((64,), place / self.samples), "labels": torch.tensor(place % 10)}


class WithLoss:
    @staticmethod
    def around(net: Any) -> Any:
        """A module that computes its loss as models of transformers do; torch is imported by then."""
        from torch import nn

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = net

            def forward(self, x: Any, labels: Any) -> dict[str, Any]:
                logits = self.net(x)
                return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

        return Net()


def stacked(samples: list[dict[str, Any]]) -> dict[str, Any]:
    import torch

    return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}


def padded(samples: list[dict[str, Any]]) -> dict[str, Any]:
    import torch

    ids = [sample["input_ids"] for sample in samples]
    pad = torch.nn.utils.rnn.pad_sequence
    return {
        "input_ids": pad(ids, batch_first=True),
        "attention_mask": pad([torch.ones_like(one) for one in ids], batch_first=True),
        "labels": torch.stack([sample["labels"] for sample in samples]),
    }


def loader_of(job: Job, device: str) -> Any:
    from torch.utils.data import DataLoader

    more = {"persistent_workers": True, "prefetch_factor": 4} if job.workers else {}
    return DataLoader(
        job.data, job.batch_size, shuffle=True, num_workers=job.workers, collate_fn=job.collate, drop_last=True,
        pin_memory=device == "cuda", **more,
    )  # fmt: skip


def loss_in(output: Any) -> Any:
    return output["loss"]


def made_optimizer(parameters: Any, device: str) -> Any:
    import torch

    return torch.optim.AdamW(parameters, 1e-4, fused=device == "cuda")


def bare(job: Job, device: str, steps: int, clock: Clock) -> None:
    import torch

    loader = loader_of(job, device)
    clock.begin()
    model = job.model.to(device).train()
    optimizer = made_optimizer(model.parameters(), device)
    for number, batch in enumerate(repeated(loader), 1):
        batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = loss_in(model(**batch))
        loss.backward()
        optimizer.step()
        clock.step(number)
        if number == steps:
            return


def repeated(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def by_brim(job: Job, device: str, steps: int, clock: Clock, forecast: str = "fresh") -> None:
    import brim

    class Stamps(brim.Callback):
        def on_step_end(self, trainer: Any, step: int, loss: Any) -> None:
            clock.step(step)

    loader, folder = loader_of(job, device), tempfile.mkdtemp()
    clock.begin()
    brim.Trainer(
        job.model, loader, loss_fn=lambda model, batch: loss_in(model(**batch)), device=device, max_steps=steps,
        optimizer=lambda parameters: made_optimizer(parameters, device), callbacks=[Stamps()],
        precision="bf16-mixed" if device == "cuda" else "32", run_dir=f"{folder}/run", forecast=forecast,
    ).fit()  # fmt: skip


def by_lightning(job: Job, device: str, steps: int, clock: Clock) -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = job.model

        def training_step(self, batch: Any, place: int) -> Any:
            loss = loss_in(self.model(**batch))
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return made_optimizer(self.parameters(), device)

        def on_train_batch_end(self, *_: Any) -> None:
            clock.step(self.global_step)

    loader = loader_of(job, device)
    clock.begin()
    lightning.Trainer(
        max_steps=steps, precision="bf16-mixed" if device == "cuda" else 32, devices=1, logger=False,
        accelerator="gpu" if device == "cuda" else "cpu", enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Module(), loader)  # fmt: skip


def by_transformers(job: Job, device: str, steps: int, clock: Clock) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Stamps(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock.step(state.global_step)

    folder, more = tempfile.mkdtemp(), {}
    if job.workers:
        more = {"dataloader_persistent_workers": True, "dataloader_prefetch_factor": 4}
    clock.begin()
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=job.batch_size, max_steps=steps, bf16=device == "cuda",
        report_to=[], save_strategy="no", logging_steps=50, dataloader_num_workers=job.workers, learning_rate=1e-4,
        optim="adamw_torch_fused" if device == "cuda" else "adamw_torch", disable_tqdm=True,
        remove_unused_columns=False, use_cpu=device == "cpu", **more,
    )  # fmt: skip
    Trainer(
        job.model, arguments, train_dataset=job.data, data_collator=job.collate, callbacks=[Stamps()]
    ).train()  # fmt: skip


def train(workload: str, contender: str, device: str, steps: list[int]) -> None:
    """In a process of its own: train, and print when steps ended, from the epoch of the clock."""
    ways: dict[str, Callable[[Job, str, int, Clock], None]] = {
        "bare": bare,
        "brim": by_brim,
        "brim, remembered": lambda *given: by_brim(*given, forecast="auto"),
        "lightning": by_lightning,
        "transformers": by_transformers,
    }
    clock, job = Clock(steps, device), job_of(workload, device)
    import torch._dynamo  # noqa: F401  (the first optimizer of a process imports it, whoever makes it)

    ways[contender](job, device, max(steps), clock)
    print(MARK + json.dumps({"began": clock.began, "at": clock.at}))


def measured(workload: str, contender: str, device: str, steps: list[int], cache: str) -> dict[str, float]:
    """The seconds of one training."""
    chosen = ["--train", contender, "--device", device, "--steps", *map(str, steps)]
    command = [sys.executable, __file__, workload, *chosen]
    environment = {**os.environ, "BRIM_CACHE": cache, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    started = time.time()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not found:
        raise SystemExit(f"{workload} by {contender} failed:\n{done.stderr[-2000:]}")
    times = json.loads(found[-1].removeprefix(MARK))
    at = {int(step): moment for step, moment in times["at"].items()}
    seconds = {"start": at[1] - started, "fit": at[1] - times["began"]}
    return seconds | {f"{step} steps": at[step] - times["began"] for step in steps}


def compared(workload: str, device: str, steps: list[int], rounds: int) -> dict[str, dict[str, float]]:
    """Medians by contender."""
    there = [one for one in CONTENDERS if one not in PACKAGES or importlib.util.find_spec(PACKAGES[one]) is not None]
    if device != "cuda":
        there.remove("brim, remembered")  # nothing is forecast on a CPU
    all_seconds: dict[str, list[dict[str, float]]] = {one: [] for one in there}
    with tempfile.TemporaryDirectory() as cache:
        if "brim, remembered" in there:
            measured(workload, "brim, remembered", device, [1], cache)  # leaves its forecast behind
        for _ in range(rounds):
            for one in there:
                all_seconds[one].append(measured(workload, one, device, steps, cache))
    return {
        one: {name: round(statistics.median(each[name] for each in found), 2) for name in found[0]}
        for one, found in all_seconds.items()
    }


def shown(workload: str, found: dict[str, dict[str, float]]) -> str:
    names = list(found["bare"])
    lines = [f"{workload:<20}" + "".join(f"{name:>12}" for name in names) + "   (seconds)"]
    lines += [f"  {one:<18}" + "".join(f"{seconds[name]:>12.2f}" for name in names) for one, seconds in found.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join((*ON_GPU, *ON_CPU)))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.workloads) - {*ON_GPU, *ON_CPU}:
        parser.error(f"{', '.join(sorted(unknown))}: not a workload; use {', '.join((*ON_GPU, *ON_CPU))}")
    if arguments.train:
        train(arguments.workloads[0], arguments.train, arguments.device, arguments.steps)
        return
    from about import about

    results: dict[str, Any] = {"about": about("transformers", "lightning", "torchvision"), "device": arguments.device}
    for workload in arguments.workloads or (ON_GPU if arguments.device == "cuda" else ON_CPU):
        if workload in NEEDS and importlib.util.find_spec(NEEDS[workload]) is None:
            print(f"{workload}: left out, {NEEDS[workload]} is not installed")
            continue
        results[workload] = compared(workload, arguments.device, arguments.steps, arguments.rounds)
        print(shown(workload, results[workload]), flush=True)
        if arguments.json:  # after each, for what comes next may fail
            arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
