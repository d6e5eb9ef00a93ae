"""What is measured of a model that ranks: on all items, and on those that are rated less."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from brim.workloads.recommender.interactions import Interactions
from brim.workloads.recommender.loaders import EvalDataLoader

NDCG, RECALL = "ndcg@10", "recall@20"
RARE = "rare"  # the recall of items of the less-rated half, to be found among all


class Judge:
    """The splits of a data set, and what is measured of a model on them.

    The validation split chooses, with training items left out; the test split is told, with training and validation
    items left out.

    Args:
        train: what models are trained on.
        validation: what chooses among them.
        test: what is told of the chosen ones.
        device: where scores are computed.
    """

    def __init__(
        self, train: Interactions, validation: Interactions, test: Interactions, device: str | torch.device
    ) -> None:
        self.train, self.device = train, device
        self.validation = EvalDataLoader(validation, train, device=device)
        self.test = EvalDataLoader(test, train, device=device, also_mask=validation)
        rare = only_items(test, less_rated_half(train))
        self.rare = EvalDataLoader(rare, train, device=device, also_mask=validation) if len(rare) else None

    def choose_by(self, model: nn.Module) -> float:
        """How well it ranks the validation split."""
        return self.validation.evaluate(model.to(self.device).eval())[NDCG]

    def slices(self, model: nn.Module) -> dict[str, Tensor]:
        """Metrics of each user on the test split; nothing of the less-rated half where nobody has an item of it."""
        model = model.to(self.device).eval()
        everything = self.test.evaluate_each(model)
        found = {NDCG: everything[NDCG], RECALL: everything[RECALL]}
        return found if self.rare is None else {**found, RARE: self.rare.evaluate_each(model)[RECALL]}


def less_rated_half(train_data: Interactions) -> Tensor:
    """The ids of half of all items: those with the fewest training pairs, of equals the lower id first."""
    counts = torch.bincount(train_data.items, minlength=train_data.n_items)
    return torch.argsort(counts, stable=True)[: train_data.n_items // 2]


def only_items(data: Interactions, items: Tensor) -> Interactions:
    """The pairs with one of ``items``; as evaluation data, these are what there is to find among all items."""
    wanted = torch.zeros(data.n_items, dtype=torch.bool)
    wanted[items] = True
    kept = wanted[data.items]
    return replace(data, users=data.users[kept], items=data.items[kept])
