"""A transformers model as a text encoder: a text's vector is made of its tokens' last hidden states."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import checkpoint

from brim.errors import DataError
from brim.float32_products import tf32_in_products
from brim.workloads.recommender.encoders.encoding_batches import encoding_batches, forecast_tokens
from brim.workloads.recommender.encoders.kept_encodings import KeptEncodings, encodings_key
from brim.workloads.recommender.encoders.loading import TINY, LoadedEncoder, load_encoder, read_trial
from brim.workloads.recommender.encoders.lora import LoraLike, add_lora, is_adapter
from brim.workloads.recommender.encoders.pooling import AUTO, POOLINGS, choose_pooling

__all__ = ["TINY", "TextEncoder", "Tokens"]


@dataclass(frozen=True)
class Tokens:
    """Texts as rows of token ids, padded at the end, with their lengths."""

    ids: Tensor
    lengths: Tensor

    def __getitem__(self, rows: Tensor) -> "Tokens":
        """Some of the texts, no wider than the longest of them."""
        lengths = self.lengths[rows]
        return Tokens(self.ids[rows, : int(lengths.max())], lengths)

    def to(self, device: torch.device) -> "Tokens":
        return Tokens(self.ids.to(device), self.lengths.to(device))


class TextEncoder(nn.Module):
    """A transformers model and its tokenizer.

    Args:
        name: ``"tiny"`` for a small GPT-2 with random weights that reads bytes, for running offline; anything else is a
            local folder, a GGUF file or a hub name that transformers can load: an encoder (BERT, MiniLM), a decoder
            (GPT-2, Llama), or the encoder of both (T5).
        pooling: how one vector is made of a text's tokens: ``"mean"``, ``"last"`` (the last token, for decoders),
            ``"cls"`` (the first, for encoders), or ``"auto"`` for what the model's files ask for, else the mean.
        lora: a rank, or arguments of ``peft.LoraConfig``: adapters beside the weights, which are what is trained then.
        loaded: the model and tokenizer, where they are there already.
    """

    def __init__(
        self, name: str = TINY, pooling: str = AUTO, lora: LoraLike | None = None, loaded: LoadedEncoder | None = None
    ) -> None:
        super().__init__()
        loaded = loaded or load_encoder(name)
        self.name, self.loaded = name, loaded
        self.model, self.window = loaded.model, loaded.window
        reading = read_trial(name, loaded.model)
        self.width = reading.width
        self.pooling = choose_pooling(pooling, loaded.pooling, reading.is_causal)
        # Causal attention never looks at padding, which comes last; other models must be told where it is.
        self.needs_mask = not reading.is_causal
        self.has_lora = lora is not None
        if lora is not None:
            add_lora(self.model, lora)

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Token ids of texts; one longer than the model's window is cut there, with a warning."""
        odd = next((place for place, text in enumerate(texts) if not isinstance(text, str)), None)
        if odd is not None:
            raise DataError(f"text {odd} is {texts[odd]!r}; hand over texts, an empty one where nothing is known")
        if not len(texts):
            raise DataError("there are no texts to encode; hand over one at least")
        rows = [self.loaded.tokenize(text) or [self.loaded.pad] for text in texts]
        too_long = sum(len(row) > self.window for row in rows)
        if too_long:
            warnings.warn(
                f"{too_long} of {len(rows)} texts are longer than {self.name}'s window of {self.window} tokens "
                "and are cut there",
                stacklevel=2,
            )
        lengths = torch.tensor([min(len(row), self.window) for row in rows])
        ids = torch.full((len(rows), int(lengths.max())), self.loaded.pad)
        for index, row in enumerate(rows):
            ids[index, : lengths[index]] = torch.tensor(row[: self.window])
        return Tokens(ids, lengths)

    def forward(self, tokens: Tokens) -> Tensor:
        mask = None
        if self.needs_mask:
            mask = (torch.arange(tokens.ids.shape[1], device=tokens.ids.device) < tokens.lengths[:, None]).long()
        hidden = self.model(input_ids=tokens.ids, attention_mask=mask).last_hidden_state
        return POOLINGS[self.pooling](hidden, tokens.lengths)

    def encode(self, tokens: Tokens, most_tokens: int | None = None) -> Tensor:
        """The vectors of texts, with gradients; texts of like length are read together.

        With ``most_tokens`` only so many are read at once, and read again in the backward pass (gradient caching): the
        memory is that of one such part, and the gradients are the same, dropout included.
        """
        rows = list(encoding_batches(tokens.lengths, most_tokens))
        if most_tokens is None or len(rows) == 1:
            parts = [self(tokens[some]) for some in rows]
        else:
            parts = [checkpoint(self, tokens[some], use_reentrant=False) for some in rows]
        return torch.cat(parts).index_select(0, torch.cat(rows).argsort())

    def encode_all(self, tokens: Tokens, most_tokens: int | None = None) -> Tensor:
        """The vectors of all texts, without gradients and in full precision, shortest first so that padding is rare."""
        device = tokens.ids.device
        vectors = torch.empty(len(tokens.lengths), self.width, device=device)
        was_training = self.training
        self.eval()
        try:
            with torch.no_grad(), torch.autocast(device.type, enabled=False):
                for rows in encoding_batches(tokens.lengths, most_tokens):
                    vectors[rows] = self(tokens[rows])
        finally:
            self.train(was_training)
        return vectors

    def encode_once(self, tokens: Tokens, kept: KeptEncodings | None) -> Tensor:
        """The vectors of all texts, from where they are kept, or in one pass of batches as large as memory allows."""
        device = tokens.ids.device
        if isinstance(tokens.ids, FakeTensor):  # a forecast of memory
            return self.encode_all(tokens)
        if kept is None:
            return self._encode_in_large_batches(tokens)
        tf32 = device.type == "cuda" and tf32_in_products()
        how = f"{type(self.model).__name__}, {self.pooling}, {device.type}, tf32 {tf32}, torch {torch.__version__}"
        key = encodings_key(self.model, how, tokens.ids, tokens.lengths)
        shape = (len(tokens.lengths), self.width)
        return kept.get(key, shape, lambda: self._encode_in_large_batches(tokens)).to(device)

    def _encode_in_large_batches(self, tokens: Tokens) -> Tensor:
        longest = int(tokens.lengths.argmax())

        def batch(n: int) -> Tokens:
            return tokens[torch.full((n,), longest, device=tokens.lengths.device)]

        most = forecast_tokens(self, int(tokens.lengths.max()), tokens.ids.device, batch)
        return self.encode_all(tokens, most)

    def freeze(self, frozen: bool) -> None:
        """Let it be trained or not: all of it, or with ``lora`` its adapters alone."""
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(not frozen and (not self.has_lora or is_adapter(name)))
