"""The recommender that needs nothing but ids."""

from pathlib import Path

from torch import Tensor, nn

from brim.workloads.recommender.loaders import Triples
from brim.workloads.recommender.losses import LossName, example_triples, negatives_for, triples_loss
from brim.workloads.recommender.serving.pretrained import read_pretrained, save_pretrained
from brim.workloads.recommender.serving.rankings import recommend


class BPR(nn.Module):
    """Matrix factorisation with the pairwise loss of Rendle et al. (2009): known items should outscore unknown ones.

    Args:
        n_users: people, with ids from 0.
        n_items: items, with ids from 0.
        embed_dim: width of the vectors.
        loss: ``"bpr"``, or a softmax over all items (``"softmax"``) or over drawn ones (``"sampled_softmax"``, with a
            loader that draws several negatives).
    """

    def __init__(self, n_users: int, n_items: int, embed_dim: int = 64, loss: LossName = "bpr") -> None:
        super().__init__()
        self.arguments = {"n_users": n_users, "n_items": n_items, "embed_dim": embed_dim, "loss": loss}
        self.loss, self._negatives = loss, negatives_for(loss)
        self.users = nn.Embedding(n_users, embed_dim)
        self.items = nn.Embedding(n_items, embed_dim)
        nn.init.xavier_normal_(self.users.weight)
        nn.init.xavier_normal_(self.items.weight)

    def calculate_loss(self, batch: Triples) -> Tensor:
        return triples_loss(self.loss, batch, self.user_vectors(batch[0]), self._item_rows)

    def example_batch(self, size: int) -> Triples:
        """A batch such as training sees, for forecasts."""
        return example_triples(len(self.users.weight), len(self.items.weight), size, self._negatives)

    def user_vectors(self, users: Tensor) -> Tensor:
        # index_select, because its backward pass is twice as fast as that of an embedding's lookup.
        return self.users.weight.index_select(0, users)

    def item_vectors(self) -> Tensor:
        return self.items.weight

    def _item_rows(self, items: Tensor | None) -> Tensor:
        return self.items.weight if items is None else self.items.weight.index_select(0, items)

    recommend = recommend
    save_pretrained = save_pretrained

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "BPR":
        """The model that :meth:`save_pretrained` wrote, in eval mode on the CPU."""
        return read_pretrained(cls, folder)
