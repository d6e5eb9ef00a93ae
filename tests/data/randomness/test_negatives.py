import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brim.data import NegativeSampler
from brim.data.randomness.negatives import hash_positions
from brim.data.randomness.order import GOLDEN, mix64, stream_key
from brim.errors import DataError

keys = st.integers(0, 2**64 - 1)


def plain_hash(position, key):
    return mix64(position * GOLDEN + key) >> 1


def plain_negative(positives, n_items, position, key):
    """Enumerate the items that are not positives and take the one that the hash names."""
    free = [item for item in range(n_items) if item not in positives]
    return free[plain_hash(position, key) % len(free)]


@st.composite
def feedback(draw):
    """A set of positives for each user, at least one item short of everything, and its number of items."""
    n_items = draw(st.integers(2, 12))
    some_items = st.sets(st.integers(0, n_items - 1), max_size=n_items - 1)
    return draw(st.lists(some_items, min_size=1, max_size=6)), n_items


def sampler_of(positives, n_items, repeat=1, device="cpu"):
    pairs = [(user, item) for user, items in enumerate(positives) for item in items] * repeat
    shuffled = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)[torch.randperm(len(pairs))].to(device)
    return NegativeSampler(shuffled[:, 0], shuffled[:, 1], len(positives), n_items)


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20), keys)
def test_the_hash_of_tensors_is_splitmix64_of_each_position(positions, key):
    assert hash_positions(torch.tensor(positions), key).tolist() == [plain_hash(p, key) for p in positions]


@given(feedback(), keys, st.integers(0, 2**40), st.integers(1, 2))
def test_negatives_are_those_of_enumerating_every_item_the_user_does_not_know(data, key, first, repeat):
    positives, n_items = data
    users = [user for user in range(len(positives)) for _ in range(20)]
    positions = list(range(first, first + len(users)))
    drawn = sampler_of(positives, n_items, repeat)(torch.tensor(users), torch.tensor(positions), key)
    expected = [plain_negative(positives[u], n_items, p, key) for u, p in zip(users, positions, strict=True)]
    assert drawn.tolist() == expected


def test_every_unknown_item_is_drawn_equally_often():
    sampler = sampler_of([{0}, {1, 3, 6}], n_items=8)
    drawn = sampler(torch.ones(50_000, dtype=torch.long), torch.arange(50_000), stream_key(0, 0))
    counts = torch.bincount(drawn, minlength=8)
    assert counts[[1, 3, 6]].tolist() == [0, 0, 0]
    assert (counts[[0, 2, 4, 5, 7]] - 10_000).abs().max() < 500  # more than five standard deviations


def test_another_epoch_draws_other_negatives():
    sampler, users, positions = sampler_of([{0}], n_items=100), torch.zeros(100, dtype=torch.long), torch.arange(100)
    drawn = [sampler(users, positions, stream_key(0, epoch)) for epoch in (0, 1)]
    assert (drawn[0] == drawn[1]).sum() < 10


def test_a_user_without_pairs_may_be_given_any_item():
    sampler = NegativeSampler(torch.tensor([0]), torch.tensor([1]), n_users=3, n_items=4)
    drawn = sampler(torch.full((200,), 2), torch.arange(200), stream_key(0, 0))
    assert set(drawn.tolist()) == {0, 1, 2, 3}


def test_a_user_who_knows_every_item_is_named():
    with pytest.raises(DataError, match="user 1 has interacted with all 3 items"):
        sampler_of([{0}, {0, 1, 2}], n_items=3)


def test_user_times_items_may_be_beyond_32_bits():
    n_users = n_items = 70_000
    positives = torch.arange(n_items - 1)  # the last user knows all items but the last
    sampler = NegativeSampler(torch.full_like(positives, n_users - 1), positives, n_users, n_items)
    assert sampler(torch.tensor([n_users - 1]), torch.tensor([0]), key=1).tolist() == [n_items - 1]


def test_ids_of_32_bits_give_the_same_negatives():
    n_users = n_items = 70_000
    positives = torch.arange(n_items - 1, dtype=torch.int32)
    sampler = NegativeSampler(torch.full_like(positives, n_users - 1), positives, n_users, n_items)
    users = torch.tensor([n_users - 1], dtype=torch.int32)
    assert sampler(users, torch.tensor([0]), key=1).tolist() == [n_items - 1]


@pytest.mark.gpu
def test_negatives_are_the_same_on_the_gpu():
    positives = [set(range(user % 40)) for user in range(100)]
    users, positions, key = torch.arange(5000) % 100, torch.arange(5000), stream_key(7, 3)
    on_cpu = sampler_of(positives, 50)(users, positions, key)
    on_gpu = sampler_of(positives, 50, device="cuda")(users.cuda(), positions.cuda(), key)
    assert on_gpu.is_cuda
    assert torch.equal(on_gpu.cpu(), on_cpu)
