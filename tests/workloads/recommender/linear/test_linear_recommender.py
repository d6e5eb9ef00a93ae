import pytest
import torch

from brim.errors import ConfigError
from brim.workloads.recommender import EASE, EmbeddedDataset, Interactions
from brim.workloads.recommender.comparison import only_items
from brim.workloads.recommender.linear import LinearRecommender, LinearSettings, linear_recommender
from brim.workloads.recommender.loaders import scorer

PLAIN = LinearSettings(regularisation=50.0, denoising=0.0, user_power=0.0, discount=0.0)


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(60, 50)


@pytest.fixture(scope="module")
def train(dataset):
    return dataset.get_split_data("train")


@pytest.fixture(scope="module")
def encodings():
    return torch.randn(50, 12, generator=torch.Generator().manual_seed(0))


def scores(model, users=range(60)):
    return scorer(model)(torch.tensor(list(users)))


def test_without_texts_and_weights_of_people_it_is_ease(train):
    found = scores(LinearRecommender.of(train, settings=PLAIN, control="ids"))
    torch.testing.assert_close(found, scores(EASE(train, 50.0)), rtol=1e-4, atol=1e-5)


def test_the_weights_solve_each_items_regression_on_the_others(train, encodings):
    settings = LinearSettings(regularisation=5.0, text_weight=20.0, discount=0.0)
    model = LinearRecommender.of(train, settings=settings, encodings=encodings)
    watched = torch.zeros(60, 50, dtype=torch.double)
    watched[train.users, train.items] = 1
    counts = watched.sum(1).clamp(min=1)
    people = watched * ((counts / counts.mean()) ** -0.5)[:, None]
    centred = torch.nn.functional.normalize((encodings - encodings.mean(0)).double(), dim=1)
    together = people.T @ people
    matrix = together + 20 * (centred @ centred.T) ** 2 + torch.diag(5 + 1.5 * together.diagonal())
    others = torch.arange(50) != 7
    expected = torch.linalg.solve(matrix[others][:, others], matrix[others, 7])
    torch.testing.assert_close(model.weights[others, 7].double(), expected, rtol=1e-3, atol=1e-5)
    assert model.weights[7, 7] == 0


def test_the_discount_divides_scores_by_a_power_of_counts(train):
    plain = LinearRecommender.of(train, settings=PLAIN, control="ids")
    discounted = LinearRecommender.of(train, settings=LinearSettings(**{**vars(PLAIN), "discount": 0.5}), control="ids")
    counts = torch.bincount(train.items, minlength=50)
    torch.testing.assert_close(scores(discounted), scores(plain) / (counts + 10).sqrt())


def test_an_item_that_nobody_watched_is_where_its_text_puts_it(train, encodings):
    without = only_items(train, torch.arange(49))
    model = LinearRecommender.of(without, encodings=encodings)
    assert scores(model)[:, 49].abs().sum() > 0
    # The same item, brought later: the others are solved without it, with the encodings centred alike.
    fewer = Interactions(without.users, without.items, 60, 49)
    smaller = LinearRecommender.of(fewer, encodings=encodings[:49] - encodings.mean(0) + encodings[:49].mean(0))
    smaller.mean.copy_(encodings.mean(0))
    smaller.texts.copy_(smaller._centred(encodings[:49]))
    smaller._solve(LinearSettings())
    vector = smaller.encoded_item_vectors(encodings[49:])[0]
    found = smaller.user_vectors(torch.arange(60)) @ vector
    torch.testing.assert_close(found, scores(model)[:, 49], rtol=1e-3, atol=1e-6)


def test_ids_alone_know_nothing_of_new_items(train):
    with pytest.raises(ConfigError, match="without texts"):
        LinearRecommender.of(train, control="ids").new_item_vectors(["Movie: Heat"])


def test_new_texts_are_read_by_the_encoder_it_names(train, dataset):
    model = LinearRecommender.of(train, dataset)
    assert model.new_item_vectors(["Movie: Heat (1995). Genres: Crime."]).shape == (1, 50)


def test_it_recommends_what_is_not_known_also_to_somebody_new(train, encodings):
    model = LinearRecommender.of(train, encodings=encodings)
    assert not set(model.recommend(3, 10, known=[1, 2])) & {1, 2}
    watched = train.items[train.users == 3].unique().tolist()
    assert model.recommend(k=5, watched=watched) == model.recommend(3, 5, known=watched)


def test_random_vectors_are_drawn_anew_by_seed_and_text_is_not(train, encodings):
    def made(control, seed):
        torch.manual_seed(seed)
        return LinearRecommender.of(train, encodings=encodings, control=control).weights

    assert torch.equal(made(None, 0), made(None, 1))
    assert not torch.equal(made("random", 0), made("random", 1))


def test_a_saved_model_ranks_alike(train, encodings, tmp_path):
    model = LinearRecommender.of(train, encodings=encodings)
    model.save_pretrained(tmp_path / "kept")
    again = LinearRecommender.from_pretrained(tmp_path / "kept")
    assert torch.equal(scores(model), scores(again))
    assert torch.equal(model.encoded_item_vectors(encodings), again.encoded_item_vectors(encodings))


def test_too_many_items_are_refused(train, monkeypatch):
    monkeypatch.setattr(linear_recommender, "MOST_ITEMS", 49)
    with pytest.raises(ConfigError, match="kind history"):
        LinearRecommender.of(train, control="ids")


def test_somebody_without_a_pair_is_ranked_for_as_the_mean_of_all():
    pairs = Interactions(torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 0, 2, 0]), 4, 4)
    model = LinearRecommender.of(pairs, control="ids", settings=LinearSettings(regularisation=1.0))
    known, unknown = model.user_vectors(torch.arange(3)), model.user_vectors(torch.tensor([3]))
    torch.testing.assert_close(unknown[0], known.sum(0) / 4)
    assert (unknown @ model.item_vectors().T).abs().max() > 0
