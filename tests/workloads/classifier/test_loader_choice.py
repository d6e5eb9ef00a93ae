import pytest

from brim.data.reading.workers import Budget
from brim.hardware.inventory import Gpu, Inventory
from brim.workloads.classifier import loader_choice
from brim.workloads.classifier.config import TrainSection

GIB = 1 << 30
SAMPLE = 3 * 64 * 64


def chosen(monkeypatch, section, *, gpu=None, budget=None, device="cuda"):
    gpus = () if gpu is None else (Gpu(0, "a card", gpu * GIB),)
    machine = Inventory(gpus, has_mps=False, cores=2 if budget is None else budget.cores, python="", torch="")
    asked = []
    monkeypatch.setattr(loader_choice, "inventory", lambda: machine)
    monkeypatch.setattr(
        loader_choice, "machine_budget", lambda ranks, computes_here: asked.append((ranks, computes_here)) or budget
    )
    return loader_choice.choose_loader(section, device, SAMPLE), asked


def numbers(choice):
    return tuple(choice.arguments[name] for name in ("batch_size", "num_workers", "prefetch_factor"))


@pytest.mark.parametrize(
    ("gpu", "expected"), [(8, (4, 8, 2)), (16, (8, 8, 4)), (24, (16, 16, 8)), (80, (32, 16, 8)), (None, (8, 8, 4))]
)
def test_the_card_decides_on_batch_workers_and_prefetch(monkeypatch, gpu, expected):
    choice, asked = chosen(monkeypatch, TrainSection(), gpu=gpu, budget=Budget(cores=64))
    assert numbers(choice) == expected
    assert choice.arguments["pin_memory"] and choice.arguments["persistent_workers"]
    assert asked == [(1, gpu is None)]
    assert "cut down" not in choice.sentence


def test_workers_are_cut_down_to_the_cores_and_this_is_said(monkeypatch):
    choice, _ = chosen(monkeypatch, TrainSection(), gpu=24, budget=Budget(cores=4))
    assert numbers(choice) == (16, 4, 8)
    assert choice.sentence == (
        "preset 24GB: batch 16, 16 workers, prefetch 8, pinned, persistent; cut down to 4 workers by 4 cores"
    )


def test_training_on_the_cpu_keeps_half_of_the_cores(monkeypatch):
    choice, _ = chosen(monkeypatch, TrainSection(), budget=Budget(cores=1))
    assert choice.sentence.endswith("cut down to 1 worker by 1 cores, half of them for training")


def test_prefetch_is_cut_down_where_shared_memory_is_short(monkeypatch):
    section = TrainSection(batch_size=1000)  # 12.3 MB a batch
    choice, _ = chosen(monkeypatch, section, gpu=24, budget=Budget(cores=64, shared_memory=64_000_000))
    assert numbers(choice) == (1000, 1, 2)
    assert choice.sentence.endswith("as set: batch_size=1000; cut down to 1 worker and prefetch 2 by 64 MB of /dev/shm")


def test_what_is_set_wins_and_is_not_cut_down(monkeypatch):
    section = TrainSection(preset="8 gb", num_workers=32, prefetch_factor=3, pin_memory=False)
    choice, asked = chosen(monkeypatch, section, budget=Budget(cores=1))
    assert numbers(choice) == (4, 32, 3)
    assert choice.arguments["pin_memory"] is False
    assert asked == []
    assert choice.sentence.startswith("preset 8GB: batch 4, 8 workers, prefetch 2")


def test_a_rank_reads_its_part_of_a_batch(monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    # Four batches ahead of 4 x 250 samples: 12.3 MB for each worker, and half of it is free.
    budget = Budget(cores=64, shared_memory=100_000_000)
    choice, asked = chosen(monkeypatch, TrainSection(batch_size=1000), budget=budget)
    assert asked == [(2, True)]
    assert numbers(choice) == (1000, 4, 4)


def test_without_a_preset_the_loader_measures(monkeypatch):
    choice, _ = chosen(monkeypatch, TrainSection(preset=None, batch_size=64))
    assert (choice.arguments, choice.sentence) == ({"batch_size": 64}, None)
