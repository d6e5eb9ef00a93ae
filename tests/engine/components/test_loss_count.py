"""What a mean loss may be a mean over, as something that can be counted."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from brim.engine.components.loss_count import IGNORED, SAMPLES, CountRule, label_tensors, possible_rules

LABELS = torch.tensor([[5, 7, -100], [5, -100, -100], [1, 2, 3]])


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        (SAMPLES, [1, 1, 1]),
        (CountRule(("labels",)), [2, 1, 3]),
        (CountRule(("labels",), shift=1), [1, 0, 2]),
        (CountRule(("labels",), 5), [2, 2, 3]),
        (CountRule(("elsewhere",)), [1, 1, 1]),
    ],
    ids=str,
)
def test_counts_by_sample_add_up_to_the_count(rule, counts):
    batch = {"labels": LABELS}
    assert rule.by_sample(batch) == counts
    assert int(rule.count(batch)) == sum(counts)


def test_single_labels_have_no_first_position_to_leave_out():
    assert CountRule((1,), shift=1).by_sample((torch.zeros(4), torch.tensor([1, -100, 2, 3]))) == [1, 0, 1, 1]


def test_a_rule_says_what_it_counts():
    assert str(SAMPLES) == "samples"
    assert "['labels']" in str(CountRule(("labels",))) and "-100" in str(CountRule(("labels",)))
    assert str(CountRule(("labels",))) != str(CountRule(("labels",), shift=1))


@given(st.lists(st.integers(0, 5), min_size=2, max_size=8), st.integers(1, 7), st.integers(0, 1))
def test_parts_of_a_batch_count_as_much_as_the_batch(lengths, cut, shift):
    labels = torch.ones(len(lengths), 5).masked_fill(torch.arange(5) >= torch.tensor(lengths)[:, None], -100).long()
    rule = CountRule((), shift=shift)
    assert rule.count(labels) == rule.count(labels[:cut]) + rule.count(labels[cut:])


# Which rules are possible


def test_samples_come_first_and_then_what_is_named_a_label():
    rules = possible_rules({"labels": LABELS, "input_ids": LABELS.clamp(0), "x": torch.randn(3, 4)})
    assert rules[0] == SAMPLES
    assert rules[1] == CountRule(("labels",)) and rules[2] == CountRule(("labels",), shift=1)
    assert not any(rule.path == ("x",) for rule in rules)


@pytest.mark.parametrize("name", ["labels", "lm_labels", "start_label", "target", "tgt_ids", "answers"])
def test_labels_are_found_by_their_names(name):
    batch = {name: LABELS, "ids": LABELS, "mask": torch.ones(3, 3).long()}
    assert label_tensors(batch)[0][0] == (name,)


def test_the_last_of_a_tuple_is_the_likeliest_label():
    assert [path for path, _ in label_tensors((LABELS, torch.randn(3, 3), LABELS))] == [(2,), (0,)]


@pytest.mark.parametrize("kind", [torch.bool, torch.long, torch.float32])
def test_masks_of_ones_and_zeros_may_count_whatever_their_type(kind):
    assert CountRule((1,), 0) in possible_rules((torch.randn(3, 2), torch.tensor([[1, 0], [1, 1], [1, 0]]).to(kind)))


def test_what_texts_are_padded_with_and_what_criteria_ignore_may_be_left_out():
    ignored = {rule.ignored for rule in possible_rules((torch.tensor([[4, 2, 9], [5, 6, 3]]),), (-1,))}
    assert ignored >= {IGNORED, -1, 9, 3}


def test_real_numbers_other_than_masks_and_weights_count_nothing():
    assert possible_rules((torch.randn(3, 4), -torch.ones(3), torch.rand(()))) == [SAMPLES]


@pytest.mark.parametrize("column", [torch.tensor([3, 1, 2]), torch.tensor([[3], [1], [2]]), torch.rand(3)])
def test_the_sum_of_lengths_or_weights_of_samples_may_be_what_counts(column):
    rules = possible_rules({"column": column, "x": torch.randn(3, 4)})
    assert CountRule(("column",), sums=True) in rules
    assert CountRule(("column",), sums=True).count({"column": column}) == column.sum()


def test_tensors_that_are_not_as_long_as_the_batch_count_nothing():
    assert possible_rules({"x": torch.randn(3, 2), "table": torch.arange(7), "scale": torch.tensor(3)}) == [SAMPLES]


# Batches with fewer labels
