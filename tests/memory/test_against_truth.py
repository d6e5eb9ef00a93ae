"""Forecasts against what training took on an H200: one row of each job, in turn fp32, bf16, another optimizer, fp16.

Jobs of torchvision and peft are left out, which need not be installed. The rows whose error is larger than that of the
others are all looked at as well, each with a bound of its own: none of them shall get worse.
"""

import json
import statistics
import sys
from functools import cache
from pathlib import Path

import pytest

from brim.memory import forecast

MIB = 1 << 20
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ALLOCATED, MEDIAN_ALLOCATED, RESERVED = 0.01, 0.003, 0.06
CONTEXT = 5 * MIB

Key = tuple[str, int, str, str]
# (allocated, reserved) of the rows that do not keep to the bounds above.
WORSE: dict[Key, tuple[float, float]] = {
    ("autoencoder", 16, "adamw", "fp32"): (0.012, RESERVED),
    ("conv1d", 64, "adamw", "fp32"): (0.02, RESERVED),
    ("distilbert_padded", 8, "adamw", "fp32"): (0.011, RESERVED),
    ("separable", 64, "adagrad", "fp16"): (ALLOCATED, 0.105),
    ("denoiser", 72, "adam_loop", "fp32"): (ALLOCATED, 0.075),
    ("translator", 160, "adagrad", "fp32"): (ALLOCATED, 0.155),
    ("vit_hf", 120, "sgd", "fp32"): (ALLOCATED, 0.075),
    ("unet_narrow", 3, "adamw", "fp32"): (ALLOCATED, 0.105),
    ("unet_narrow", 3, "adamw_amsgrad", "fp16"): (ALLOCATED, 0.135),
    ("denoiser", 8, "adamw", "fp32"): (0.012, 0.095),
}


def key_of(row: dict) -> Key:
    return row["job"], row["batch_size"], row["optimizer"], row["precision"]


def measured() -> dict[Key, dict]:
    rows = [json.loads(line) for line in (BENCHMARKS / "results" / "memory_truth.jsonl").read_text().splitlines()[1:]]
    return {key_of(row): row for row in rows}


ROWS = measured()
JOBS_LEFT_OUT = {
    "resnet18", "resnet50", "vgg11", "vgg16_bn", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0",
    "convnext_tiny", "densenet121", "vit_b_16", "swin_t", "regnet_y_400mf", "shufflenet_v2_x1_0", "alexnet",
    "resnet50_frozen", "resnet50_channels_last", "resnet34", "resnext50_32x4d", "wide_resnet50_2", "mobilenet_v3_large",
    "squeezenet1_1", "efficientnet_v2_s", "convnext_small", "vit_b_32", "gpt2_lora", "llama_lora",
}  # fmt: skip


def one_of_each_job() -> list[Key]:
    jobs = [job for job in dict.fromkeys(key[0] for key in ROWS) if job not in JOBS_LEFT_OUT]
    chosen = []
    for turn, job in enumerate(jobs):
        of_the_job = [key for key in ROWS if key[0] == job]
        chosen.append(of_the_job[turn % len(of_the_job)])
    return chosen


IN_TURN = one_of_each_job()


@cache
def forecast_of(key: Key):
    job, batch_size, optimizer, precision = key
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from memory_zoo import JOBS, OPTIMIZERS
    finally:
        sys.path.remove(str(BENCHMARKS))
    zoo = JOBS[job]
    return forecast(
        zoo.model, zoo.batch, zoo.loss, OPTIMIZERS[optimizer], batch_size=batch_size, precision=precision,
        card="NVIDIA H200", runtime="2.11",
    )  # fmt: skip


def error(key: Key, what: str) -> float:
    return getattr(forecast_of(key), what) / ROWS[key][what] - 1


@pytest.mark.matrix(2)
@pytest.mark.parametrize("key", list(dict.fromkeys([*IN_TURN, *WORSE])), ids=lambda key: "/".join(map(str, key)))
def test_a_forecast_is_near_what_was_measured(key: Key) -> None:
    allocated, reserved = WORSE.get(key, (ALLOCATED, RESERVED))
    assert abs(error(key, "allocated")) <= allocated
    assert abs(error(key, "reserved")) <= reserved
    outside = forecast_of(key).parts["context"] - forecast_of(key).card.driver_reserve
    assert abs(outside - ROWS[key]["context"]) <= CONTEXT


@pytest.mark.slow
def test_most_forecasts_are_much_nearer() -> None:
    assert len(IN_TURN) >= 40
    assert statistics.median(abs(error(key, "allocated")) for key in IN_TURN) <= MEDIAN_ALLOCATED
    assert statistics.median(abs(error(key, "reserved")) for key in IN_TURN) <= 0.01
