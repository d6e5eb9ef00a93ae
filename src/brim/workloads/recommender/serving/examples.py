"""A few people with what they watched and what they would be recommended: what a model does, to look at."""

import torch
from torch import nn

from brim.record.report.recommendations import Person
from brim.workloads.recommender.dataset import RecommenderDataset
from brim.workloads.recommender.interactions import SPLITS
from brim.workloads.recommender.serving.item_lists import ItemLists
from brim.workloads.recommender.serving.rankings import rank_items

PEOPLE, TITLES = 4, 8


def example_people(
    model: nn.Module, dataset: RecommenderDataset, people: int = PEOPLE, k: int = TITLES
) -> list[Person]:
    """Some people of the test data, from the first to the last: what they know is left out, as it is in the test."""
    train, validation, test = (dataset.get_split_data(split) for split in SPLITS)
    known, relevant = ItemLists.of([train, validation]), ItemLists.of([test])
    tested = torch.unique(test.users)
    chosen = tested[torch.linspace(0, len(tested) - 1, min(people, len(tested))).long()].tolist()
    shown = []
    for user in chosen:
        watched = known[user].tolist()
        best, right = rank_items(model, user, k, watched).ids, set(relevant[user].tolist())
        shown.append(
            Person(
                f"{dataset.user_ids[user]} · {dataset.people[user].text()}",
                tuple(dataset.movies[item].title for item in watched[:k]),
                len(watched),
                tuple(dataset.movies[item].title for item in best),
                frozenset(place for place, item in enumerate(best) if item in right),
            )
        )
    return shown
