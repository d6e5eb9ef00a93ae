from dataclasses import replace

from helpers.observations import loader, observed

from brim.doctor.observation import LiveTrial, OptimizerSeen
from brim.doctor.rules.notes import notes


def test_an_ordinary_run_needs_no_notes():
    assert notes(observed(loaders=(loader(),))) == []


def test_pinning_without_a_gpu_does_nothing():
    assert any("pin_memory" in note for note in notes(observed(loaders=(loader(pin_memory=True),))))
    assert notes(observed(host={"device": "cuda"}, loaders=(loader(pin_memory=True),))) == []


def test_weights_in_float64_are_said():
    weights = OptimizerSeen("SGD", tensors=2, elements=100, foreach=None, fused=None, seconds=1e-3)
    assert notes(observed(optimizers=(weights,))) == []
    (said,) = notes(observed(optimizers=(replace(weights, in_float64=True),)))
    assert "float64" in said


def test_a_busy_machine_few_steps_and_uneven_ones_are_said():
    said = notes(observed(host={"load": 9.0}, window={"steps": 4, "step_seconds": (0.01, 0.01, 0.05)}))
    assert len(said) == 3 and "load 9.0 on 4 cores" in " ".join(said) and "5.0 times" in " ".join(said)


def test_what_is_better_beside_other_processes_is_a_note():
    busy = {"host": {"load": 9.0}, "window": {"in_line": 0.6}}
    (alone,) = notes(observed(**busy))
    assert "waited for one 60 % of the time: times are too long" in alone and "OMP" not in alone
    (said,) = notes(observed(**busy, trials=(LiveTrial("threads", 1, 0.004, 0.04),)))
    assert said.endswith("beside them OMP_NUM_THREADS=1 is faster, 4.00 ms a step for 40.0 ms with 4 threads")


def test_the_memory_of_batches_made_ahead_is_said():
    said = notes(observed(loaders=(loader(num_workers=4, prefetch_factor=8, batch_bytes=1 << 20),)))
    assert said == ["batches made ahead by 4 workers take up to 32 MiB of shared memory"]
    (small,) = notes(observed(loaders=(loader(num_workers=1, prefetch_factor=2, batch_bytes=1 << 19),)))
    assert small == "batches made ahead by 1 worker take up to 1.0 MiB of shared memory"
    spawned = loader(num_workers=1, start_method="spawn", make_seconds=None)
    assert any("spawn" in note for note in notes(observed(loaders=(spawned,))))


def test_sequences_that_are_mostly_padding_are_said():
    assert notes(observed(loaders=(loader(padding=0.2),))) == []
    (said,) = notes(observed(loaders=(loader(padding=0.64),)))
    assert said.startswith("64 % of the positions in the batches are padding")
