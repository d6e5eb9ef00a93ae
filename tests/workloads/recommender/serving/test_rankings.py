import numpy as np
import pytest
import torch

from brim.errors import ConfigError
from brim.workloads.recommender import BPR, EASE, EmbeddedDataset, GPT2RecommenderEnhanced, Popularity
from brim.workloads.recommender.serving.catalogue import Catalogue
from brim.workloads.recommender.serving.rankings import place_of, rank_alike, rank_items, rank_users, rankings_of_all

N_USERS, N_ITEMS = 12, 30


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(N_USERS, N_ITEMS)


@pytest.fixture(scope="module")
def bpr():
    torch.manual_seed(0)
    return BPR(N_USERS, N_ITEMS, 4)


@pytest.fixture(scope="module")
def reader(dataset):
    torch.manual_seed(0)
    model = GPT2RecommenderEnhanced(N_USERS, N_ITEMS, 8, dataset, hidden_dim=8)
    with torch.no_grad():
        for tower in (model.users, model.items):
            tower.mlp[-1].weight.normal_()
    return model


def scores(model):
    return model.user_vectors(torch.arange(N_USERS)).detach() @ model.item_vectors().detach().T


def test_a_user_of_training_gets_the_best_of_all_scores(bpr):
    ranking = rank_items(bpr, 3, k=5)
    best = scores(bpr)[3].sort(descending=True)
    assert ranking.ids == best.indices[:5].tolist()
    assert ranking.scores == pytest.approx(best.values[:5].tolist())


@pytest.mark.parametrize("baseline", [Popularity, EASE])
def test_baselines_cannot_say_how_many_users_they_know(dataset, baseline):
    with pytest.raises(ConfigError, match="does not say in its arguments how many there are"):
        rank_items(baseline(dataset.get_split_data("train")), 0)


def test_somebody_new_gets_what_goes_with_what_they_watched_and_nothing_of_it(bpr):
    """Somebody who watched what user 3 scores highest ranks the rest much as user 3 does."""
    watched = rank_items(bpr, 3, k=4).ids
    ranking = rank_items(bpr, watched=watched, k=N_ITEMS)
    assert sorted([*ranking.ids, *watched]) == list(range(N_ITEMS))
    own = scores(bpr)[3]
    assert own[ranking.ids[:8]].mean() > own[ranking.ids[-8:]].mean()


def test_somebody_new_with_the_text_of_a_user_has_their_vector_but_for_the_id(reader, dataset):
    ranking = rank_items(reader, text=dataset.user_texts()[5], k=N_ITEMS)
    with torch.no_grad():
        ids = reader.users.ids.weight
        vector = reader.user_vectors(torch.tensor([5]))[0] - ids[5] + ids.mean(0)
        expected = reader.item_vectors() @ vector
    assert ranking.ids == expected.argsort(descending=True).tolist()


def test_a_text_and_what_was_watched_go_together(reader, dataset):
    watched, text = [2, 9], dataset.user_texts()[5]
    both = rank_items(reader, watched=watched, text=text, k=N_ITEMS)
    assert both.ids != rank_items(reader, watched=watched, k=N_ITEMS).ids
    assert not {2, 9} & set(both.ids)


def test_a_new_item_is_like_those_whose_vectors_point_where_its_own_does(reader, dataset):
    text = dataset.item_texts()[11]
    with torch.no_grad():
        alike = torch.cosine_similarity(reader.item_vectors(), reader.new_item_vectors([text]))
    assert rank_alike(reader, text, k=4).ids == alike.topk(4).indices.tolist()
    assert alike[11] > alike.median()


def test_a_new_item_is_for_those_who_score_it_highest(reader, dataset):
    text = dataset.item_texts()[11]
    with torch.no_grad():
        expected = reader.user_vectors(torch.arange(N_USERS)) @ reader.new_item_vectors([text])[0]
    assert rank_users(reader, text, k=3).ids == expected.topk(3).indices.tolist()
    assert reader.recommend_users(text, k=3) == expected.topk(3).indices.tolist()


def test_the_place_of_a_new_item_is_among_what_somebody_does_not_know(reader):
    text = "Movie: The Blood of Grave (1999). Genres: Horror."
    with torch.no_grad():
        vector = reader.user_vectors(torch.tensor([4]))[0]
        others, own = reader.item_vectors() @ vector, reader.new_item_vectors([text])[0] @ vector
    assert place_of(reader, 4, text) == (1 + int((others > own).sum()), N_ITEMS + 1)
    best = int(others.argmax())
    place, count = place_of(reader, 4, text, known=[best])
    assert (place, count) == (1 + int((others > own).sum()) - int(others[best] > own), N_ITEMS)


def test_rankings_of_all_are_those_of_each(bpr, dataset):
    catalogue = Catalogue(dataset)
    blocks = list(rankings_of_all(bpr, torch.arange(N_USERS), 4, catalogue.seen, at_once=5))
    assert torch.cat([users for users, _, _ in blocks]).tolist() == list(range(N_USERS))
    items = torch.cat([items for _, items, _ in blocks])
    for user in range(N_USERS):
        assert items[user].tolist() == rank_items(bpr, user, 4, catalogue.seen_by(user)).ids


def test_ids_may_be_numbers_of_numpy_or_torch(bpr):
    expected = rank_items(bpr, 3, 5, [0, 1])
    for some in (np.array([0, 1]), torch.tensor([0, 1]), [np.int64(0), np.int32(1)]):
        assert rank_items(bpr, np.int64(3), 5, some) == expected
        assert rank_items(bpr, watched=some) == rank_items(bpr, watched=[0, 1])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "takes a user of training, or somebody new"),
        ({"user": 1, "watched": [2]}, "takes a user of training, or somebody new"),
        ({"user": N_USERS}, f"there is no user {N_USERS}; they are 0 to {N_USERS - 1}"),
        ({"user": -1}, "there is no user -1"),
        ({"user": 1, "k": 0}, "k=0 must be a whole number"),
        ({"user": 1, "known": [N_ITEMS]}, f"there is no item {N_ITEMS}"),
        ({"watched": [-1]}, "there is no item -1"),
        ({"text": "a man"}, "BPR reads no texts; say what the person has watched"),
    ],
)
def test_what_cannot_be_ranked_is_refused_in_one_sentence(bpr, arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        rank_items(bpr, **arguments)


def test_a_model_that_reads_nothing_knows_nothing_of_a_new_item(bpr):
    with pytest.raises(ConfigError, match="BPR reads no texts, so it knows nothing of a new item"):
        rank_users(bpr, "Movie: New.")
