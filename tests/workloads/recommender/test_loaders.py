import math

import pytest
import torch
from torch import nn

from brim.data import NegativeSampler, as_feed, batches_per_epoch
from brim.data.randomness.order import epoch_permutation, stream_key
from brim.errors import ConfigError, DataError
from brim.workloads.recommender import BPR, EvalDataLoader, Interactions, Popularity, TrainDataLoader, Triples
from brim.workloads.recommender.interactions import split_per_user
from brim.workloads.recommender.loaders import MOST_USERS_ON_CPU, scorer

N_USERS, N_ITEMS = 9, 12


def interactions(seed=0, share=0.5):
    """Random pairs; every user has one, and none has all."""
    known = torch.rand(N_USERS, N_ITEMS, generator=torch.Generator().manual_seed(seed)) < share
    known[:, 0], known[:, 1] = True, False
    users, items = known.nonzero(as_tuple=True)
    return Interactions(users, items, N_USERS, N_ITEMS)


def lists(batches):
    return [[part.tolist() for part in batch] for batch in batches]


def flat(batches):
    """Every triple of every batch."""
    return [triple for batch in lists(batches) for triple in zip(*batch, strict=True)]


def position_by_position(data, seed, epoch, shuffle):
    """The triples of an epoch, each gathered by itself."""
    order = epoch_permutation(len(data), seed, epoch).tolist() if shuffle else list(range(len(data)))
    sampler = NegativeSampler(data.users, data.items, N_USERS, N_ITEMS)
    triples = []
    for position, index in enumerate(order):
        user, item = int(data.users[index]), int(data.items[index])
        negative = sampler(torch.tensor([user]), torch.tensor([position]), stream_key(seed, epoch))
        triples.append((user, item, int(negative)))
    return triples


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("batches_per_block", [1, 2, 256])
def test_blocks_give_what_gathering_each_position_by_itself_gives(monkeypatch, shuffle, batches_per_block):
    monkeypatch.setattr("brim.workloads.recommender.loaders.BATCHES_PER_BLOCK", batches_per_block)
    loader = TrainDataLoader(interactions(), batch_size=7, shuffle=shuffle, device="cpu")
    batches = list(loader.batches(seed=3, epoch=2))
    assert flat(batches) == position_by_position(interactions(), 3, 2, shuffle)
    assert {len(batch.users) for batch in batches[:-1]} == {7}
    assert all(isinstance(batch, Triples) for batch in batches)
    assert len(batches) == len(loader)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batches_per_block", [1, 2, 256])
def test_batches_from_a_later_position_are_the_tail_of_the_epoch(monkeypatch, drop_last, batches_per_block):
    monkeypatch.setattr("brim.workloads.recommender.loaders.BATCHES_PER_BLOCK", batches_per_block)
    loader = TrainDataLoader(interactions(), batch_size=5, device="cpu", drop_last=drop_last)
    epoch = lists(loader.batches(1, 4))
    assert len(epoch) == len(loader)
    for batches_done in range(len(epoch) + 2):
        assert lists(loader.batches(1, 4, start=5 * batches_done)) == epoch[batches_done:]


def test_drop_last_leaves_out_the_shorter_batch_and_nothing_else():
    whole, dropped = (TrainDataLoader(interactions(), 5, device="cpu", drop_last=drop) for drop in (False, True))
    assert len(whole.pairs) % 5 != 0
    assert lists(dropped.batches(0, 0)) == lists(whole.batches(0, 0))[:-1]


def test_every_epoch_holds_each_pair_once_with_an_item_the_user_does_not_know():
    data = interactions()
    known = set(zip(data.users.tolist(), data.items.tolist(), strict=True))
    triples = flat(TrainDataLoader(data, batch_size=8, device="cpu"))
    assert sorted((user, item) for user, item, _ in triples) == sorted(known)
    assert not known & {(user, negative) for user, _, negative in triples}


