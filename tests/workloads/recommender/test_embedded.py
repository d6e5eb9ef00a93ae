import re

import pytest
import torch

from brim.errors import ConfigError
from brim.workloads.recommender import EmbeddedDataset, EvalDataLoader, Popularity
from brim.workloads.recommender.embedded import GENRE_WORDS


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(n_users=200, n_items=150)


def pairs_of(data):
    return list(zip(data.users.tolist(), data.items.tolist(), strict=True))


def test_it_has_the_users_and_items_asked_for(dataset):
    assert (dataset.get_user_num(), dataset.get_item_num()) == (200, 150)
    assert (len(dataset.people), len(dataset.movies)) == (200, 150)


def test_every_person_watched_ten_movies_or_more_and_never_all(dataset):
    pairs = pairs_of(dataset.interactions)
    assert len(set(pairs)) == len(pairs)
    counts = torch.bincount(dataset.interactions.users, minlength=200)
    assert counts.min() >= 10
    assert counts.max() <= 50
    assert dataset.interactions.items.max() < 150


def test_the_splits_are_the_data_set_in_three_parts(dataset):
    parts = [pairs_of(dataset.get_split_data(name)) for name in ("train", "validation", "test")]
    assert sorted(parts[0] + parts[1] + parts[2]) == sorted(pairs_of(dataset.interactions))
    assert len(parts[0]) == pytest.approx(0.8 * len(dataset.interactions), rel=0.02)


def test_an_unknown_split_is_refused_with_the_known_ones(dataset):
    with pytest.raises(ConfigError, match=r"'dev'.*train, validation, test"):
        dataset.get_split_data("dev")


def test_the_same_seed_gives_the_same_data_and_another_seed_another():
    first, again, other = (EmbeddedDataset(30, 40, seed=seed) for seed in (5, 5, 6))
    assert (first.movies, first.people) == (again.movies, again.people)
    assert pairs_of(first.get_split_data("train")) == pairs_of(again.get_split_data("train"))
    assert first.movies != other.movies
    assert pairs_of(first.interactions) != pairs_of(other.interactions)


def test_making_it_leaves_the_default_generator_alone():
    before = torch.get_rng_state()
    EmbeddedDataset(5, 10)
    assert torch.equal(torch.get_rng_state(), before)


def test_titles_are_made_of_words_of_the_movies_own_genres(dataset):
    assert dataset.movies
    for movie in dataset.movies:
        title = re.fullmatch(r"The (\w+) of (\w+) \((\d{4})\)", movie.title)
        words = {word for genre in movie.genres for word in GENRE_WORDS[genre]}
        assert {title[1], title[2]} <= words
        assert 1930 <= int(title[3]) < 2000
        assert 1 <= len(set(movie.genres)) == len(movie.genres) <= 3


def test_popularity_can_be_learned_from_it(dataset):
    """Ranking by how often a movie was watched beats ranking at random by far."""
    train, valid = dataset.get_split_data("train"), dataset.get_split_data("validation")
    popularity, random = Popularity(train), Popularity(train)
    random.counts = torch.rand(150, generator=torch.Generator().manual_seed(0))
    loader = EvalDataLoader(valid, train, device="cpu")
    assert loader.evaluate(popularity)["ndcg@10"] > 1.5 * loader.evaluate(random)["ndcg@10"]


def test_people_watch_what_goes_with_their_taste(dataset):
    """Two movies of one person share a genre more often than any two movies do."""
    genres = torch.tensor([[genre in movie.genres for genre in GENRE_WORDS] for movie in dataset.movies]).float()
    shares_genre = ((genres @ genres.T) > 0).float().fill_diagonal_(0)
    watched = torch.zeros(200, 150)
    watched[dataset.interactions.users, dataset.interactions.items] = 1
    count = watched.sum(1)
    of_one_person = ((watched @ shares_genre) * watched).sum(1) / (count * (count - 1))
    of_anybody = shares_genre.sum() / (150 * 149)
    assert of_one_person.mean() > 1.2 * of_anybody
