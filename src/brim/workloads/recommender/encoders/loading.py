"""A text encoder by its name: brim's own tiny GPT-2, or whatever transformers can load, from a folder or the hub."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brim.errors import ConfigError, DataError
from brim.workloads.recommender.encoders.pooling import declared_pooling

TINY = "tiny"
GGUF = ".gguf"
UNLIMITED = 1 << 20  # tokens: what tokenizers without a limit give is a number beyond all sizes
TRIAL = 4  # tokens of the rows that a model is tried with


@dataclass(frozen=True)
class LoadedEncoder:
    """A model with hidden states, and all that is needed to give it texts."""

    model: nn.Module
    tokenize: Callable[[str], Sequence[int]]
    tokenizer: Any  # of transformers; None of the tiny one
    window: int  # tokens that it can read at once
    pad: int  # the id that fills rows up; any will do, as no real token sees it
    pooling: str | None = None  # which the files ask for


@dataclass(frozen=True)
class Reading:
    """How a model reads, as a trial shows."""

    width: int
    is_causal: bool  # no token sees those behind it: a decoder


def load_encoder(name: str) -> LoadedEncoder:
    """The encoder of that name; raises DataError in one sentence where there is none."""
    return tiny_gpt2() if name == TINY else _pretrained(name)


def tiny_gpt2() -> LoadedEncoder:
    """A small GPT-2 with random weights that reads bytes, for running offline."""
    transformers = _transformers(TINY)
    config = transformers.GPT2Config(
        vocab_size=257, n_positions=256, n_embd=128, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    with torch.random.fork_rng(devices=[]):  # the same weights every time, and nobody else's draws moved
        torch.default_generator.manual_seed(0)  # not torch.manual_seed, which reseeds every GPU as well
        model = transformers.GPT2Model(config)
        model.config.use_cache = False  # keys and values kept for generating text: nothing here generates
    return LoadedEncoder(model, lambda text: [byte + 1 for byte in text.encode()], None, 256, 0)


def read_trial(name: str, model: nn.Module) -> Reading:
    """Try a model out: how wide its hidden states are, and whether a token sees those behind it.

    Configurations do not say the latter in one way (GPT-2's ``is_decoder`` is False), and padding must be hidden from
    a model whose tokens see it.
    """
    device = next(model.parameters()).device
    ids = torch.zeros(2, TRIAL, dtype=torch.long, device=device)
    ids[1, -1] = 1
    was_training = model.training
    try:
        with torch.no_grad():
            hidden: Tensor = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    except Exception as error:  # of models that read pictures, or have no hidden states
        raise _cannot_load(
            name, f"{type(model).__name__} makes no hidden states of texts ({_in_short(error)})"
        ) from error
    finally:
        model.train(was_training)
    return Reading(hidden.shape[-1], bool(torch.allclose(hidden[0, 0], hidden[1, 0], rtol=1e-4, atol=1e-6)))


def _transformers(name: str) -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'gpt2={name!r} reads texts with transformers, which is not installed; pip install "brim[hf]", or train a '
            "model without texts (model.name=bpr)"
        ) from error
    return transformers


def _pretrained(name: str) -> LoadedEncoder:
    transformers = _transformers(name)
    where, options = _place(name)
    try:
        # Left to itself transformers asks on the terminal whether code in the folder may run, and a "y" runs it.
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False, **options)
        model = transformers.AutoModel.from_pretrained(where, dtype=torch.float32, trust_remote_code=False, **options)
        if not tokenizer("a")["input_ids"]:  # transformers makes an empty one where a folder has none
            raise OSError("it has no tokenizer files")
    except Exception as error:  # whatever transformers makes of files of anybody's
        there = Path(name).exists()
        raise _cannot_load(
            name, _in_short(error) if there else "no such folder, and not to be had from the hub"
        ) from error
    return _with_tokenizer(model, tokenizer, declared_pooling(Path(where)))


def from_parts(folder: Path, name: str) -> LoadedEncoder:
    """An encoder as :func:`save_parts` left it: its shape and its tokenizer, with weights that are yet to be loaded."""
    transformers = _transformers(name)
    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        model = transformers.AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        raise _cannot_load(name, f"{folder}: {_in_short(error)}") from error
    return _with_tokenizer(model, tokenizer, declared_pooling(folder))


def save_parts(loaded: LoadedEncoder, folder: Path) -> None:
    """Write what is needed to build the encoder again, but for its weights."""
    config: Any = loaded.model.config
    config.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)


def _with_tokenizer(model: Any, tokenizer: Any, pooling: str | None) -> LoadedEncoder:
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()  # T5, BART: the half that reads
    model.config.use_cache = False
    limits = [getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < UNLIMITED]
    pads = [tokenizer.pad_token_id, tokenizer.eos_token_id, 0]  # GPT-2 and many other decoders have no pad token
    pad = next(token for token in pads if token is not None)

    def tokenize(text: str) -> Sequence[int]:
        ids: Sequence[int] = tokenizer(text, add_special_tokens=True, truncation=False)["input_ids"]
        return ids

    return LoadedEncoder(model, tokenize, tokenizer, min(known, default=UNLIMITED), pad, pooling)


def _place(name: str) -> tuple[str, dict[str, Any]]:
    """The folder or hub name, and what transformers must be told: a GGUF file holds model and tokenizer in one."""
    path = Path(name)
    return (str(path.parent), {"gguf_file": path.name}) if path.suffix == GGUF else (name, {})


def _in_short(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _cannot_load(name: str, reason: str) -> DataError:
    return DataError(
        f"gpt2={name!r} cannot be loaded: {reason}; name a folder with a transformers model and its tokenizer, "
        "a model of the hub where there is a network, or use gpt2='tiny'"
    )
