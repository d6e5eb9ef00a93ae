"""The recommender that knows a person by what they watched."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from brim.errors import ConfigError
from brim.workloads.recommender.encoders.pooling import AUTO
from brim.workloads.recommender.gpt2_recommender import whiten
from brim.workloads.recommender.history.history_loader import Histories
from brim.workloads.recommender.history.item_encodings import item_encodings
from brim.workloads.recommender.history.user_rows import UserRows
from brim.workloads.recommender.interactions import Interactions
from brim.workloads.recommender.losses import hidden_items_loss
from brim.workloads.recommender.serving.pretrained import read_pretrained, save_pretrained
from brim.workloads.recommender.serving.rankings import recommend
from brim.workloads.recommender.text_encoder import TINY, TextEncoder

ID_SCALE, TEXT_SCALE = 0.01, 0.05  # of the first vectors; what counts is their ratio, since vectors are normalised
ID_SHARE = 0.2  # of the scale above, where there are texts: an item that is hardly ever watched is where its text is
HABITS = ("log of how many", "mean log share")  # of what a person watched; their temperature depends on these


class HistoryRecommender(nn.Module):
    """An item's direction is an ID embedding plus a projection of its text; a person's is the sum of what they watched.

    The score is the cosine of the two directions times a temperature, plus a bias of the item that starts as
    ``popularity`` times the logarithm of its share of the training data. The temperature depends on how many items a
    person watched and how popular those are: whoever watches what few do is ranked more by taste than by popularity.
    How much, is learnt. The model is trained to name the items of a history that were hidden from it, by a softmax over
    all items (:class:`HistoryLoader` hides them). There are no parameters of users, so somebody new is recommended to
    as well as anybody, and an item without a training pair is where its text puts it.

    The constructor makes an empty model of the right shapes; :meth:`of` makes one for training.

    Args:
        n_users: people, with ids from 0.
        n_items: items, with ids from 0.
        embed_dim: width of the vectors.
        n_pairs: how many pairs people are known by.
        text_dim: dimensions of the items' encodings that are read; 0 for ids alone.
        encoding_dim: width of those encodings before they are whitened.
        temperature: how far a cosine can move the score of an average person.
        gpt2: the encoder that new texts are read by.
        pooling: how it makes one vector of a text's tokens.
    """

    history_items: Tensor
    history_counts: Tensor
    texts: Tensor
    mean: Tensor
    whitening: Tensor
    is_known: Tensor
    log_share: Tensor
    habit_mean: Tensor
    habit_spread: Tensor

    def __init__(
        self,
        n_users: int,
        n_items: int,
        embed_dim: int = 128,
        n_pairs: int = 0,
        text_dim: int = 0,
        encoding_dim: int = 0,
        temperature: float = 6.0,
        gpt2: str = TINY,
        pooling: str = AUTO,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ConfigError(f"temperature={temperature} must be above 0")
        self.arguments = {
            "n_users": n_users, "n_items": n_items, "embed_dim": embed_dim, "n_pairs": n_pairs, "text_dim": text_dim,
            "encoding_dim": encoding_dim, "temperature": temperature, "gpt2": gpt2, "pooling": pooling,
        }  # fmt: skip
        self.n_users, self.n_items, self.temperature = n_users, n_items, temperature
        self.gpt2, self.pooling = gpt2, pooling
        self.ids = nn.Embedding(n_items, embed_dim)
        nn.init.normal_(self.ids.weight, std=ID_SCALE)
        self.projection = nn.Linear(text_dim, embed_dim, bias=False) if text_dim else None
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=TEXT_SCALE)
        self.bias = nn.Parameter(torch.zeros(n_items))
        self.habit_slopes = nn.Parameter(torch.zeros(len(HABITS)))
        # In the checkpoint, so that a trained model needs neither the data nor the encoder to rank.
        self.register_buffer("history_items", torch.zeros(n_pairs, dtype=torch.int32))
        self.register_buffer("history_counts", torch.zeros(n_users, dtype=torch.int32))
        self.register_buffer("texts", torch.zeros(n_items, text_dim))
        self.register_buffer("mean", torch.zeros(encoding_dim))
        self.register_buffer("whitening", torch.zeros(encoding_dim, text_dim))
        self.register_buffer("is_known", torch.ones(n_items, dtype=torch.bool))
        self.register_buffer("log_share", torch.zeros(n_items))
        self.register_buffer("habit_mean", torch.zeros(len(HABITS)))
        self.register_buffer("habit_spread", torch.ones(len(HABITS)))

    @classmethod
    def of(
        cls,
        train_data: Interactions,
        dataset: Any = None,
        embed_dim: int = 128,
        temperature: float = 6.0,
        popularity: float = 1.0,
        gpt2: str = TINY,
        control: str | None = None,
        encodings: Tensor | None = None,
        text_dim: int = 128,
        pooling: str = AUTO,
        encodings_dir: str | Path | None = AUTO,
    ) -> "HistoryRecommender":
        """The model to be trained on ``train_data``.

        Args:
            train_data: who watched what.
            dataset: has ``item_texts()``, or is a mapping with the list ``items``.
            embed_dim: width of the vectors.
            temperature: how far a cosine can move a score.
            popularity: how much the logarithm of an item's share of the pairs counts at first.
            gpt2: the encoder: ``"tiny"``, a local folder or a hub name.
            control: ``"ids"`` reads no text, ``"random"`` reads random vectors in its place.
            encodings: of the items' texts, where they are there already.
            text_dim: how many dimensions of the whitened encodings are read, at most.
            pooling: how one vector is made of a text's tokens: ``"auto"``, ``"mean"``, ``"last"`` or ``"cls"``.
            encodings_dir: where encodings are kept on disk for other runs and ranks, and for
                :class:`GPT2RecommenderEnhanced`; ``"auto"`` for ``~/.cache/brim/encodings`` (and nothing for
                ``"tiny"``), None for nowhere.

        >>> from brim.workloads.recommender import EmbeddedDataset
        >>> dataset = EmbeddedDataset(n_users=50, n_items=40)
        >>> model = HistoryRecommender.of(dataset.get_split_data("train"), dataset, embed_dim=16)
        >>> model.user_vectors(torch.tensor([3, 4])).shape
        torch.Size([2, 17])
        """
        rows, sizes = UserRows.of(train_data), dict[str, int]()
        texts: _ItemTexts | None = None
        if control != "ids":
            encodings = item_encodings(
                train_data.n_items, dataset, gpt2, control, encodings, pooling=pooling, encodings_dir=encodings_dir
            )
            texts = _ItemTexts.of(encodings, text_dim)
            sizes = {"text_dim": texts.whitening.shape[1], "encoding_dim": texts.whitening.shape[0]}
        model = cls(
            train_data.n_users, train_data.n_items, embed_dim, len(rows.items), temperature=temperature, gpt2=gpt2,
            pooling=pooling, **sizes,
        )  # fmt: skip
        model._take_histories(rows, popularity)
        if texts is not None:
            model._take_texts(texts)
        return model

    @torch.no_grad()
    def _take_histories(self, rows: UserRows, popularity: float) -> None:
        """Who watched what, and what follows from that: shares of items, and people's habits."""
        occurs = torch.bincount(rows.items, minlength=self.n_items)
        self.history_items.copy_(rows.items)
        self.history_counts.copy_(rows.counts)
        self.is_known.copy_(occurs > 0)
        # One more than there are: the logarithm of none is no number.
        self.log_share.copy_(torch.log((occurs + 1) / (occurs + 1).sum()))
        self.bias.copy_(popularity * self.log_share)
        habits = self._habits_of_all()
        self.habit_mean.copy_(habits.mean(0))
        self.habit_spread.copy_(habits.std(0, correction=0).clamp(min=1e-3))

    @torch.no_grad()
    def _take_texts(self, texts: "_ItemTexts") -> None:
        self.texts.copy_(texts.vectors)
        self.mean.copy_(texts.mean)
        self.whitening.copy_(texts.whitening)
        self.ids.weight.mul_(ID_SHARE)

    def calculate_loss(self, batch: Histories) -> Tensor:
        directions = self._directions()
        scores = self._people(batch.seen, directions) @ self._items(directions).T
        candidates = self.is_known & ~batch.seen
        # One constant for every person, not how many of theirs are hidden: who watched much counts more.
        return hidden_items_loss(scores, candidates, batch.hidden) / max(1.0, len(self.history_items) / self.n_users)

    def example_batch(self, size: int) -> Histories:
        """A batch such as training sees, for forecasts."""
        seen = torch.rand(size, self.n_items) < 0.02
        return Histories(seen, (torch.rand(size, self.n_items) < 0.02) & ~seen)

    def item_vectors(self) -> Tensor:
        """Directions, and the bias as one dimension more."""
        return self._items(self._directions())

    def user_vectors(self, users: Tensor) -> Tensor:
        return self.watcher_vectors(self._rows().matrix_of(users))

    def watcher_vectors(self, watched: Tensor) -> Tensor:
        """The vectors of anybody, from a matrix that is True for each item they watched."""
        return self._people(watched, self._directions())

    def new_item_vectors(self, texts: list[str]) -> Tensor:
        """The vectors of items of which there are only texts, as popular as the least popular one."""
        if self.projection is None:
            raise ConfigError("this model was trained without texts, so it knows nothing of new items")
        encoder = TextEncoder(self.gpt2, self.pooling)
        encodings = encoder.encode_all(encoder.tokenize(texts)).to(self.mean.device)
        directions = normalize(self.projection(normalize((encodings - self.mean) @ self.whitening, dim=1)), dim=1)
        return torch.cat([directions, self.bias.min().expand(len(texts), 1)], 1)

    recommend = recommend
    save_pretrained = save_pretrained

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "HistoryRecommender":
        """The model that :meth:`save_pretrained` wrote, in eval mode on the CPU."""
        return read_pretrained(cls, folder)

    def _directions(self) -> Tensor:
        if self.projection is None:
            return self.ids.weight
        directions: Tensor = self.ids.weight * self.is_known[:, None] + self.projection(self.texts)
        return directions

    def _items(self, directions: Tensor) -> Tensor:
        return torch.cat([normalize(directions, dim=1), self.bias[:, None]], 1)

    def _people(self, watched: Tensor, directions: Tensor) -> Tensor:
        """The sum of what each watched as a direction times temperature, and a 1 that the items' bias is taken with."""
        watched = watched.to(directions.dtype)
        many = watched.sum(1).clamp(min=1)
        habits = _habits(many, watched @ self.log_share / many)
        temperature = self.temperature * ((habits - self.habit_mean) / self.habit_spread @ self.habit_slopes).exp()
        people = temperature[:, None] * normalize(watched @ directions, dim=1)
        return torch.cat([people, torch.ones_like(people[:, :1])], 1)

    def _rows(self) -> UserRows:
        return UserRows.laid_out(self.history_items, self.history_counts, self.n_items)

    def _habits_of_all(self) -> Tensor:
        """Those of whoever watched anything."""
        rows = self._rows()
        people = torch.nonzero(rows.counts).flatten()
        pairs = rows.pairs_of(people)
        shares = torch.zeros(len(people)).index_add_(0, pairs.rows, self.log_share[pairs.items])
        many = rows.counts[people].float()
        return _habits(many, shares / many)


def _habits(many: Tensor, mean_log_share: Tensor) -> Tensor:
    return torch.stack([many.log(), mean_log_share], 1)


class _ItemTexts(NamedTuple):
    """Whitened encodings of the items' texts, and what whitens those of new ones."""

    vectors: Tensor
    mean: Tensor
    whitening: Tensor

    @classmethod
    def of(cls, encodings: Tensor, most: int) -> "_ItemTexts":
        mean, whitening = whiten(encodings, most)
        return cls(normalize((encodings - mean) @ whitening, dim=1), mean, whitening)
