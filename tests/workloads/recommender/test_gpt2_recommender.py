import pytest
import torch

from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.errors import ConfigError
from brim.record import RunFolder
from brim.workloads import load, saved_model
from brim.workloads.recommender import EmbeddedDataset, EvalDataLoader, Triples
from brim.workloads.recommender.gpt2_recommender import GPT2RecommenderEnhanced, whiten
from brim.workloads.recommender.loaders import scorer

N_USERS, N_ITEMS = 12, 15


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(N_USERS, N_ITEMS)


@pytest.fixture
def build(dataset):
    def build(**arguments):
        torch.manual_seed(0)
        model = GPT2RecommenderEnhanced(N_USERS, N_ITEMS, embed_dim=8, dataset=dataset, hidden_dim=16, **arguments)
        with torch.no_grad():
            for tower in (model.users, model.items):
                tower.mlp[-1].weight.normal_()  # texts that count as much as ids
        return model

    return build


def all_scores(model):
    with torch.no_grad():
        return scorer(model)(torch.arange(N_USERS))


def triples(seed=0, size=6):
    """Few enough that not every row is asked for, unless size says otherwise; some of them twice."""
    generator = torch.Generator().manual_seed(seed)
    return Triples(*(torch.randint(limit, (size,), generator=generator) for limit in (N_USERS, N_ITEMS, N_ITEMS)))


def train(model, steps=3, optimizer=torch.optim.Adam):
    optimizer = optimizer([p for p in model.parameters() if p.requires_grad], lr=0.01)
    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        model.calculate_loss(triples(step)).backward()
        optimizer.step()


