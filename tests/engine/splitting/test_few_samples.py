"""A few samples that tell what a loss counts."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from brim.data import batch_length
from brim.engine.components.loss_count import CountRule
from brim.engine.splitting.few_samples import (
    enough_samples,
    informative_samples,
    random_samples,
    with_fewer_labels,
    with_first_label,
)

LABELS = torch.tensor([[5, 7, -100], [5, -100, -100], [1, 2, 3], [4, -100, -100]])
RULE = CountRule(("labels",))


@given(st.integers(4, 9), st.integers(2, 7), st.integers(0, 60))
def test_counts_are_made_to_differ_and_no_half_is_left_without_a_label(samples, width, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 5, (samples, width), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.7] = -100
    labels[:, -1] = 1
    before = {"labels": labels.clone(), "other": torch.ones(samples, width)}
    changed = with_fewer_labels(before, RULE)
    middle, counts = samples // 2, RULE.by_sample(changed)
    assert min(counts) >= 1 and set(counts[middle:]) == {1}
    assert torch.equal(before["labels"], labels) and changed["other"].eq(1).all()


@pytest.mark.parametrize("shape", [(8,), (8, 1)])
def test_single_labels_are_left_out_in_the_second_half_but_for_one(shape):
    changed = with_fewer_labels((torch.zeros(8), torch.ones(shape).long()), CountRule((1,)))
    assert CountRule((1,)).by_sample(changed) == [1, 1, 1, 1, 1, 0, 0, 0]
    assert with_fewer_labels((torch.zeros(2), torch.ones(2, *shape[1:]).long()), CountRule((1,))) is None


def test_missing_targets_are_made_of_real_numbers():
    changed = with_fewer_labels({"y": torch.ones(4, 3)}, CountRule(("y",), float("nan")))
    assert changed["y"].isnan().sum(1).tolist() == [0, 0, 2, 2]


def test_those_that_count_most_come_first_and_those_that_count_nothing_are_left_out():
    labels = torch.full((6, 4), -100)
    for row, count in enumerate([1, 4, 0, 2, 3, 0]):
        labels[row, 4 - count :] = 7
    assert RULE.by_sample(informative_samples({"labels": labels}, 4, ())) == [4, 3, 2, 1]


def test_a_batch_of_fewer_samples_is_repeated():
    assert batch_length(informative_samples({"labels": LABELS[:2]}, 4, ())) == 4


def test_other_samples_are_there_only_where_there_are_many_more():
    assert random_samples((torch.zeros(9, 2),), 8) is None
    assert batch_length(random_samples((torch.zeros(64, 2),), 8)) == 8


def test_a_label_at_the_very_start_shows_whether_it_is_counted():
    labels = torch.tensor([[-100, 3, 4], [-100, 5, -100], [-100, 1, 1], [-100, -100, 2]])
    (changed,) = with_first_label({"labels": labels}, [RULE, CountRule(("labels",), shift=1)])
    assert changed["labels"][:, 0].tolist() == [3, 5, -100, -100]


@pytest.mark.parametrize("lengths", [[5], [5, 3, 7], [4, 4]])
def test_single_samples_are_put_together_or_made_into_several(lengths):
    texts = [{"ids": torch.arange(length)[None] + 1, "labels": torch.arange(length)[None]} for length in lengths]
    made = enough_samples(texts)
    assert batch_length(made) >= 2
    assert made["ids"].shape == made["labels"].shape and made["ids"].shape[1] == min(lengths)
    assert set(made["ids"].flatten().tolist()) <= set(range(1, 8))
