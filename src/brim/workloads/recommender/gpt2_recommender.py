"""The recommender that reads: GPT-2 encodings of users' and items' texts beside ID embeddings."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brim.errors import ConfigError, to_stderr
from brim.workloads.recommender.encoders.kept_encodings import KeptEncodings, encodings_folder
from brim.workloads.recommender.encoders.loading import from_parts, save_parts
from brim.workloads.recommender.encoders.lora import LoraLike
from brim.workloads.recommender.encoders.pooling import AUTO
from brim.workloads.recommender.encoders.texts_read import TextsRead
from brim.workloads.recommender.loaders import Triples
from brim.workloads.recommender.losses import LossName, example_triples, negatives_for, triples_loss
from brim.workloads.recommender.serving.pretrained import fill, read_arguments, save_pretrained
from brim.workloads.recommender.serving.rankings import rank_items, rank_users
from brim.workloads.recommender.text_encoder import TINY, TextEncoder, Tokens

ENCODER = "encoder"  # the folder with its shape and tokenizer, beside the weights of a saved model
SAMPLE = 512  # texts whose encodings are looked at to whiten them all
LONGEST = 3.0  # of a new text's whitened encoding, where those of training have a length of 1 on average and hardly 2
ROUNDING = 1e-6  # of the size of encodings: what differs by less is the same, but for float32's rounding


def whiten(encodings: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Centre and matrix that make encodings uncorrelated and, on average, of length 1, in at most ``most`` dimensions.

    Pooled hidden states share a large common part: a tower that reads them as they come ranks worse than no text at
    all (``benchmarks/text_helps.py``). Centring cures that; making them uncorrelated as well did not change the result
    measurably, and spares the tower from depending on an encoder's scale. Texts that are all the same say nothing, and
    the matrix is zero: divided by what rounding leaves of them, another text would drown the ids.
    """
    mean = encodings.mean(0)
    _, sizes, directions = torch.linalg.svd(encodings - mean, full_matrices=False)
    kept = max(1, min(most, int((sizes > 1e-3 * sizes[0]).sum())))
    spread = sizes[:kept] / len(encodings) ** 0.5  # standard deviation along each direction
    varies = spread > ROUNDING * encodings.norm(dim=1).mean()
    return mean, torch.where(varies, directions[:kept].T / (spread.clamp(min=1e-30) * kept**0.5), 0.0)


class TextTower(nn.Module):
    """One side of the model: ID embeddings, the texts' tokens, and the MLP that turns an encoding into a vector."""

    mean: Tensor
    whitening: Tensor
    text_of: Tensor
    token_ids: Tensor
    token_lengths: Tensor
    encodings: Tensor | None  # of each distinct text, whitened
    cache_buffers = ("encodings",)  # what a memory forecast calls the cache

    def __init__(self, encoder: TextEncoder, texts: list[str], embed_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.ids = nn.Embedding(len(texts), embed_dim)
        nn.init.xavier_normal_(self.ids.weight)
        distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        tokens = encoder.tokenize(list(distinct))
        text_of = torch.tensor([distinct[text] for text in texts])
        self.register_buffer("text_of", text_of, persistent=False)  # many people share one text
        self.register_buffer("token_ids", tokens.ids, persistent=False)
        self.register_buffer("token_lengths", tokens.lengths, persistent=False)
        self.register_buffer("encodings", None, persistent=False)
        sample = torch.linspace(0, len(texts) - 1, min(len(texts), SAMPLE)).long()
        seen, place = torch.unique(text_of[sample], return_inverse=True)
        mean, whitening = whiten(encoder.encode_all(tokens[seen])[place], embed_dim)
        self.register_buffer("mean", mean)
        self.register_buffer("whitening", whitening)
        out = nn.Linear(hidden_dim, embed_dim, bias=False)  # a bias of items would cancel in positive minus negative
        nn.init.normal_(out.weight, std=0.02)  # begins as quiet as the ids
        self.mlp = nn.Sequential(nn.Linear(whitening.shape[1], hidden_dim), nn.GELU(), out)

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.token_ids, self.token_lengths)

    def whitened(self, encodings: Tensor) -> Tensor:
        """Encodings as the MLP reads them."""
        return (encodings - self.mean) @ self.whitening

    def keep(self, encodings: Tensor) -> Tensor:
        """Whiten the encodings of all texts once, for all steps: nothing before the MLP learns, and they are narrower.

        In full precision, whatever the step that needs them first computes in.
        """
        with torch.no_grad(), torch.autocast(encodings.device.type, enabled=False):
            self.encodings = self.whitened(encodings)
        return self.encodings

    def text_vectors(self, whitened: Tensor) -> Tensor:
        """What texts add to ids."""
        vectors: Tensor = self.mlp(whitened)
        return vectors


