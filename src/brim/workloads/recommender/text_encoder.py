"""GPT-2 as a text encoder: a text's vector is the mean over its tokens' last hidden states."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brim.errors import DataError

TINY = "tiny"
PAD = 0
CHUNK = 256  # texts encoded at once


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

    ``"tiny"`` is a small GPT-2 with random weights that reads bytes, for running offline; anything else is a local
    folder or a hub name that transformers can load.
    """

    def __init__(self, name: str = TINY) -> None:
        super().__init__()
        self.name = name
        self.model, self._tokenizer = _tiny_gpt2() if name == TINY else _pretrained(name)
        config: Any = self.model.config
        self.window = int(config.max_position_embeddings)
        self.width = int(config.hidden_size)
        # Causal attention never looks at padding, which comes last; other models must be told where it is.
        self.needs_mask = config.model_type != "gpt2"

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Token ids of texts; one longer than the model's window is cut there, with a warning."""
        rows = [self._tokenizer(text) or [PAD] for text in texts]
        too_long = sum(len(row) > self.window for row in rows)
        if too_long:
            warnings.warn(
                f"{too_long} of {len(rows)} texts are longer than {self.name}'s window of {self.window} tokens "
                "and are cut there",
                stacklevel=2,
            )
        lengths = torch.tensor([min(len(row), self.window) for row in rows])
        ids = torch.full((len(rows), int(lengths.max())), PAD)
        for index, row in enumerate(rows):
            ids[index, : lengths[index]] = torch.tensor(row[: self.window])
        return Tokens(ids, lengths)

    def forward(self, tokens: Tokens) -> Tensor:
        real = torch.arange(tokens.ids.shape[1], device=tokens.ids.device) < tokens.lengths[:, None]
        mask = real.long() if self.needs_mask else None
        hidden = self.model(input_ids=tokens.ids, attention_mask=mask).last_hidden_state
        pooled: Tensor = (hidden * real[..., None]).sum(1) / tokens.lengths[:, None]
        return pooled

    def encode_all(self, tokens: Tokens) -> Tensor:
        """The vectors of all texts, without gradients and in full precision, shortest first so that padding is rare."""
        device = tokens.ids.device
        vectors = torch.empty(len(tokens.lengths), self.width, device=device)
        was_training = self.training
        self.eval()
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            for rows in torch.split(torch.argsort(tokens.lengths), CHUNK):
                vectors[rows] = self(tokens[rows])
        self.train(was_training)
        return vectors


def _tiny_gpt2() -> tuple[nn.Module, Any]:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        vocab_size=257, n_positions=256, n_embd=128, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    with torch.random.fork_rng(devices=[]):  # the same weights every time, and nobody else's draws moved
        torch.default_generator.manual_seed(0)  # not torch.manual_seed, which reseeds every GPU as well
        model = GPT2Model(config)  # type: ignore[no-untyped-call]
        model.config.use_cache = False  # keys and values kept for generating text: nothing here generates
    return model, lambda text: [byte + 1 for byte in text.encode()]


def _pretrained(name: str) -> tuple[nn.Module, Any]:
    from transformers import AutoModel, AutoTokenizer

    try:
        # Left to itself transformers asks on the terminal whether code in the folder may run, and a "y" runs it.
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = AutoModel.from_pretrained(name, dtype=torch.float32, trust_remote_code=False)
        model.config.use_cache = False
        if not tokenizer("a")["input_ids"]:  # transformers makes an empty one where a folder has none
            raise OSError("it has no tokenizer files")
    except Exception as error:  # whatever transformers makes of files of anybody's
        reason = (
            (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            if Path(name).exists()
            else "no such folder, and not to be had from the hub"
        )
        raise DataError(
            f"gpt2={name!r} cannot be loaded: {reason}; name a folder with a transformers model and its tokenizer, "
            "a model of the hub where there is a network, or use gpt2='tiny'"
        ) from error
    return model, lambda text: tokenizer(text, add_special_tokens=True, truncation=False)["input_ids"]
