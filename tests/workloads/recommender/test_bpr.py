import math

import pytest
import torch

from brim.workloads.recommender import BPR, EmbeddedDataset, TrainDataLoader, Triples
from brim.workloads.recommender.loaders import scorer


def plain_score(model, user, item):
    return sum(u * i for u, i in zip(model.users.weight[user].tolist(), model.items.weight[item].tolist(), strict=True))


def test_the_loss_is_the_mean_over_triples_of_how_far_the_known_item_outscores_the_other():
    model = BPR(n_users=4, n_items=6, embed_dim=3)
    triples = [(0, 1, 2), (3, 5, 0), (0, 0, 5)]
    margins = [plain_score(model, u, known) - plain_score(model, u, other) for u, known, other in triples]
    expected = sum(math.log1p(math.exp(-margin)) for margin in margins) / len(margins)
    loss = model.calculate_loss(Triples(*torch.tensor(triples).T))
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_loss_stays_finite_when_the_other_item_outscores_by_far():
    model = BPR(n_users=1, n_items=2, embed_dim=1)
    torch.nn.init.constant_(model.users.weight, 100.0)
    with torch.no_grad():
        model.items.weight.copy_(torch.tensor([[0.0], [100.0]]))
    assert model.calculate_loss(Triples(*torch.tensor([[0], [0], [1]]))).item() == pytest.approx(1e4)


def test_its_vectors_give_the_scores_of_every_item_for_each_user():
    model = BPR(n_users=4, n_items=6, embed_dim=3)
    expected = [[plain_score(model, user, item) for item in range(6)] for user in (2, 0, 2)]
    torch.testing.assert_close(scorer(model)(torch.tensor([2, 0, 2])), torch.tensor(expected))


def test_the_arguments_build_a_model_of_the_same_shape():
    model = BPR(n_users=4, n_items=6, embed_dim=3)
    again = BPR(**model.arguments)
    assert {name: value.shape for name, value in again.state_dict().items()} == {
        name: value.shape for name, value in model.state_dict().items()
    }
    again.load_state_dict(model.state_dict())
    users = torch.arange(4)
    assert torch.equal(scorer(again)(users), scorer(model)(users))


def test_training_lowers_the_loss_below_chance():
    torch.manual_seed(0)
    data = EmbeddedDataset(n_users=40, n_items=60).get_split_data("train")
    model, loader = BPR(40, 60, embed_dim=16), TrainDataLoader(data, batch_size=256, device="cpu")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(5):
        for batch in loader:
            optimizer.zero_grad()
            model.calculate_loss(batch).backward()
            optimizer.step()
    with torch.no_grad():
        losses = [model.calculate_loss(batch).item() for batch in loader]
    assert max(losses) < 0.8 * math.log(2)  # guessing costs log 2


@pytest.mark.gpu
def test_the_loss_is_the_same_on_the_gpu():
    model, triples = BPR(4, 6, embed_dim=3), Triples(*torch.tensor([[0, 1, 2], [3, 5, 0]]).T)
    expected = model.calculate_loss(triples).item()
    on_gpu = model.cuda().calculate_loss(Triples(*(part.cuda() for part in triples)))
    assert on_gpu.item() == pytest.approx(expected, rel=1e-5)