class GPT2RecommenderEnhanced(nn.Module):
    """A user's and an item's vector is an ID embedding plus an MLP of the text's encoding; their score is a product.

    Args:
        n_users: people, with ids from 0.
        n_items: items, with ids from 0.
        embed_dim: width of the vectors.
        dataset: has ``user_texts()`` and ``item_texts()``, or is a mapping with the lists ``users`` and ``items``.
        use_cache: keep the encodings, computed once at first use, on the device; without it every step encodes the
            texts of its batch, each distinct one once. It can be switched on a live model.
        freeze_gpt2: False trains the encoder too (with ``lora`` its adapters alone), which needs ``use_cache=False``:
            a kept encoding cannot learn.
        gpt2: the encoder: ``"tiny"``, a local folder, a GGUF file or a hub name, of GPT-2 or any other model of
            transformers that reads texts.
        hidden_dim: width of the MLP.
        pooling: how one vector is made of a text's tokens: ``"auto"``, ``"mean"``, ``"last"`` or ``"cls"``.
        lora: a rank, or arguments of ``peft.LoraConfig``: adapters beside the encoder's weights.
        encodings_dir: where ``use_cache`` keeps encodings on disk for other runs and ranks; ``"auto"`` for
            ``~/.cache/brim/encodings`` (and nothing for ``"tiny"``), None for nowhere.
        tokens_at_once: where the encoder is trained, so many tokens are read at once and read again in the backward
            pass: the memory of a step no longer grows with the batch, and its gradients are the same.
        loss: ``"bpr"``, or a softmax over all items (``"softmax"``) or over drawn ones (``"sampled_softmax"``, with a
            loader that draws several negatives).
        encoder: one that is there already, instead of what ``gpt2``, ``pooling`` and ``lora`` describe.
    """

    def __init__(
        self,
        n_users: int,
        n_items: int,
        embed_dim: int = 64,
        dataset: Any = None,
        use_cache: bool = True,
        freeze_gpt2: bool = True,
        gpt2: str = TINY,
        hidden_dim: int = 128,
        pooling: str = AUTO,
        lora: LoraLike | None = None,
        encodings_dir: str | Path | None = AUTO,
        tokens_at_once: int | None = None,
        loss: LossName = "bpr",
        encoder: TextEncoder | None = None,
    ) -> None:
        super().__init__()
        texts = _texts(dataset, n_users, n_items)
        self.arguments = {
            "n_users": n_users, "n_items": n_items, "embed_dim": embed_dim, "dataset": texts, "use_cache": use_cache,
            "freeze_gpt2": freeze_gpt2, "gpt2": gpt2, "hidden_dim": hidden_dim, "pooling": pooling, "lora": lora,
            "encodings_dir": None if encodings_dir is None else str(encodings_dir), "loss": loss,
            "tokens_at_once": tokens_at_once,
        }  # fmt: skip
        self.loss, self._negatives = loss, negatives_for(loss)
        self.encoder = encoder or TextEncoder(gpt2, pooling, lora)
        self.texts_read = TextsRead()
        self._tokens_at_once = tokens_at_once
        self._encodings_dir = encodings_folder(encodings_dir, gpt2)
        self.users = TextTower(self.encoder, texts["users"], embed_dim, hidden_dim)
        self.items = TextTower(self.encoder, texts["items"], embed_dim, hidden_dim)
        self._use_cache, self._freeze_gpt2 = False, True
        self.freeze_gpt2, self.use_cache = freeze_gpt2, use_cache
        self.register_load_state_dict_post_hook(_forget)  # type: ignore[no-untyped-call]

    @property
    def use_cache(self) -> bool:
        return self._use_cache

    @use_cache.setter
    def use_cache(self, wanted: bool) -> None:
        _check_cache(wanted, self._freeze_gpt2)
        self._use_cache = wanted
        self.forget_encodings()

    def forget_encodings(self) -> None:
        """Encode anew at next use: GPT-2 may have learnt, or been loaded, meanwhile."""
        self.users.encodings = self.items.encodings = None

    @property
    def freeze_gpt2(self) -> bool:
        return self._freeze_gpt2

    @freeze_gpt2.setter
    def freeze_gpt2(self, wanted: bool) -> None:
        _check_cache(self._use_cache, wanted)
        self._freeze_gpt2 = wanted
        self.encoder.freeze(wanted)
        self.encoder.train(self.training and not wanted)

    def train(self, mode: bool = True) -> "GPT2RecommenderEnhanced":
        super().train(mode)
        self.encoder.train(mode and not self._freeze_gpt2)  # a frozen encoder has no dropout
        return self

    def calculate_loss(self, batch: Triples) -> Tensor:
        def items_of(rows: Tensor | None) -> Tensor:
            return self._vectors(self.items, rows)

        return triples_loss(self.loss, batch, self.user_vectors(batch[0]), items_of)

    def example_batch(self, size: int) -> Triples:
        """A batch such as training sees, for forecasts."""
        return example_triples(len(self.users.text_of), len(self.items.text_of), size, self._negatives)

    def user_vectors(self, users: Tensor) -> Tensor:
        return self._vectors(self.users, users)

    def item_vectors(self) -> Tensor:
        return self._vectors(self.items, None)

    def new_user_vectors(self, texts: list[str]) -> Tensor:
        """The vectors of people of whom there are only texts: ids as the mean of those that are known."""
        return self._new_vectors(self.users, texts)

    def new_item_vectors(self, texts: list[str]) -> Tensor:
        """The vectors of items of which there are only texts."""
        return self._new_vectors(self.items, texts)

    def _new_vectors(self, tower: TextTower, texts: list[str]) -> Tensor:
        encodings = self._encode(self.encoder.tokenize(texts).to(tower.mean.device))
        read = tower.whitened(encodings)
        # Few texts, or all much alike, span few directions, and along others whitening has hundreds of times too much.
        read = read * (LONGEST / read.norm(dim=1, keepdim=True)).clamp(max=1.0)
        return tower.ids.weight.mean(0) + tower.text_vectors(read)

    def recommend(
        self,
        user: int | None = None,
        k: int = 10,
        known: Sequence[int] | Tensor | None = None,
        *,
        watched: Sequence[int] | None = None,
        text: str | None = None,
    ) -> list[int]:
        """The ``k`` best items for one person, ``known`` ones left out.

        Args:
            user: one of training.
            k: how many.
            known: ids of items to leave out.
            watched: instead of ``user``, what somebody new has watched; left out too.
            text: what is known of somebody new, alone or beside ``watched``.
        """
        return rank_items(self, user, k, known, watched, text).ids

    def recommend_users(self, text: str, k: int = 10) -> list[int]:
        """The ``k`` people who would like a new item best, of which there is only this text."""
        return rank_users(self, text, k).ids

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model to a folder that needs nothing else: :meth:`from_pretrained` reads it on any machine."""
        if self.encoder.loaded.tokenizer is not None:
            save_parts(self.encoder.loaded, Path(folder) / ENCODER)
        save_pretrained(self, folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "GPT2RecommenderEnhanced":
        """The model that :meth:`save_pretrained` wrote, in eval mode on the CPU."""
        arguments = read_arguments(folder, cls)
        parts = Path(folder) / ENCODER
        encoder = None
        if parts.is_dir():
            loaded = from_parts(parts, arguments["gpt2"])
            encoder = TextEncoder(arguments["gpt2"], arguments["pooling"], arguments["lora"], loaded)
        model = cls(**{**arguments, "encodings_dir": None}, encoder=encoder)
        fill(model, folder)
        return model

    def build_cache(self, say: Callable[[str], None] | None = None) -> None:
        """Encode every text now rather than at first use; does nothing where it is done, or without ``use_cache``.

        Args:
            say: takes sentences about waiting for another process and about what could not be kept on disk.
        """
        if self._use_cache:
            for tower in (self.users, self.items):
                self._kept_encodings(tower, say)

    def _kept_encodings(self, tower: TextTower, say: Callable[[str], None] | None = None) -> Tensor:
        if tower.encodings is None:
            folder = self._encodings_dir
            kept = None if folder is None else KeptEncodings(folder, say or to_stderr)
            return tower.keep(self.encoder.encode_once(tower.tokens, kept))
        return tower.encodings

    def _vectors(self, tower: TextTower, rows: Tensor | None) -> Tensor:
        """Vectors of some users or items, or of all: each text that is read is read once."""
        ids = tower.ids.weight if rows is None else tower.ids.weight.index_select(0, rows)
        texts = tower.text_of if rows is None else tower.text_of[rows]
        if not self._use_cache:
            distinct, place = torch.unique(texts, return_inverse=True)
            if torch.is_grad_enabled():  # in training
                self.texts_read.add(len(texts), len(distinct))
            read = tower.whitened(self._encode(tower.tokens[distinct]))
            return ids + tower.text_vectors(read).index_select(0, place)
        encodings = self._kept_encodings(tower)
        if len(texts) < len(encodings):
            return ids + tower.text_vectors(encodings[texts])
        return ids + tower.text_vectors(encodings).index_select(0, texts)  # no more than asked for: computed once each

    def _encode(self, tokens: Tokens) -> Tensor:
        if self._freeze_gpt2 or not torch.is_grad_enabled():
            return self.encoder.encode_all(tokens)
        return self.encoder.encode(tokens, self._tokens_at_once)


def _forget(model: GPT2RecommenderEnhanced, _: object) -> None:
    model.forget_encodings()


def _check_cache(use_cache: bool, freeze_gpt2: bool) -> None:
    if use_cache and not freeze_gpt2:
        raise ConfigError(
            "use_cache=True keeps encodings that were computed once, so GPT-2 cannot be trained with it; "
            "use freeze_gpt2=True, or use_cache=False first"
        )


def _texts(dataset: Any, n_users: int, n_items: int) -> dict[str, list[str]]:
    """The texts of all users and items, as plain data."""
    if dataset is None:
        raise ConfigError("dataset= is needed: its user_texts() and item_texts() are what GPT-2 reads")
    if isinstance(dataset, Mapping):
        texts = {"users": list(dataset["users"]), "items": list(dataset["items"])}
    else:
        texts = {"users": dataset.user_texts(), "items": dataset.item_texts()}
    if (len(texts["users"]), len(texts["items"])) != (n_users, n_items):
        raise ConfigError(
            f"the data set has texts of {len(texts['users'])} users and {len(texts['items'])} items, and "
            f"n_users={n_users}, n_items={n_items} were given; pass dataset.get_user_num() and dataset.get_item_num()"
        )
    return texts