def test_each_iteration_is_the_next_epoch_with_an_order_and_negatives_of_its_own():
    loader = TrainDataLoader(interactions(), batch_size=8, device="cpu", seed=5)
    epochs = [lists(loader) for _ in range(2)]
    assert epochs == [lists(loader.batches(5, epoch)) for epoch in (0, 1)]
    assert epochs[0] != epochs[1]


def test_in_order_means_the_order_of_the_data():
    data = interactions()
    triples = flat(TrainDataLoader(data, batch_size=8, device="cpu").in_order())
    assert [triple[:2] for triple in triples] == list(zip(data.users.tolist(), data.items.tolist(), strict=True))


def test_in_order_means_every_pair_whatever_drop_last_says():
    loader = TrainDataLoader(interactions(), batch_size=5, device="cpu", drop_last=True)
    assert len(flat(loader.in_order())) == len(interactions())


def test_the_engine_takes_the_loader_as_it_is():
    loader = TrainDataLoader(interactions(), batch_size=8, device="cpu")
    assert as_feed(loader) is loader
    assert batches_per_epoch(loader) == math.ceil(len(interactions()) / 8)


def test_loaders_refuse_what_they_cannot_use():
    data = interactions()
    none = Interactions(data.users[:0], data.items[:0], N_USERS, N_ITEMS)
    with pytest.raises(ConfigError, match="batch_size=0"):
        TrainDataLoader(data, batch_size=0, device="cpu")
    with pytest.raises(ConfigError, match="batch_size=-1"):
        EvalDataLoader(data, data, batch_size=-1, device="cpu")
    with pytest.raises(DataError, match="no interactions"):
        TrainDataLoader(none, device="cpu")
    with pytest.raises(DataError, match="no interactions"):
        EvalDataLoader(none, data, device="cpu")
    for k in ((), (0, 10)):
        with pytest.raises(ConfigError, match="at least 1"):
            EvalDataLoader(data, data, device="cpu", k=k)


class Fixed(nn.Module):
    """Scores that no training made: no two items alike for a user, and some of them negative."""

    def __init__(self):
        super().__init__()
        ranks = torch.rand(N_USERS, N_ITEMS, generator=torch.Generator().manual_seed(1)).argsort(1)
        self.register_buffer("scores", ranks - N_ITEMS / 2)

    def full_scores(self, users):
        return self.scores[users]


