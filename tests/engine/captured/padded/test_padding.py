"""What is learned of how batches are padded, from batches as tokenizers and users make them."""

from collections import UserDict

import pytest
import torch
from helpers.padded_batches import tokens

from brim.engine.captured.inputs import read_window
from brim.engine.captured.padded.padding import LOOKED_AT, Padding

LENGTHS = (12, 9, 30, 17, 12, 25)


def learned(make, lengths=LENGTHS):
    padding = Padding()
    for number in range(LOOKED_AT):
        assert padding.is_learning
        padding.learn([make(lengths[number % len(lengths)], seed=number)])
    assert not padding.is_learning
    return padding


def only(padding, batch):
    (found,) = padding.padded([batch])
    return found


def test_batches_are_padded_on_with_what_the_users_own_padding_holds():
    padding = learned(tokens)
    assert padding.lengths == [16, 24, 25, 30] or padding.lengths[-1] == 30
    batch = tokens(9, seed=99)
    found = only(padding, batch)
    longer = found["input_ids"].shape[1]
    assert longer in padding.lengths and longer >= 9
    assert torch.equal(found["input_ids"][:, :9], batch["input_ids"]) and (found["input_ids"][:, 9:] == 7).all()
    assert torch.equal(found["attention_mask"][:, :9], batch["attention_mask"])
    assert not found["attention_mask"][:, 9:].any()
    assert found["input_ids"].dtype == batch["input_ids"].dtype


def test_padded_batches_of_one_length_have_the_key_of_a_batch_of_that_length():
    padding = learned(tokens)
    for length in (9, 12, 30):
        window = [tokens(length)]
        tensors, key = padding.read(window)
        assert key == read_window(padding.padded(window))[1]
        assert all(map(torch.equal, tensors, read_window(padding.padded(window))[0]))


def test_labels_of_tokens_are_padded_with_what_criteria_ignore():
    def make(length, seed=0):
        batch = tokens(length, seed=seed)
        return {**batch, "labels": torch.where(batch["attention_mask"].bool(), batch["input_ids"], -100)}

    def full(length, seed=0):
        ids = torch.randint(0, 9, (4, length))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}

    for padding, batch in ((learned(make), make(9)), (learned(full), full(9))):
        assert (only(padding, batch)["labels"][:, 9:] == -100).all()


def test_features_and_masks_of_truth_values_are_padded_in_either_sense():
    def make(length, seed=0):
        mask = tokens(length, seed=seed)["attention_mask"].bool()
        return torch.where(mask[..., None], torch.randn(4, length, 3), torch.zeros(())), ~mask, torch.zeros(4)

    padding = learned(make)
    features, mask, target = only(padding, make(9))
    assert not features[:, 9:].any() and features.shape[2] == 3
    assert mask[:, 9:].all() and target.shape == (4,)


def test_a_batch_with_fewer_samples_or_more_positions_stays_as_it_comes():
    padding = learned(tokens)
    for batch in (tokens(9, size=3), tokens(31), {"input_ids": torch.zeros(4, 9)}):
        found = only(padding, batch)
        assert all(torch.equal(found[name], batch[name]) for name in batch)


def test_the_last_batch_of_an_epoch_does_not_count():
    padding = learned(lambda length, seed: tokens(length, size=2 if seed % 6 == 5 else 4, seed=seed))
    assert padding.lengths


def in_front(length, seed):
    return {name: tensor.flip(1) for name, tensor in tokens(length, seed=seed).items()}


def translated(length, seed):
    target = tokens(length + seed % 3, seed=seed)
    return {**tokens(length, seed=seed), "decoder_input_ids": target["input_ids"]}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda length, seed: torch.zeros(4, length), "no mask"),
        (lambda length, seed: {"x": torch.rand(4, length), "y": torch.rand(4)}, "no mask"),
        (in_front, "no mask of ones, and of zeros behind them"),
        (translated, "more than one length"),
        (lambda length, seed: tokens(16, seed=seed), "one shape"),
        (lambda length, seed: torch.zeros(length, 4), "one shape"),
    ],
)
def test_why_nothing_is_padded_is_said(make, reason):
    padding = learned(make)
    assert reason in padding.reason and not padding.lengths
    batch = make(9, seed=0)
    assert read_window(padding.padded([batch]))[1] == read_window([batch])[1]


class TensorDict(UserDict):
    """Knows how many samples it has, and slices itself: nobody looks into it."""

    batch_size = torch.Size([4])

    def to(self, device):
        return self


def test_tensors_that_nobody_looks_at_are_not_padded():
    padding = learned(lambda length, seed: {"x": tokens(length, seed=seed), "more": TensorDict(y=torch.zeros(4))})
    assert "no plain container" in padding.reason and not padding.lengths


def test_several_batches_of_a_step_stay_as_they_come():
    padding = Padding()
    padding.learn([tokens(9), tokens(12)])
    assert padding.reason == "several batches make a step"
