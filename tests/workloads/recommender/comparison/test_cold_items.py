import pytest
import torch

from brim.errors import ConfigError
from brim.workloads.recommender import EmbeddedDataset, Interactions, Popularity
from brim.workloads.recommender.comparison import AmongItems, GenrePopularity, GenreTaste, hold_out_items
from brim.workloads.recommender.dataset import Movie

MOVIES = [Movie("A", ("Drama",)), Movie("B", ("Drama", "Crime")), Movie("C", ("Crime",)), Movie("D", ("Drama",))]
DATA = Interactions(torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 2]), n_users=2, n_items=4)


def test_held_out_items_are_in_no_split_and_the_other_pairs_stay():
    train = EmbeddedDataset(30, 40).get_split_data("train")
    cold, (warm,) = hold_out_items([train], share=0.1)
    is_cold = torch.isin(train.items, cold)
    assert len(cold) == 4
    assert not torch.isin(warm.items, cold).any()
    assert len(warm) == int((~is_cold).sum())
    assert torch.equal(cold, hold_out_items([train], share=0.1)[0])
    assert not torch.equal(cold, hold_out_items([train], share=0.1, seed=1)[0])
    with pytest.raises(ConfigError, match="share=1"):
        hold_out_items([train], share=1)


def test_among_items_the_others_come_last():
    scores = AmongItems(Popularity(DATA), torch.tensor([1, 3]), 4).full_scores(torch.tensor([0]))
    assert scores.tolist() == [[-torch.inf, 1.0, -torch.inf, 0.0]]


def test_genres_are_as_popular_as_their_training_items_on_average():
    # Drama: A twice, B once (D is not in training); Crime: B once, C once.
    scores = GenrePopularity(DATA, MOVIES).full_scores(torch.tensor([0, 1]))
    assert scores[0].tolist() == scores[1].tolist() == [1.5, 1.25, 1.0, 1.5]


def test_taste_counts_what_one_user_watched():
    scores = GenreTaste(DATA, MOVIES).full_scores(torch.tensor([1]))
    assert scores[0].tolist() == [0.5, 0.5, 0.5, 0.5]
    scores = GenreTaste(DATA, MOVIES).full_scores(torch.tensor([0]))
    assert scores[0].tolist() == [1.0, 0.75, 0.5, 1.0]
