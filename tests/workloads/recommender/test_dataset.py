import pytest
import torch

from brim.errors import ConfigError
from brim.workloads.recommender import Interactions, RecommenderDataset
from brim.workloads.recommender.dataset import Movie, Person


@pytest.fixture
def dataset():
    splits = {
        name: Interactions(torch.tensor([user]), torch.tensor([item]), 2, 3)
        for name, user, item in (("train", 0, 1), ("validation", 0, 2), ("test", 1, 0))
    }
    people = [Person("F", "25-34", "doctor"), Person("M", "under 18", "K-12 student")]
    movies = [Movie("Heat (1995)", ("Action", "Crime")), Movie("Clue (1985)", ("Comedy",)), Movie("Ran (1985)", ())]
    return RecommenderDataset(people, movies, splits)


def test_a_movies_text_has_its_title_and_all_genres():
    assert Movie("Heat (1995)", ("Action", "Crime")).text() == "Movie: Heat (1995). Genres: Action, Crime."


@pytest.mark.parametrize(("gender", "word"), [("F", "woman"), ("M", "man"), ("X", "person")])
def test_a_persons_text_says_in_words_what_is_known(gender, word):
    assert Person(gender, "25-34", "doctor").text() == f"User: {word}, age 25-34, occupation: doctor."


def test_there_is_a_text_for_everybody_and_everything_in_order(dataset):
    assert dataset.user_texts() == [person.text() for person in dataset.people]
    assert dataset.item_texts() == [movie.text() for movie in dataset.movies]
    assert (dataset.get_user_num(), dataset.get_item_num()) == (2, 3)


def test_each_split_is_handed_over_by_its_name(dataset):
    items = {name: dataset.get_split_data(name).items.tolist() for name in ("train", "validation", "test")}
    assert items == {"train": [1], "validation": [2], "test": [0]}


def test_an_unknown_split_is_refused_with_the_known_ones(dataset):
    with pytest.raises(ConfigError, match=r"'valid'.*train, validation, test"):
        dataset.get_split_data("valid")
