"""The recommender whose weights are solved for."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from brim.errors import ConfigError
from brim.workloads.recommender.encoders.pooling import AUTO
from brim.workloads.recommender.history.item_encodings import item_encodings
from brim.workloads.recommender.history.user_rows import UserRows
from brim.workloads.recommender.interactions import Interactions
from brim.workloads.recommender.linear.linear_settings import LinearSettings
from brim.workloads.recommender.serving.pretrained import read_pretrained, save_pretrained
from brim.workloads.recommender.serving.rankings import recommend
from brim.workloads.recommender.text_encoder import TINY, TextEncoder

MOST_ITEMS = 20_000  # a matrix of items by items in float64 is inverted
PEOPLE_AT_ONCE = 1024
COUNT_OFFSET = 10.0  # added to an item's count before scores are divided by a power of it


class LinearRecommender(nn.Module):
    """Item-item weights by ridge regression with a zero diagonal, where texts count as further people.

    With G how often items occur together (people weighted), K how alike their texts are (the squared cosine of centred
    encodings) and P the inverse of G + text_weight K + diagonal, the weights are B = -P / diag(P) off the diagonal; a
    person's scores are the sum of the rows of B of what they watched, and are divided by a small power of the items'
    counts. Without K, denoising, user_power and discount this is EASE (Steck, 2019); the diagonal is that of EDLAE
    (Steck, 2020), and side information as further rows is that of CEASE (Jeunen et al., 2020). An item with few pairs
    has little in G, so K decides; one with many is hardly moved by it.

    Nothing is drawn at random: the same data gives the same weights. The constructor makes an empty model of the right
    shapes; :meth:`of` makes one that ranks.

    Args:
        n_users: people, with ids from 0.
        n_items: items, with ids from 0.
        n_pairs: how many pairs people are known by.
        encoding_dim: width of the items' encodings; 0 for ids alone.
        text_weight: that the weights were solved with.
        discount: that scores are divided with.
        gpt2: the encoder that new texts are read by.
        pooling: how it makes one vector of a text's tokens.
    """

    history_items: Tensor
    history_counts: Tensor
    inverse_diagonal: Tensor
    occurs: Tensor
    texts: Tensor
    mean: Tensor

    def __init__(
        self,
        n_users: int,
        n_items: int,
        n_pairs: int = 0,
        encoding_dim: int = 0,
        text_weight: float = 0.0,
        discount: float = 0.0,
        gpt2: str = TINY,
        pooling: str = AUTO,
    ) -> None:
        super().__init__()
        self.arguments = {
            "n_users": n_users, "n_items": n_items, "n_pairs": n_pairs, "encoding_dim": encoding_dim,
            "text_weight": text_weight, "discount": discount, "gpt2": gpt2, "pooling": pooling,
        }  # fmt: skip
        self.n_users, self.n_items, self.text_weight, self.discount = n_users, n_items, text_weight, discount
        self.gpt2, self.pooling = gpt2, pooling
        self.weights = nn.Parameter(torch.zeros(n_items, n_items), requires_grad=False)
        self.register_buffer("inverse_diagonal", torch.zeros(n_items))
        self.register_buffer("occurs", torch.zeros(n_items))
        self.register_buffer("history_items", torch.zeros(n_pairs, dtype=torch.int32))
        self.register_buffer("history_counts", torch.zeros(n_users, dtype=torch.int32))
        self.register_buffer("texts", torch.zeros(n_items, encoding_dim))
        self.register_buffer("mean", torch.zeros(encoding_dim))

    @classmethod
    def of(
        cls,
        train_data: Interactions,
        dataset: Any = None,
        settings: LinearSettings | None = None,
        gpt2: str = TINY,
        control: str | None = None,
        encodings: Tensor | None = None,
        pooling: str = AUTO,
        encodings_dir: str | Path | None = AUTO,
        device: str | torch.device = "cpu",
    ) -> "LinearRecommender":
        """The model that ``train_data`` gives, solved on ``device``, where it stays.

        Args:
            train_data: who watched what.
            dataset: has ``item_texts()``, or is a mapping with the list ``items``.
            settings: what decides the weights.
            gpt2: the encoder: ``"tiny"``, a local folder or a hub name.
            control: ``"ids"`` reads no text, ``"random"`` reads random vectors in its place.
            encodings: of the items' texts, where they are there already.
            pooling: how one vector is made of a text's tokens: ``"auto"``, ``"mean"``, ``"last"`` or ``"cls"``.
            encodings_dir: where encodings are kept on disk; ``"auto"`` for the usual folder, None for nowhere.
            device: where to solve.

        Raises:
            ConfigError: where there are more than 20,000 items.

        >>> from brim.workloads.recommender import EmbeddedDataset
        >>> dataset = EmbeddedDataset(n_users=50, n_items=40)
        >>> model = LinearRecommender.of(dataset.get_split_data("train"), dataset)
        >>> len(model.recommend(3, k=5))
        5
        """
        if train_data.n_items > MOST_ITEMS:
            raise ConfigError(
                f"the linear recommender inverts a matrix of items by items, and {train_data.n_items:,} items are more "
                f"than {MOST_ITEMS:,}; take the one of histories: model.name=history, --kind history"
            )
        settings, rows = settings or LinearSettings(), UserRows.of(train_data)
        if control != "ids":
            encodings = item_encodings(
                train_data.n_items, dataset, gpt2, control, encodings, pooling=pooling, encodings_dir=encodings_dir
            )
        width = 0 if control == "ids" or encodings is None else encodings.shape[1]
        model = cls(
            train_data.n_users, train_data.n_items, len(rows.items), width, settings.text_weight, settings.discount,
            gpt2, pooling,
        )  # fmt: skip
        model.history_items.copy_(rows.items)
        model.history_counts.copy_(rows.counts)
        model.occurs.copy_(torch.bincount(rows.items, minlength=train_data.n_items))
        if width and encodings is not None:
            model.mean.copy_(encodings.mean(0))
            model.texts.copy_(model._centred(encodings))
        model.to(device)
        model._solve(settings)
        return model

    @torch.no_grad()
    def _solve(self, settings: LinearSettings) -> None:
        matrix = self._co_occurrences(settings.user_power).double()
        penalty = settings.regularisation + settings.denoising * matrix.diagonal()
        if len(self.mean):
            matrix += settings.text_weight * self._similarity(self.texts)
        matrix.diagonal().add_(penalty)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
        self.inverse_diagonal.copy_(inverse.diagonal())
        self.weights.copy_(-inverse / inverse.diagonal())
        self.weights.fill_diagonal_(0.0)

    def _co_occurrences(self, user_power: float) -> Tensor:
        """How often items occur together, people who watched much counting less."""
        counts = self.history_counts.to(self.weights.dtype).clamp(min=1)
        shares = (counts / counts.mean()) ** (-user_power / 2)
        together = torch.zeros_like(self.weights)
        for users in torch.split(torch.arange(self.n_users, device=counts.device), PEOPLE_AT_ONCE):
            watched = self._watched(users) * shares[users, None]
            together.addmm_(watched.T, watched)
        return together

    def _centred(self, encodings: Tensor) -> Tensor:
        return normalize(encodings - self.mean, dim=1)

    def _similarity(self, texts: Tensor) -> Tensor:
        """The squared cosines of items' texts with others: likeness of opposites is none that matters here."""
        return (self.texts @ texts.T).square()

    def item_vectors(self) -> Tensor:
        return (self.weights * self._scale(self.occurs)).T

    def user_vectors(self, users: Tensor) -> Tensor:
        """A 1 for each item that was watched; somebody of whom nothing is known is the mean of all."""
        nothing = (self.history_counts[users] == 0)[:, None]
        return torch.where(nothing, self.occurs / max(1, self.n_users), self._watched(users))

    def _watched(self, users: Tensor) -> Tensor:
        rows = UserRows.laid_out(self.history_items, self.history_counts, self.n_items)
        return rows.matrix_of(users, self.weights.dtype)

    def watcher_vectors(self, watched: Tensor) -> Tensor:
        """The vectors of anybody, from a matrix that is True for each item they watched."""
        return watched.to(self.weights.dtype)

    def new_item_vectors(self, texts: list[str]) -> Tensor:
        """The vectors of items of which there are only texts: what solving with them, unwatched, would give."""
        if not len(self.mean):
            raise ConfigError("this model was made without texts, so it knows nothing of new items")
        encoder = TextEncoder(self.gpt2, self.pooling)
        return self.encoded_item_vectors(encoder.encode_all(encoder.tokenize(texts)).to(self.mean.device))

    def encoded_item_vectors(self, encodings: Tensor) -> Tensor:
        """The same of encodings that are there already."""
        # P from B and diag(P); the column of an item without pairs is then P times its likenesses.
        alike = self.text_weight * self._similarity(self._centred(encodings)) * self.inverse_diagonal[:, None]
        columns = alike - self.weights @ alike
        return (columns * self._scale(torch.zeros_like(self.occurs[:1]))).T

    def _scale(self, occurs: Tensor) -> Tensor:
        return (occurs + COUNT_OFFSET) ** -self.discount

    recommend = recommend
    save_pretrained = save_pretrained

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "LinearRecommender":
        """The model that :meth:`save_pretrained` wrote, in eval mode on the CPU."""
        return read_pretrained(cls, folder)
