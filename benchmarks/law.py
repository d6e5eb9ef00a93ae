"""The law in ordinary code: Hugging Face models, nothing but the model handed over, in parts against one big batch.

    python benchmarks/law.py [--device cuda] [--cap 5] [--models gpt2,t5] [--paths plan,ddp] [--json out.json]

Labels are ragged and ignored where there is padding (-100), so their loss is a mean over labels, not over samples. Each
row is a way to split the optimisation batch. Printed are the difference of the first gradient from that of one big
batch (relative to its norm; bar 1e-5), and that of the weights after 20 steps of AdamW, relative to the way they went
(bar 1e-3); for an evaluation, the difference of the mean loss. ``by_hand`` is what single precision leaves of the same
without brim: a plain loop over the two halves of each batch, weighted by their labels. On a GPU the models are of real
size, in fp32 without TF32, and ``plan`` is what brim chooses where only ``--cap`` GiB of the card may be used.
"""

import argparse
import contextlib
import gc
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from about import about
from torch import Tensor, nn

import brim

GRADIENT_BAR, WEIGHTS_BAR = 1e-5, 1e-3
STEPS = 20
RANKED = ("ddp", "fsdp")
APART = "BRIM_LAW_APART"  # set for a process that measures one row
PATHS = ("by_hand", "accumulation", "micro_batch", "shortage", "plan", "evaluation", *RANKED)
Batch = dict[str, Tensor]


def dropless(**settings: Any) -> dict[str, Any]:
    """Dropout draws others for parts of a batch: what is compared must not draw."""
    return {**settings, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class Sizes:
    """How large models and batches are."""

    def __init__(self, device: str) -> None:
        self.is_real = device == "cuda"
        self.batch, self.length = (16, 512) if self.is_real else (16, 12)
        self.vocabulary = 30_522 if self.is_real else 100

    def bert(self, **settings: Any) -> transformers.BertConfig:
        small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        size = {} if self.is_real else small
        return transformers.BertConfig(vocab_size=self.vocabulary, **dropless(**size, **settings))

    def make(self, name: str) -> nn.Module:
        torch.manual_seed(0)
        if name == "gpt2":
            small = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
            none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 1}
            size = {} if self.is_real else small
            return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=self.vocabulary, **none, **size))
        if name == "bert-tokens":
            labels = 9 if self.is_real else self.vocabulary
            return transformers.BertForTokenClassification(self.bert(num_labels=labels))
        if name == "bert-masked":
            return transformers.BertForMaskedLM(self.bert())
        small = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 2}
        size = {} if self.is_real else small
        config = transformers.T5Config(
            vocab_size=self.vocabulary, dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0, **size
        )
        return transformers.T5ForConditionalGeneration(config)

    def data(self, name: str, step: int) -> Batch:
        """One optimisation batch: samples of very different lengths."""
        generator = torch.Generator().manual_seed(step)
        most = 9 if name == "bert-tokens" and self.is_real else self.vocabulary
        ids = torch.randint(3, self.vocabulary, (self.batch, self.length), generator=generator)
        lengths = torch.randint(2, self.length + 1, (self.batch,), generator=generator)
        mask = (torch.arange(self.length) < lengths[:, None]).long()
        labels = ids.remainder(most).masked_fill(mask == 0, -100)
        if name == "bert-masked":
            chosen = torch.rand(labels.shape, generator=generator) < 0.15
            chosen[:, 0] = True
            labels = labels.masked_fill(~chosen, -100)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


MODELS = ("gpt2", "bert-tokens", "t5", "bert-masked")


class FirstGradient(brim.Callback):
    """What the optimizer was handed in the first step."""

    def __init__(self) -> None:
        self.found: Tensor | None = None

    def on_step_end(self, trainer: Any, step: int, loss: Tensor) -> None:
        if step == 1:
            gradients = [p.grad for p in trainer.model.parameters() if p.grad is not None]
            self.found = torch.cat([g.detach().double().flatten().cpu() for g in gradients])


def vector(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().double().flatten().cpu() for p in model.parameters()])


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4 if torch.cuda.is_available() else 1e-3, fused=False)


def labels_of(name: str, batch: Batch) -> int:
    """How many labels the loss is a mean over: a causal model has nothing to say of the first."""
    labels = batch["labels"][:, 1:] if name == "gpt2" else batch["labels"]
    return int((labels != -100).sum())


