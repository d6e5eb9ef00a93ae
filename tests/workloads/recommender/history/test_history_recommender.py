import math

import pytest
import torch

import brim
from brim.errors import ConfigError
from brim.workloads import load
from brim.workloads.recommender import EmbeddedDataset, EvalDataLoader
from brim.workloads.recommender.comparison import AmongItems, hold_out_items, only_items
from brim.workloads.recommender.history import Histories, HistoryLoader, HistoryRecommender
from brim.workloads.recommender.loaders import scorer

N_USERS, N_ITEMS = 30, 40


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(N_USERS, N_ITEMS)


@pytest.fixture
def build(dataset):
    def build(**arguments):
        torch.manual_seed(0)
        model = HistoryRecommender.of(dataset.get_split_data("train"), dataset, embed_dim=8, **arguments)
        torch.nn.init.normal_(model.habit_slopes, std=0.5)
        return model

    return build


def plain_scores(model, watched):
    """One person's scores, item by item."""
    directions = model.ids.weight * model.is_known[:, None] + model.projection(model.texts)
    person = sum(directions[item] for item in watched)
    many, share = math.log(len(watched)), model.log_share[watched].mean()
    habits = (torch.tensor([many, share]) - model.habit_mean) / model.habit_spread
    temperature = model.temperature * math.exp(torch.dot(habits, model.habit_slopes).item())
    cosines = [torch.dot(person, item) / (person.norm() * item.norm()) for item in directions]
    return [temperature * cosine.item() + bias for cosine, bias in zip(cosines, model.bias.tolist(), strict=True)]


def test_a_score_is_the_cosine_with_what_was_watched_and_the_bias(build, dataset):
    model, train = build(temperature=3.0), dataset.get_split_data("train")
    for user in (0, 7):
        watched = train.items[train.users == user].unique().tolist()
        with torch.no_grad():
            assert scorer(model)(torch.tensor([user]))[0].tolist() == pytest.approx(
                plain_scores(model, watched), abs=1e-5
            )


def test_the_loss_is_the_likelihood_of_hidden_items_among_all_that_are_not_seen(build):
    model = build()
    seen, hidden = torch.zeros(2, 2, N_ITEMS, dtype=torch.bool)
    seen[0, [1, 5]], hidden[0, [2, 3]], seen[1, 9], hidden[1, 0] = True, True, True, True
    expected = 0.0
    for watched, wanted in (([1, 5], [2, 3]), ([9], [0])):
        scores = plain_scores(model, watched)
        among = sum(
            math.exp(score) for item, score in enumerate(scores) if item not in watched and bool(model.is_known[item])
        )
        expected -= sum(scores[item] - math.log(among) for item in wanted)
    expected /= 2 * len(model.history_items) / N_USERS
    assert model.calculate_loss(Histories(seen, hidden)).item() == pytest.approx(expected, rel=1e-5)


def test_a_batch_in_parts_has_the_gradient_of_the_whole(build, dataset):
    model = build()
    batch = next(iter(HistoryLoader(dataset.get_split_data("train"), 8, device="cpu")))
    gradients = []
    for size in (8, 2):
        model.zero_grad()
        for first in range(0, 8, size):
            part = Histories(*(rows[first : first + size] for rows in batch))
            (model.calculate_loss(part) * size / 8).backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_with_nothing_seen_or_hidden_the_loss_is_finite_and_so_are_its_gradients(build):
    model = build()
    nothing = torch.zeros(3, N_ITEMS, dtype=torch.bool)
    loss = model.calculate_loss(Histories(nothing, nothing))
    loss.backward()
    assert loss.item() == 0
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_controls_read_no_text_or_random_vectors(build):
    assert build(control="ids").projection is None
    text, other = build().texts, build(control="random").texts
    assert text.shape == other.shape
    assert not torch.allclose(text, other)
    with pytest.raises(ConfigError, match="control='noise'"):
        build(control="noise")
    with pytest.raises(ConfigError, match="without texts"):
        build(control="ids").new_item_vectors(["Movie: A."])


def test_a_new_item_is_where_its_text_puts_it(build, dataset):
    model = build()
    with torch.no_grad():
        model.ids.weight.zero_()
        known, new = model.item_vectors()[:3, :-1], model.new_item_vectors(dataset.item_texts()[:3])[:, :-1]
    torch.testing.assert_close(new, known, atol=1e-4, rtol=1e-4)


def test_training_ranks_items_that_were_held_out_better_than_chance():
    big = EmbeddedDataset(n_users=200, n_items=400)
    train = big.get_split_data("train")
    cold, (warm_train,) = hold_out_items([train], share=0.2)
    torch.manual_seed(0)
    model = HistoryRecommender.of(warm_train, big, embed_dim=16, popularity=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = HistoryLoader(warm_train, 64, device="cpu")
    for _ in range(8):
        for batch in loader:
            optimizer.zero_grad()
            model.calculate_loss(batch).backward()
            optimizer.step()
    judge = EvalDataLoader(only_items(train, cold), warm_train, device="cpu", k=[10])
    # Before the training it is 1.65 times chance, by what texts have in common.
    assert judge.evaluate(AmongItems(model, cold, 400))["recall@10"] > 2.5 * 10 / len(cold)


def test_a_run_is_loaded_again_without_data_or_encoder(build, dataset, tmp_path):
    train = dataset.get_split_data("train")
    model = build()
    judge = EvalDataLoader(dataset.get_split_data("validation"), train, device="cpu")
    result = brim.Trainer(
        model, HistoryLoader(train, 16, device="cpu"), judge, epochs=2, device="cpu", run_dir=tmp_path / "run"
    ).fit()
    again = load(result.run)
    users = torch.arange(N_USERS)
    with torch.no_grad():
        assert torch.equal(scorer(again)(users), scorer(model)(users))


def test_somebody_new_is_recommended_what_a_user_with_the_same_history_is(build, dataset, tmp_path):
    train = dataset.get_split_data("train")
    watched = train.items[train.users == 3].tolist()
    build().save_pretrained(tmp_path)
    model = HistoryRecommender.from_pretrained(tmp_path)
    assert model.recommend(watched=watched, k=5) == build().recommend(3, 5, known=watched)
