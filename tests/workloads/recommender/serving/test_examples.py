import torch

from brim.workloads.recommender import BPR, EmbeddedDataset
from brim.workloads.recommender.serving.examples import example_people
from brim.workloads.recommender.serving.rankings import rank_items


def test_examples_are_people_of_the_test_data_with_what_the_test_would_rank():
    dataset = EmbeddedDataset(12, 30)
    torch.manual_seed(0)
    model = BPR(12, 30, 4)
    train, validation, test = (dataset.get_split_data(split) for split in ("train", "validation", "test"))
    people = example_people(model, dataset, people=12, k=6)
    assert len(people) == len(test.users.unique())
    for user, person in zip(test.users.unique().tolist(), people, strict=True):
        known = torch.cat([part.items[part.users == user] for part in (train, validation)]).unique()
        best = rank_items(model, user, 6, known).ids
        assert person.who.startswith(f"{user} · User: ")
        assert person.recommended == tuple(dataset.movies[item].title for item in best)
        assert person.watched_in_all == len(known)
        right = set(test.items[test.users == user].tolist())
        assert person.found == {place for place, item in enumerate(best) if item in right}