def plain(sizes: Sizes, name: str, device: str, parts: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """The first gradient, the weights before and those after the steps of a loop written by hand."""
    model = sizes.make(name).to(device).train()
    start, gradient, optimizer = vector(model), torch.zeros(0), adamw(model.parameters())
    for step in range(STEPS):
        batch = {key: value.to(device) for key, value in sizes.data(name, step).items()}
        optimizer.zero_grad()
        for part in cut(batch, parts):
            (model(**part).loss * (labels_of(name, part) / labels_of(name, batch))).backward()
        if step == 0:
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            gradient = torch.cat([g.detach().double().flatten().cpu() for g in gradients])
        optimizer.step()
    return gradient, start, vector(model)


def cut(batch: Batch, parts: int) -> list[Batch]:
    length = len(batch["labels"]) // parts
    return [{k: v[at * length : (at + 1) * length] for k, v in batch.items()} for at in range(parts)]


def short_of_memory(model: nn.Module, limit: int) -> None:
    """Let the model run out of memory where more than ``limit`` samples go through at once."""

    def check(module: nn.Module, args: Any, settings: dict[str, Any]) -> None:
        if len(settings["labels"]) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")

    model.register_forward_pre_hook(check, with_kwargs=True)


def trained(sizes: Sizes, name: str, path: str, device: str) -> tuple[Tensor | None, Tensor, str]:
    """What brim makes of the same steps: first gradient (where it can be seen), weights, and what was said."""
    model, batches, settings = sizes.make(name), [sizes.data(name, step) for step in range(STEPS)], {}
    if path == "accumulation":
        batches = [part for batch in batches for part in cut(batch, 4)]
        settings["gradient_accumulation_steps"] = 4
    elif path == "micro_batch":
        settings["micro_batch"] = 3
    elif path == "shortage":
        short_of_memory(model, sizes.batch // 2)
        settings["checkpointing"] = False
    elif path == "fsdp":
        settings["strategy"] = "fsdp"
    first, said = FirstGradient(), io.StringIO()
    with contextlib.redirect_stderr(said):
        trainer = brim.Trainer(
            model, batches, optimizer=adamw, device=device, run_dir=tempfile.mkdtemp() + "/run", capture="off",
            threads=1 if device == "cpu" else "auto", callbacks=[] if path == "fsdp" else [first], **settings,
        )  # fmt: skip
        trainer.fit()
    return first.found, vector(model), said.getvalue()


def evaluated(sizes: Sizes, name: str, device: str) -> float:
    """How far the mean loss over uneven batches is from that of all samples at once, relative to it."""
    model, batches = sizes.make(name), [sizes.data(name, step) for step in range(3)]
    parts = [part for batch in batches for part in cut(batch, 4)]
    with contextlib.redirect_stderr(io.StringIO()):
        got = brim.Trainer(model, parts, device=device, run_dir=tempfile.mkdtemp() + "/run").evaluate(parts)["loss"]
    model.eval().to(device)
    whole = {key: torch.cat([batch[key] for batch in batches]).to(device) for key in batches[0]}
    with torch.no_grad():
        want = float(model(**whole).loss)
    return abs(got - want) / want


def judged(reference: tuple[Tensor, Tensor, Tensor], found: tuple[Tensor | None, Tensor, str]) -> dict[str, Any]:
    gradient, start, end = reference
    first, weights, said = found
    row: dict[str, Any] = {"weights": float((weights - end).norm() / (end - start).norm())}
    if first is not None:
        row["gradient"] = float((first - gradient).norm() / gradient.norm())
    said = said.replace(f"{Path(__file__).resolve().parents[1]}/", "")
    row["said"] = [
        line for line in said.splitlines() if "warn" in line or "micro-batches" in line or "mean over" in line
    ]
    return row


def apart(path: str, name: str, device: str, cap: float) -> dict[str, Any]:
    """The same by a process of its own, or by two, which share the GPU where there is one."""
    ranks = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"] if path in RANKED else []
    made = subprocess.run(
        [sys.executable, *ranks, __file__, "--models", name, "--paths", path, "--device", device, "--cap", str(cap)],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", APART: "1"},
    )  # fmt: skip
    rows = [line for line in made.stdout.splitlines() if line.startswith("{")]
    return json.loads(rows[-1]) if rows else {"failed": (made.stdout + made.stderr)[-800:]}


def limit_memory(gib: float) -> None:
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(gib * 2**30 / total)


def measure(
    sizes: Sizes, name: str, path: str, device: str, reference: Callable[[], Any], cap: float
) -> dict[str, Any]:
    if path in (*RANKED, "plan") and APART not in os.environ:  # memory that others have left would count
        return apart(path, name, device, cap)
    if path == "evaluation":
        return {"loss": evaluated(sizes, name, device)}
    known = reference()
    if path == "by_hand":
        gradient, _, end = plain(sizes, name, device, parts=2)
        return judged(known, (gradient, end, ""))
    if path == "plan":
        limit_memory(cap)
    try:
        return judged(known, trained(sizes, name, path, "cuda:0" if device == "cuda" else device))
    finally:
        if path == "plan":
            torch.cuda.set_per_process_memory_fraction(1.0)


def show(row: dict[str, Any]) -> str:
    if "failed" in row:
        return "FAILED " + row["failed"]
    if "loss" in row:
        return f"mean loss {row['loss']:.1e}"
    gradient = f"{row['gradient']:.1e}" if "gradient" in row else "   -   "
    over = row.get("gradient", 0) > GRADIENT_BAR or row["weights"] > WEIGHTS_BAR
    return f"first gradient {gradient}  weights {row['weights']:.1e} of the way{'  OVER' if over else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--cap", type=float, default=5.0, help="GiB of the card that may be used under 'plan'")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--paths", default=",".join(PATHS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    sizes, facts, rows = Sizes(options.device), about("transformers"), []
    for name in options.models.split(","):
        kept: list[Any] = []

        def reference(name: str = name, kept: list[Any] = kept) -> Any:
            return kept[0] if kept else kept.append(plain(sizes, name, options.device)) or kept[0]

        for path in options.paths.split(","):
            if path == "plan" and options.device == "cpu":
                continue
            try:
                row = measure(sizes, name, path, options.device, reference, options.cap)
            except brim.BrimError as refused:
                row = {"failed": str(refused)}
            if APART in os.environ:
                if os.environ.get("RANK", "0") == "0":
                    print(json.dumps(row))
                continue
            rows.append({"model": name, "path": path, **row})
            print(f"{name:12} {path:13} {show(row)}", *row.get("said", ()), sep="\n    ", flush=True)
    if options.json is not None:
        found = {**facts, "device": options.device, "cap_gib": options.cap, "rows": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
