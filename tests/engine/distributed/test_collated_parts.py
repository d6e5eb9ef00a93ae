"""A collate function that computes samples from one another makes other batches of the parts that ranks have."""

import random

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, default_collate

import brim
from brim.data import as_feed
from brim.engine.distributed.collated_parts import mixed_part, warning_of_collating


class Pairs(Dataset):
    def __init__(self):
        self.reads = 0

    def __len__(self):
        return 12

    def __getitem__(self, index):
        self.reads += 1
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3 + index % 4, generator=generator), index


def first_numbers(samples):
    return torch.stack([x[:3] for x, _ in samples])


def standardised(samples):
    x = first_numbers(samples)
    return {"x": (x - x.mean(0)) / x.std(0), "y": torch.tensor([y for _, y in samples])}


def others_of_the_batch(samples):
    x = first_numbers(samples)
    return x, x.roll(1, 0)


def padded(samples):
    return pad_sequence([x for x, _ in samples], batch_first=True), torch.tensor([y for _, y in samples])


def by_length(samples):
    samples = sorted(samples, key=lambda sample: -len(sample[0]))
    return padded(samples)


def in_place(samples):
    return torch.stack([x[:3].mul_(2) for x, _ in samples])


def with_what_some_have(samples):
    marked = {"mark": torch.ones(len(samples))} if any(y == 6 for _, y in samples) else {}
    return {"x": first_numbers(samples), **marked, "total": torch.tensor(len(samples))}


def drawn(samples):
    return first_numbers(samples) * torch.rand(len(samples), 1)


def mixed_at_random(samples):
    return first_numbers(samples) * random.random()


@pytest.mark.parametrize(("collate", "place"), [(standardised, "batch['x']"), (others_of_the_batch, "batch[1]")])
def test_what_is_computed_from_other_samples_is_found_and_named(collate, place):
    assert mixed_part(collate, [Pairs()[number] for number in range(8)]) == place


KEPT = [padded, by_length, in_place, with_what_some_have, drawn, mixed_at_random]


@pytest.mark.parametrize("collate", KEPT)
def test_what_is_padded_sorted_or_drawn_is_not_taken_for_that(collate):
    assert mixed_part(collate, [Pairs()[number] for number in range(8)]) == ""


def test_the_data_is_tried_without_a_trace_and_only_where_somebody_collates():
    data = Pairs()
    feed = as_feed(DataLoader(data, 4, collate_fn=standardised))
    assert "collate_fn computes the samples of a batch from one another" in warning_of_collating(feed)
    assert data.reads == 0
    assert warning_of_collating(as_feed(DataLoader(data, 4, collate_fn=padded))) is None
    assert warning_of_collating(brim.Loader(data, 4, collate_fn=default_collate)) is None
    assert warning_of_collating(brim.Loader(data, 4, collate_fn=lambda samples: samples[99])) is None
