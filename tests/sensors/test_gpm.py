import math

from helpers.nvml import NvmlDouble, NVMLError_NotSupported, h200, old_card

from brim.sensors.gpm import Activity, ActivitySampler
from brim.sensors.nvml import NvmlCalls


def sampler(card):
    double = NvmlDouble([card])
    return ActivitySampler(NvmlCalls(double)), double


def test_the_first_look_knows_nothing_and_the_second_the_mean_between():
    card = h200()
    found, _ = sampler(card)
    assert found.sample(0, card) == Activity()
    assert found.sample(0, card) == Activity(71.4, 44.0, 38.6, 2000 * 2.0**20, 100 * 2.0**20)


def test_a_card_without_counters_is_asked_once():
    card = old_card()
    found, double = sampler(card)
    assert [found.sample(0, card) for _ in range(3)] == [Activity()] * 3
    assert double.calls.count("nvmlGpmQueryDeviceSupport") == 1 and "nvmlGpmSampleAlloc" not in double.calls


def test_a_counter_that_fails_or_is_no_number_is_none():
    card = h200()
    del card.gpm[5]
    card.gpm[10] = math.nan
    found, _ = sampler(card)
    found.sample(0, card)
    assert found.sample(0, card) == Activity(71.4, None, None, 2000 * 2.0**20, 100 * 2.0**20)


def test_a_look_that_fails_leaves_no_sample_behind():
    card = h200()
    found, double = sampler(card)
    found.sample(0, card)
    counters, card.gpm = card.gpm, None
    assert found.sample(0, card) == Activity() and double.samples == 1
    card.gpm = counters
    assert found.sample(0, card).sm == 71.4  # since the last good look
    double.missing = ["nvmlGpmSampleAlloc"]
    assert found.sample(0, card) == Activity()


def test_metrics_that_cannot_be_computed_are_none(monkeypatch):
    card = h200()
    found, double = sampler(card)
    found.sample(0, card)

    def refuse(query):
        raise NVMLError_NotSupported

    monkeypatch.setattr(double, "nvmlGpmMetricsGet", refuse, raising=False)
    assert found.sample(0, card) == Activity()
    found.close()
    assert double.samples == 0