def weights(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def test_kept_encodings_and_fresh_ones_give_the_same_scores(build):
    cached, dynamic = build(use_cache=True), build(use_cache=False)
    torch.testing.assert_close(all_scores(cached), all_scores(dynamic), atol=1e-5, rtol=1e-5)
    assert cached.items.encodings is not None
    assert dynamic.items.encodings is None


def test_encodings_are_kept_as_the_mlp_reads_them_in_full_precision(build):
    model = build(use_cache=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.calculate_loss(triples())
    tower = model.items
    expected = (model.encoder.encode_all(tower.tokens) - tower.mean) @ tower.whitening
    assert tower.encodings.dtype == torch.float32 and not tower.encodings.requires_grad
    torch.testing.assert_close(tower.encodings, expected, atol=1e-6, rtol=1e-6)


def test_kept_encodings_and_fresh_ones_give_the_same_loss_and_gradients(build):
    cached, dynamic = build(use_cache=True), build(use_cache=False)
    losses = [model.calculate_loss(triples()) for model in (cached, dynamic)]
    torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-5)
    for loss in losses:
        loss.backward()
    for (name, left), right in zip(cached.named_parameters(), dynamic.parameters(), strict=True):
        assert (left.grad is None) == name.startswith("encoder.")
        if left.grad is not None:
            torch.testing.assert_close(left.grad, right.grad, atol=1e-5, rtol=1e-4)


def test_the_cache_can_be_switched_on_a_live_model(build):
    model = build(use_cache=True)
    train(model)
    cached = all_scores(model)
    model.use_cache = False
    assert model.items.encodings is model.users.encodings is None
    torch.testing.assert_close(all_scores(model), cached, atol=1e-5, rtol=1e-5)
    model.use_cache = True
    torch.testing.assert_close(all_scores(model), cached, atol=1e-5, rtol=1e-5)


def test_training_with_and_without_the_cache_is_the_same(build):
    cached, dynamic = build(use_cache=True), build(use_cache=False)
    for model in (cached, dynamic):
        train(model, optimizer=torch.optim.SGD)  # Adam makes steps of the rounding errors of a gradient that is zero
    torch.testing.assert_close(all_scores(cached), all_scores(dynamic), atol=1e-5, rtol=1e-4)


def test_the_cache_follows_what_gpt2_has_learnt(build):
    model = build(use_cache=True)
    before = all_scores(model)
    model.use_cache = False
    model.freeze_gpt2 = False
    train(model)
    fresh = all_scores(model)
    model.freeze_gpt2 = True
    model.use_cache = True
    torch.testing.assert_close(all_scores(model), fresh, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(fresh, before, atol=1e-3)


def test_gpt2_is_encoded_once_with_the_cache_and_only_what_is_asked_for_without(build, dataset, monkeypatch):
    encoded = []

    def count(model):
        plain = model.encoder.forward
        monkeypatch.setattr(model.encoder, "forward", lambda tokens: encoded.append(len(tokens.ids)) or plain(tokens))
        return model

    cached, dynamic = count(build(use_cache=True)), count(build(use_cache=False))
    for _ in range(3):
        cached.calculate_loss(triples())
    people, movies = dataset.user_texts(), dataset.item_texts()
    assert len(set(people)) < N_USERS  # two people who are described alike are read once
    assert sorted(encoded) == sorted([len(set(people)), len(set(movies))])
    encoded.clear()
    users, positives, negatives = triples()
    dynamic.calculate_loss(Triples(users, positives, negatives))
    in_batch = {people[user] for user in users}, {movies[item] for item in torch.cat([positives, negatives])}
    assert sorted(encoded) == sorted(map(len, in_batch))
    assert (dynamic.texts_read.occurred, dynamic.texts_read.encoded) == (3 * len(users), sum(map(len, in_batch)))


def test_training_gpt2_with_kept_encodings_is_refused(build):
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match=r"use_cache=True.*GPT-2 cannot be trained.*use_cache=False first"):
        build(use_cache=True, freeze_gpt2=False)
    model = build(use_cache=True)
    with pytest.raises(ConfigError, match="use_cache=True"):
        model.freeze_gpt2 = False
    assert model.use_cache
    assert model.freeze_gpt2
    assert not any(parameter.requires_grad for parameter in model.encoder.parameters())


def test_the_cache_goes_first_and_then_the_freeze(build):
    model = build(use_cache=True)
    model.use_cache = False
    model.freeze_gpt2 = False
    assert all(parameter.requires_grad for parameter in model.encoder.parameters())
    with pytest.raises(ConfigError, match="use_cache=True"):
        model.use_cache = True
    assert not model.use_cache


@pytest.mark.parametrize(("use_cache", "freeze_gpt2"), [(True, True), (False, True), (False, False)])
def test_training_changes_gpt2_only_where_it_is_not_frozen(build, use_cache, freeze_gpt2):
    model = build(use_cache=use_cache, freeze_gpt2=freeze_gpt2)
    before = weights(model.encoder).clone()
    train(model)
    assert torch.equal(weights(model.encoder), before) == freeze_gpt2


@pytest.mark.parametrize("freeze_gpt2", [True, False])
def test_a_frozen_gpt2_never_has_dropout(build, freeze_gpt2):
    model = build(use_cache=False, freeze_gpt2=freeze_gpt2)
    assert model.train().training
    assert model.encoder.model.training == (not freeze_gpt2)
    assert not model.eval().encoder.model.training


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_loss_has_gradients_for_the_ids_and_mlps_of_the_rows_in_the_batch(build, use_cache):
    model = build(use_cache=use_cache)
    batch = triples()
    model.calculate_loss(batch).backward()
    for tower, rows in ((model.users, batch.users), (model.items, torch.cat(batch[1:]))):
        seen = tower.ids.weight.grad.abs().sum(1) > 0
        assert seen.nonzero().flatten().tolist() == rows.unique().tolist()
        assert all(parameter.grad.abs().sum() > 0 for parameter in tower.mlp[0].parameters())
        assert tower.mlp[-1].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("size", [1, N_USERS - 1, N_USERS, 3 * N_ITEMS])
def test_a_batch_of_any_size_has_the_vectors_of_each_row_by_itself(build, use_cache, size):
    """From as many rows as there are on, all are computed once and then picked."""
    model = build(use_cache=use_cache)
    users = triples(size=size).users
    by_itself = torch.cat([model.user_vectors(user[None]) for user in users])
    torch.testing.assert_close(model.user_vectors(users), by_itself, atol=1e-5, rtol=1e-5)


def test_a_large_batch_has_the_gradients_of_its_rows_one_by_one(build):
    together, apart = build(), build()
    users = triples(size=3 * N_USERS).users
    together.user_vectors(users).square().sum().backward()
    sum(apart.user_vectors(user[None]).square().sum() for user in users).backward()
    for left, right in zip(together.users.parameters(), apart.users.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, atol=1e-4, rtol=1e-4)


def test_a_vector_is_an_id_plus_the_mlp_of_the_whitened_encoding(build):
    model = build()
    tower = model.users
    encoding = model.encoder.encode_all(tower.tokens)[tower.text_of[3]]
    expected = tower.ids.weight[3] + tower.mlp((encoding - tower.mean) @ tower.whitening)
    torch.testing.assert_close(model.user_vectors(torch.tensor([3]))[0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("use_cache", [True, False])
def test_recommendations_are_the_best_of_all_scores(build, use_cache):
    model = build(use_cache=use_cache).train()
    best = all_scores(model).argsort(1, descending=True)
    for user in (0, 7):
        assert model.recommend(user, k=4) == best[user, :4].tolist()
    assert model.training


def test_recommendations_leave_out_what_is_known(build):
    model = build()
    best = all_scores(model).argsort(1, descending=True)[2].tolist()
    known = torch.tensor([best[0], best[2]])
    assert model.recommend(2, k=3, known=known) == [best[1], best[3], best[4]]


def test_more_recommendations_than_items_are_all_items(build):
    assert sorted(build().recommend(0, k=1000)) == list(range(N_ITEMS))


def test_a_data_set_is_needed():
    with pytest.raises(ConfigError, match="dataset= is needed"):
        GPT2RecommenderEnhanced(3, 4)


@pytest.mark.parametrize("sizes", [(N_USERS + 1, N_ITEMS), (N_USERS, N_ITEMS - 1), (N_ITEMS, N_USERS)])
def test_sizes_other_than_the_data_sets_are_refused(dataset, sizes):
    with pytest.raises(ConfigError, match=rf"12 users and 15 items, and n_users={sizes[0]}, n_items={sizes[1]}"):
        GPT2RecommenderEnhanced(*sizes, dataset=dataset)


def test_texts_can_be_given_as_plain_lists(build, dataset):
    model = build()
    plain = GPT2RecommenderEnhanced(**model.arguments)
    assert model.arguments["dataset"] == {"users": dataset.user_texts(), "items": dataset.item_texts()}
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(all_scores(plain), all_scores(model))


def test_loading_weights_drops_kept_encodings(build):
    trained = build(use_cache=False, freeze_gpt2=False)
    train(trained)
    model = build(use_cache=True)
    all_scores(model)
    model.load_state_dict(trained.state_dict())
    assert model.items.encodings is model.users.encodings is None
    torch.testing.assert_close(all_scores(model), all_scores(trained), atol=1e-5, rtol=1e-5)


def test_texts_and_kept_encodings_are_no_part_of_the_weights(build):
    model = build()
    all_scores(model)
    assert not [name for name in model.state_dict() if "token" in name or "encodings" in name]


def test_whitened_encodings_are_uncorrelated_and_of_length_1_on_average():
    encodings = torch.randn(200, 6, generator=torch.Generator().manual_seed(0)) @ torch.diag(3.0 ** torch.arange(6))
    mean, matrix = whiten(encodings + 1000, 4)
    white = (encodings + 1000 - mean) @ matrix
    torch.testing.assert_close(white.T @ white / 200, torch.eye(4) / 4, atol=1e-3, rtol=1e-3)
    assert white.norm(dim=1).square().mean().item() == pytest.approx(1, rel=1e-3)


def test_whitening_leaves_out_directions_that_nothing_varies_along():
    encodings = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)) @ torch.ones(2, 5).triu()
    _, matrix = whiten(encodings, 4)
    assert matrix.shape == (5, 2)


@pytest.mark.parametrize("n_users", [1, 4])
def test_texts_that_are_all_the_same_have_finite_vectors(n_users):
    texts = {"users": ["User: man."] * n_users, "items": ["a", "b"]}
    model = GPT2RecommenderEnhanced(n_users, 2, embed_dim=4, dataset=texts)
    assert model.user_vectors(torch.arange(n_users)).isfinite().all()
    # Nor does a text that training never saw drown the ids.
    assert model.new_user_vectors(["User: woman, age 25-34, occupation: doctor."]).abs().max() < 2


def test_a_new_text_unlike_all_others_does_not_drown_the_ids():
    titles = [f"Movie: item {number}. Genres: Drama." for number in range(40)]
    model = GPT2RecommenderEnhanced(3, 40, 32, {"users": ["User: person."] * 3, "items": titles}, hidden_dim=16)
    with torch.no_grad():
        known, new = (model.items.whitened(model._encode(model.encoder.tokenize(one))) for one in (titles, ["a film"]))
        assert new.norm() > 50 * known.norm(dim=1).max()
        largest = model.item_vectors().norm(dim=1).max()
        assert model.new_item_vectors(["a film", *titles]).norm(dim=1).max() < 3 * largest
        added = model.items.text_vectors(known)
    torch.testing.assert_close(model.new_item_vectors(titles) - model.items.ids.weight.mean(0), added)


def test_it_is_evaluated_like_any_other_model(build, dataset):
    model = build()
    train_data, test = dataset.get_split_data("train"), dataset.get_split_data("test")
    metrics = EvalDataLoader(test, train_data, device="cpu", k=(N_ITEMS,)).evaluate(model)
    assert metrics[f"recall@{N_ITEMS}"] == 1.0


def test_a_run_folder_of_it_loads_with_its_texts_and_weights(build, tmp_path):
    if "GPT2RecommenderEnhanced" not in saved_model.MODELS:
        pytest.skip("saved_model.MODELS does not know GPT2RecommenderEnhanced yet")
    model = build()
    train(model)
    folder = RunFolder.create(tmp_path / "run")
    folder.write_json("model.json", {"model": "GPT2RecommenderEnhanced", "arguments": model.arguments})
    Checkpoints(folder.checkpoints, keep=1).save_best(model, 1)
    loaded = load(folder.path)
    assert not loaded.training
    torch.testing.assert_close(all_scores(loaded), all_scores(model), atol=1e-5, rtol=1e-5)
    assert loaded.recommend(0, k=5) == model.recommend(0, k=5)


@pytest.mark.gpu
@pytest.mark.parametrize("use_cache", [True, False])
def test_scores_are_the_same_on_the_gpu(build, use_cache):
    model = build(use_cache=use_cache)
    expected = all_scores(model)
    model.cuda()
    model.use_cache = use_cache  # encodes anew, there
    with torch.no_grad():
        on_gpu = scorer(model)(torch.arange(N_USERS, device="cuda"))
    torch.testing.assert_close(on_gpu.cpu(), expected, atol=1e-3, rtol=1e-3)
    assert model.recommend(0, k=3) == on_gpu[0].topk(3).indices.tolist()


def test_no_known_item_is_recommended_however_many_are_asked_for(build):
    model = build()
    known = torch.arange(N_ITEMS - 2)
    assert len(model.recommend(0, k=100, known=known)) == 2
