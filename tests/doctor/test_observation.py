import json
from dataclasses import asdict

from brim.doctor.observation import (
    Host,
    LineTime,
    LiveTrial,
    LoaderSeen,
    Observation,
    OptimizerSeen,
    Profile,
    TensorCalls,
    Window,
    read_observation,
)


def loader(**settings):
    given = {
        "dataset": "D", "length": 10, "batch_size": 2, "num_workers": 0, "persistent_workers": False,
        "prefetch_factor": None, "pin_memory": False, "default_collate": True, "batched_access": False,
        "line": "train.py:3", "trains": True,
    }  # fmt: skip
    return LoaderSeen(**given | settings)


def test_it_travels_as_json():
    seen = Observation(
        "measured", 12, Host(2, 2), timed=Window(10, 1.0), profile=Profile(5, 0.1, 9, 0.05, top=(("aten::mm", 0.1),)),
        loaders=(loader(),), optimizers=(OptimizerSeen("SGD", 2, 10, None, True, 0.1),),
        lines=(LineTime("train.py:1", "x", "data", 0.5),),
        calls=(TensorCalls("item", "a.py:1", "", "to host", 1, 0.1),),
        trials=(LiveTrial("threads", 1, 0.1, 0.2),), losses=(1.0, 0.5), notes=("a",),
    )  # fmt: skip
    assert read_observation(json.dumps(asdict(seen))) == seen


def test_the_loader_that_trains_is_the_one_with_most_batches():
    seen = Observation("measured", 1, Host(2, 2), loaders=(loader(batches=3), loader(batches=9), loader(trains=False)))
    assert seen.train_loader.batches == 9
    assert Observation("measured", 1, Host(2, 2)).train_loader is None


def test_rates_of_a_window():
    assert Window(10, 2.0, samples=100).step == 0.2 and Window(10, 2.0, samples=100).samples_per_second == 50
    assert loader(batches=4, samples=10).samples_per_batch == 2.5