def plain_evaluation(model, splits, masks, k):
    """Mean recall, NDCG, MRR, hit rate and precision at k, user by user and item by item."""
    pairs = {name: set(zip(s.users.tolist(), s.items.tolist(), strict=True)) for name, s in splits.items()}
    known = set().union(*(pairs[name] for name in masks))
    rows = []
    for user in sorted({user for user, _ in pairs["test"]}):
        candidates = [item for item in range(N_ITEMS) if (user, item) not in known]
        ranked = sorted(candidates, key=lambda item: -model.scores[user, item].item())[:k]
        hits = [rank for rank, item in enumerate(ranked, start=1) if (user, item) in pairs["test"]]
        relevant = sum(owner == user for owner, _ in pairs["test"])
        ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, relevant) + 1))
        gain = sum(1 / math.log2(rank + 1) for rank in hits)
        rows.append((len(hits) / relevant, gain / ideal, 1 / hits[0] if hits else 0, bool(hits), len(hits) / k))
    names = (f"{metric}@{k}" for metric in ("recall", "ndcg", "mrr", "hit", "precision"))
    return {name: sum(column) / len(rows) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
@pytest.mark.parametrize("masks", [("train",), ("train", "validation")])
@pytest.mark.parametrize("share", [0.5, 0.2])
def test_full_ranking_is_that_of_ranking_every_user_by_hand(batch_size, masks, share):
    splits = split_per_user(interactions(share=share), (0.5, 0.3, 0.2), seed=3)
    also_mask = splits["validation"] if "validation" in masks else None
    loader = EvalDataLoader(
        splits["test"], splits["train"], batch_size=batch_size, device="cpu", k=(1, 3, 5), also_mask=also_mask
    )
    assert (len(loader.users) < N_USERS) == (share == 0.2)  # of few pairs, not every user has one to test
    expected = {name: v for k in (1, 3, 5) for name, v in plain_evaluation(Fixed(), splits, masks, k).items()}
    assert loader.evaluate(Fixed()) == pytest.approx(expected, rel=1e-5)
    assert len(loader) == math.ceil(len(loader.users) / batch_size)


def test_users_without_a_pair_to_find_do_not_count():
    train = interactions()
    found = Interactions(torch.tensor([4]), torch.tensor([1]), N_USERS, N_ITEMS)
    loader, model = EvalDataLoader(found, train, device="cpu", k=(1,)), Fixed()
    model.scores[4, 1] = 100
    assert loader.users.tolist() == [4]
    assert loader.evaluate(model)["recall@1"] == 1.0


def test_items_known_from_training_are_never_recommended():
    train = interactions()
    unknown = Interactions(torch.arange(N_USERS), torch.ones(N_USERS, dtype=torch.long), N_USERS, N_ITEMS)
    model = Fixed()
    model.scores[:, 1] = 50  # the item that nobody trained on
    model.scores[train.users, train.items] = 100  # outscored by all that they did
    assert EvalDataLoader(unknown, train, device="cpu", k=(1,)).evaluate(model)["hit@1"] == 1.0


def test_the_first_k_decides_which_model_is_best_and_repeated_ks_count_once():
    loader = EvalDataLoader(interactions(), interactions(1), device="cpu", k=(5, 3, 5))
    assert loader.monitor == "ndcg@3"
    assert loader.higher_is_better
    assert {name.split("@")[1] for name in loader.evaluate(Fixed())} == {"3", "5"}


def test_a_k_beyond_the_items_means_all_of_them():
    splits = split_per_user(interactions(), (0.5, 0.0, 0.5))
    metrics = EvalDataLoader(splits["test"], splits["train"], device="cpu", k=(N_ITEMS, 500)).evaluate(Fixed())
    assert metrics["recall@500"] == 1.0
    assert metrics["ndcg@500"] == pytest.approx(metrics[f"ndcg@{N_ITEMS}"])


def test_a_model_that_cannot_rank_is_refused_by_its_type():
    with pytest.raises(ConfigError, match=r"Linear cannot rank all items"):
        EvalDataLoader(interactions(), interactions(1), device="cpu").evaluate(nn.Linear(1, 1))


class Remembered(Fixed):
    """A model that keeps its scores and hands over what it keeps."""

    def full_scores(self, users):
        return self.scores


def test_evaluating_leaves_what_the_model_keeps_alone():
    model = Remembered()
    EvalDataLoader(interactions(), interactions(1), device="cpu").evaluate(model)
    assert torch.equal(model.scores, Fixed().scores)


class Unfactorised(nn.Module):
    """A factorised model's scores, asked for all at once."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def full_scores(self, users):
        return self.model.user_vectors(users) @ self.model.item_vectors().T


def test_scores_of_vectors_and_scores_all_at_once_agree():
    model = BPR(N_USERS, N_ITEMS, embed_dim=4)
    users = torch.tensor([3, 0, 3])
    torch.testing.assert_close(scorer(model)(users), scorer(Unfactorised(model))(users))
    splits = split_per_user(interactions(), (0.5, 0.3, 0.2), seed=3)
    loader = EvalDataLoader(splits["test"], splits["train"], device="cpu", k=(3, 5))
    assert loader.evaluate(model) == pytest.approx(loader.evaluate(Unfactorised(model)), rel=1e-6)


def test_scores_are_a_matrix_of_ones_own_in_full_precision():
    for model in (BPR(N_USERS, N_ITEMS, embed_dim=4).double(), Fixed().half()):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        scores = scorer(model)(torch.arange(N_USERS))
        assert scores.dtype == torch.float32
        scores.detach().fill_(7)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Counted(BPR):
    """Remembers for how many users it was asked at once."""

    def user_vectors(self, users):
        self.asked = [*getattr(self, "asked", []), len(users)]
        return super().user_vectors(users)


@pytest.mark.parametrize("also", [True, False])
def test_the_cpu_is_asked_in_chunks_with_the_metrics_of_one_big_batch(monkeypatch, also):
    n_users, n_items = 2 * MOST_USERS_ON_CPU + 40, 30
    users, items = (torch.rand(n_users, n_items, generator=torch.Generator().manual_seed(0)) < 0.5).nonzero().T
    splits = split_per_user(Interactions(users, items, n_users, n_items), (0.5, 0.25, 0.25))
    mask = splits["validation"] if also else None
    loader = EvalDataLoader(splits["test"], splits["train"], batch_size=10_000, device="cpu", also_mask=mask)
    model = Counted(n_users, n_items, embed_dim=4)
    in_chunks = loader.evaluate(model)
    assert max(model.asked) == MOST_USERS_ON_CPU
    assert sum(model.asked) == len(loader.users)
    monkeypatch.setattr("brim.workloads.recommender.loaders.MOST_USERS_ON_CPU", 10_000)
    model.asked = []
    assert loader.evaluate(model) == pytest.approx(in_chunks, rel=1e-6)
    assert model.asked == [len(loader.users)]


class Constant(nn.Module):
    def full_scores(self, users):
        return torch.arange(N_ITEMS).float().repeat(len(users), 1)


def test_a_model_without_parameters_can_be_evaluated():
    metrics = EvalDataLoader(interactions(), interactions(1), device="cpu").evaluate(Constant())
    assert 0 <= metrics["ndcg@10"] <= 1


@pytest.mark.gpu
def test_training_batches_are_the_same_on_the_gpu():
    on_cpu, on_gpu = (TrainDataLoader(interactions(), batch_size=5, device=device) for device in ("cpu", "cuda"))
    assert all(part.is_cuda for batch in on_gpu.batches(2, 3) for part in batch)
    for start in (0, 10):
        assert lists(on_gpu.batches(2, 3, start)) == lists(on_cpu.batches(2, 3, start))


@pytest.mark.gpu
def test_evaluation_is_the_same_on_the_gpu_and_goes_where_the_model_is():
    splits = split_per_user(interactions(), (0.5, 0.3, 0.2), seed=3)
    loader = EvalDataLoader(splits["test"], splits["train"], device="cpu", batch_size=2, k=(3, 5))
    expected = loader.evaluate(Fixed())
    on_gpu = EvalDataLoader(splits["test"], splits["train"], device="cuda", batch_size=2, k=(3, 5))
    assert on_gpu.evaluate(Fixed().cuda()) == pytest.approx(expected, rel=1e-6)
    assert loader.evaluate(Fixed().cuda()) == pytest.approx(expected, rel=1e-6)
    assert loader.evaluate(Fixed()) == pytest.approx(expected, rel=1e-6)


def test_a_pair_that_is_there_twice_counts_once():
    train = Interactions(torch.tensor([0]), torch.tensor([0]), 1, 6)
    twice = Interactions(torch.tensor([0, 0, 0]), torch.tensor([1, 1, 2]), 1, 6)
    once = Interactions(torch.tensor([0, 0]), torch.tensor([1, 2]), 1, 6)
    model = Popularity(Interactions(torch.tensor([0, 0]), torch.tensor([1, 2]), 1, 6))
    metrics = [EvalDataLoader(data, train, k=[5], device="cpu").evaluate(model) for data in (twice, once)]
    assert metrics[0] == metrics[1]
    assert metrics[0]["recall@5"] == 1.0


def test_metrics_of_each_user_have_the_means_that_evaluation_gives():
    data = split_per_user(interactions(), (0.5, 0.2, 0.3))
    judge = EvalDataLoader(data["test"], data["train"], device="cpu", k=(2, 5))
    each = judge.evaluate_each(Fixed())
    assert {len(values) for values in each.values()} == {len(judge.users)}
    assert {name: values.mean().item() for name, values in each.items()} == pytest.approx(judge.evaluate(Fixed()))
