"""The models whose peak memory is measured on a card and forecast without one.

Each builder returns what `brim.forecast` takes: the model, a function from a batch size to `(args, kwargs)`, and the
loss of the model's output. Nothing here knows where it runs: the measurement makes batches under
`torch.device("cuda")`, the forecast makes them of fake tensors.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from memory_zoo_popular import POPULAR, POPULAR_HELD_BACK
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Batch = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Job:
    """One training job: what a forecast needs, apart from batch size, optimizer and precision."""

    model: Callable[[], nn.Module]
    batch: Callable[[int], Batch]
    loss: Callable[[Any], Tensor]


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3),
    "sgdm": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
    "adam_loop": lambda p: torch.optim.Adam(p, lr=1e-4, foreach=False),
    "adamw_amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-4, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-4, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-3),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-4),
}

JOBS: dict[str, Job] = {}


def _images(size: int) -> Callable[[int], Batch]:
    return lambda n: ((torch.rand(n, 3, size, size),), {})


def _tokens(vocabulary: int, length: int) -> Callable[[int], Batch]:
    def batch(n: int) -> Batch:
        tokens = torch.randint(0, vocabulary, (n, length))
        return (), {"input_ids": tokens, "labels": tokens}

    return batch


def _class_loss(output: Tensor) -> Tensor:
    """Cross-entropy with the first class as everybody's label: the labels are made where the output is."""
    return functional.cross_entropy(output, torch.zeros(len(output), dtype=torch.long, device=output.device))


def _square_loss(output: Tensor) -> Tensor:
    return output.float().pow(2).mean()


def _model_loss(output: Any) -> Tensor:
    loss: Tensor = output.loss
    return loss


# -- vision -----------------------------------------------------------------------------------------------------------


def _torchvision(name: str, **settings: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from torchvision import models

        made: nn.Module = getattr(models, name)(**settings)
        return made

    return build


def _declare_torchvision_operators() -> None:
    """Let torchvision be imported beside a torch that its binary was not built for: the models here need none of it."""
    for schema in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    ):
        if not hasattr(torch.ops.torchvision, schema.partition("(")[0]):
            torch.library.define(f"torchvision::{schema.partition('(')[0]}", schema[schema.index("(") :])


if torch.version.cuda is None:
    _declare_torchvision_operators()


for _name, _size in {
    "resnet18": 224, "resnet50": 224, "vgg11": 224, "vgg16_bn": 224, "mobilenet_v2": 224, "mobilenet_v3_small": 224,
    "efficientnet_b0": 224, "convnext_tiny": 224, "densenet121": 224, "vit_b_16": 224, "swin_t": 224,
    "regnet_y_400mf": 224, "shufflenet_v2_x1_0": 224, "alexnet": 224,
}.items():  # fmt: skip
    JOBS[_name] = Job(_torchvision(_name), _images(_size), _class_loss)


class Frozen(nn.Module):
    """A frozen ResNet-50 with a small trained head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _torchvision("resnet50")()
        self.body.fc = nn.Identity()  # type: ignore[assignment]
        self.body.requires_grad_(False)
        self.head = nn.Linear(2048, 100)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))  # type: ignore[no-any-return]


JOBS["resnet50_frozen"] = Job(Frozen, _images(224), _class_loss)


class ChannelsLast(nn.Module):
    """ResNet-50 in the memory format that tensor cores like best."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _torchvision("resnet50")().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images.contiguous(memory_format=torch.channels_last))  # type: ignore[no-any-return]


JOBS["resnet50_channels_last"] = Job(ChannelsLast, _images(224), _class_loss)


def _double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """The segmentation network of Ronneberger et al., with padding and BatchNorm as everybody writes it now."""

    def __init__(self, width: int = 64, transposed: bool = True) -> None:
        super().__init__()
        widths = [width, width * 2, width * 4, width * 8]
        self.down = nn.ModuleList([_double_conv(a, b) for a, b in zip([3, *widths], widths, strict=False)])
        self.middle = _double_conv(widths[-1], widths[-1] * 2)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(w * 2, w, 2, stride=2)
            if transposed
            else nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(w * 2, w, 1))
            for w in reversed(widths)
        )
        self.merge = nn.ModuleList([_double_conv(w * 2, w) for w in reversed(widths)])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        kept = []
        here = images
        for block in self.down:
            here = block(here)
            kept.append(here)
            here = functional.max_pool2d(here, 2)
        here = self.middle(here)
        for up, merge in zip(self.up, self.merge, strict=True):
            here = merge(torch.cat([kept.pop(), up(here)], 1))
        return self.head(here)  # type: ignore[no-any-return]


def _class_loss_of_pixels(output: Tensor) -> Tensor:
    labels = torch.zeros(len(output), *output.shape[2:], dtype=torch.long, device=output.device)
    return functional.cross_entropy(output, labels)


JOBS["unet"] = Job(UNet, _images(256), _class_loss_of_pixels)
JOBS["unet_bilinear"] = Job(lambda: UNet(32, transposed=False), _images(256), _class_loss_of_pixels)


class VideoNet(nn.Module):
    """A few 3-D convolutions over short clips."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 32, 64, 128]
        blocks: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            blocks += [nn.Conv3d(a, b, 3, padding=1), nn.BatchNorm3d(b), nn.ReLU(), nn.MaxPool3d(2)]
        self.body = nn.Sequential(*blocks, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(128, 10))

    def forward(self, clips: Tensor) -> Tensor:
        return self.body(clips)  # type: ignore[no-any-return]


JOBS["video_3d"] = Job(VideoNet, lambda n: ((torch.rand(n, 3, 8, 64, 64),), {}), _class_loss)


class Autoencoder(nn.Module):
    """Strided convolutions down, transposed ones up, GroupNorm in between."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 32, 64, 128, 256]
        down: list[nn.Module] = []
        up: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            down += [nn.Conv2d(a, b, 4, 2, 1), nn.GroupNorm(8, b), nn.SiLU()]
            up = [nn.ConvTranspose2d(b, a, 4, 2, 1), nn.SiLU(), *up]
        self.body = nn.Sequential(*down, *up[:-1])

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)  # type: ignore[no-any-return]


JOBS["autoencoder"] = Job(Autoencoder, _images(128), _square_loss)

# -- sequences ---------------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """A forecaster: a recurrent network over a window of numbers, and a linear head on its last step."""

    def __init__(self, kind: type[nn.RNNBase], features: int, hidden: int, **settings: Any) -> None:
        super().__init__()
        self.body = kind(features, hidden, batch_first=True, **settings)
        width = settings.get("proj_size") or hidden
        self.head = nn.Linear(width * (2 if settings.get("bidirectional") else 1), 1)

    def forward(self, windows: Tensor) -> Tensor:
        return self.head(self.body(windows)[0][:, -1])  # type: ignore[no-any-return]


def _windows(length: int, features: int) -> Callable[[int], Batch]:
    return lambda n: ((torch.randn(n, length, features),), {})


JOBS["lstm"] = Job(lambda: Recurrent(nn.LSTM, 16, 256, num_layers=3, dropout=0.1), _windows(90, 16), _square_loss)
JOBS["lstm_small"] = Job(lambda: Recurrent(nn.LSTM, 8, 64, num_layers=2), _windows(30, 8), _square_loss)
JOBS["lstm_both_ways"] = Job(
    lambda: Recurrent(nn.LSTM, 32, 128, num_layers=2, bidirectional=True), _windows(60, 32), _square_loss
)
JOBS["lstm_projected"] = Job(
    lambda: Recurrent(nn.LSTM, 32, 256, num_layers=2, proj_size=64), _windows(60, 32), _square_loss
)
JOBS["gru"] = Job(lambda: Recurrent(nn.GRU, 24, 192, num_layers=2, dropout=0.2), _windows(48, 24), _square_loss)
JOBS["rnn_tanh"] = Job(lambda: Recurrent(nn.RNN, 24, 128, num_layers=2), _windows(48, 24), _square_loss)


class TextClassifier(nn.Module):
    """Embedding, bidirectional GRU, mean over time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30_000, 128, padding_idx=0)
        self.body = nn.GRU(128, 128, bidirectional=True, batch_first=True)
        self.head = nn.Linear(256, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.body(self.embed(tokens))[0].mean(1))  # type: ignore[no-any-return]


JOBS["gru_text"] = Job(TextClassifier, lambda n: ((torch.randint(0, 30_000, (n, 120)),), {}), _class_loss)


class Convolutional1d(nn.Module):
    """Dilated causal convolutions over series."""

    def __init__(self) -> None:
        super().__init__()
        widths = [8, 64, 64, 128, 128]
        self.blocks = nn.ModuleList(
            nn.Conv1d(a, b, 3, dilation=2**i, padding=2**i) for i, (a, b) in enumerate(itertools.pairwise(widths))
        )
        self.head = nn.Linear(128, 1)

    def forward(self, series: Tensor) -> Tensor:
        for block in self.blocks:
            series = functional.gelu(block(series))
        return self.head(series.mean(2))  # type: ignore[no-any-return]


JOBS["conv1d"] = Job(Convolutional1d, lambda n: ((torch.randn(n, 8, 365),), {}), _square_loss)

# -- language ----------------------------------------------------------------------------------------------------------


def _gpt2(**settings: Any) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(**settings))


def _gpt2_checkpointed(reentrant: bool) -> nn.Module:
    model = _gpt2(n_layer=6)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})  # type: ignore[operator]
    return model


def _gpt2_lora() -> nn.Module:
    from peft import LoraConfig, get_peft_model

    adapted: nn.Module = get_peft_model(_gpt2(), LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True))  # type: ignore[arg-type]
    return adapted


def _llama(**settings: Any) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "vocab_size": 32_000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
        "num_attention_heads": 16, "num_key_value_heads": 4, "use_cache": False,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **settings}))


def _bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig())


def _distilbert() -> nn.Module:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    return DistilBertForSequenceClassification(DistilBertConfig())


def _t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0)
    )


def _padded(n: int) -> Batch:
    tokens = torch.randint(0, 30_000, (n, 128))
    mask = torch.ones_like(tokens)
    mask[:, 100:] = 0
    return (), {"input_ids": tokens, "attention_mask": mask, "labels": torch.zeros(n, dtype=torch.long)}


JOBS["gpt2"] = Job(_gpt2, _tokens(50_257, 512), _model_loss)
JOBS["gpt2_small"] = Job(lambda: _gpt2(n_layer=4, n_embd=256, n_head=4), _tokens(50_257, 128), _model_loss)
JOBS["gpt2_eager"] = Job(lambda: _gpt2(n_layer=4, attn_implementation="eager"), _tokens(50_257, 256), _model_loss)
JOBS["gpt2_checkpointed"] = Job(lambda: _gpt2_checkpointed(False), _tokens(50_257, 512), _model_loss)
JOBS["gpt2_checkpointed_reentrant"] = Job(lambda: _gpt2_checkpointed(True), _tokens(50_257, 512), _model_loss)
JOBS["gpt2_lora"] = Job(_gpt2_lora, _tokens(50_257, 256), _model_loss)
JOBS["llama"] = Job(_llama, _tokens(32_000, 512), _model_loss)
JOBS["llama_bf16"] = Job(lambda: _llama().to(torch.bfloat16), _tokens(32_000, 512), _model_loss)
JOBS["bert"] = Job(_bert, _tokens(30_000, 128), _model_loss)
JOBS["distilbert_padded"] = Job(_distilbert, _padded, _model_loss)
JOBS["t5"] = Job(_t5, _tokens(32_000, 128), _model_loss)


class Encoder(nn.Module):
    """torch's own transformer encoder over embedded tokens."""

    def __init__(self, norm_first: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(10_000, 256)
        layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, norm_first=norm_first)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(256, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.body(self.embed(tokens)).mean(1))  # type: ignore[no-any-return]


JOBS["torch_encoder"] = Job(Encoder, lambda n: ((torch.randint(0, 10_000, (n, 256)),), {}), _class_loss)


class Blocks(nn.Module):
    """A plain transformer that checkpoints its own blocks."""

    def __init__(self, width: int = 512, layers: int = 6, reentrant: bool | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(20_000, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, "gelu", batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, 20_000)
        self.reentrant = reentrant

    def forward(self, tokens: Tensor) -> Tensor:
        here = self.embed(tokens)
        for block in self.blocks:
            here = block(here) if self.reentrant is None else checkpoint(block, here, use_reentrant=self.reentrant)
        logits = self.head(here)
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def _token_batch(n: int) -> Batch:
    return (torch.randint(0, 20_000, (n, 256)),), {}


JOBS["blocks"] = Job(Blocks, _token_batch, lambda loss: loss)
JOBS["blocks_checkpointed"] = Job(lambda: Blocks(reentrant=False), _token_batch, lambda loss: loss)
JOBS["blocks_checkpointed_reentrant"] = Job(lambda: Blocks(reentrant=True), _token_batch, lambda loss: loss)

# -- tables ------------------------------------------------------------------------------------------------------------


class TwoTables(nn.Module):
    """User and item embeddings under an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(200_000, 64)
        self.items = nn.Embedding(100_000, 64)
        self.score = nn.Sequential(
            nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1)
        )  # fmt: skip

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        return self.score(torch.cat([self.users(users), self.items(items)], -1))  # type: ignore[no-any-return]


JOBS["two_tables"] = Job(
    TwoTables,
    lambda n: ((torch.randint(0, 200_000, (n,)), torch.randint(0, 100_000, (n,))), {}),
    lambda output: output.float().mean(),
)


class Bags(nn.Module):
    """Click-through rate: dense features, and sparse ones through EmbeddingBags."""

    def __init__(self, mode: str = "sum") -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(50_000, 32, mode=mode) for _ in range(6))
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(7 * 32, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        parts = [self.bottom(dense), *(bag(sparse[:, i]) for i, bag in enumerate(self.bags))]
        return self.top(torch.cat(parts, 1))  # type: ignore[no-any-return]


def _clicks(n: int) -> Batch:
    return (torch.randn(n, 13), torch.randint(0, 50_000, (n, 6, 4))), {}


JOBS["bags"] = Job(Bags, _clicks, _square_loss)
JOBS["bags_mean"] = Job(lambda: Bags("mean"), _clicks, _square_loss)


class Factorization(nn.Module):
    """Matrix factorisation with pairwise ranking."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(50_000, 64)
        self.items = nn.Embedding(20_000, 64)

    def forward(self, users: Tensor, liked: Tensor, other: Tensor) -> Tensor:
        user = self.users(users)
        difference = (user * (self.items(liked) - self.items(other))).sum(-1)
        return -functional.logsigmoid(difference).mean()


JOBS["factorization"] = Job(
    Factorization,
    lambda n: (
        (torch.randint(0, 50_000, (n,)), torch.randint(0, 20_000, (n,)), torch.randint(0, 20_000, (n,))),
        {},
    ),
    lambda loss: loss,
)
JOBS["mlp"] = Job(
    lambda: nn.Sequential(
        nn.Linear(512, 4096), nn.BatchNorm1d(4096), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(4096, 4096), nn.LayerNorm(4096), nn.GELU(), nn.Linear(4096, 1000),
    ),
    lambda n: ((torch.randn(n, 512),), {}),
    _class_loss,
)  # fmt: skip


# -- held back: measured after the rules of the forecast were settled, and not used to settle them ---------------------


class Separable(nn.Module):
    """A small image classifier of one's own: odd widths, depthwise convolutions, strides, no torchvision."""

    def __init__(self) -> None:
        super().__init__()
        widths = [1, 24, 56, 120, 200]
        blocks: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            blocks += [nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.1)]
            blocks += [nn.Conv2d(b, b, 5, padding=2, groups=b), nn.Conv2d(b, b, 1), nn.BatchNorm2d(b), nn.ReLU6()]
        self.body = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(200, 47))

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)  # type: ignore[no-any-return]


class Denoiser(nn.Module):
    """A diffusion model's network in small: GroupNorm, SiLU, residual blocks, attention at the lowest resolution."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(16, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(4)
        )
        self.down = nn.Conv2d(width, width * 2, 3, 2, 1)
        self.attention = nn.MultiheadAttention(width * 2, 6, batch_first=True)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.last = nn.Conv2d(width * 2, 3, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        here = self.first(images)
        for block in self.blocks:
            here = here + block(here)
        low = self.down(here)
        rows = low.flatten(2).transpose(1, 2)
        rows = rows + self.attention(rows, rows, rows, need_weights=False)[0]
        return self.last(self.up(rows.transpose(1, 2).reshape(low.shape)))  # type: ignore[no-any-return]


class Mixer(nn.Module):
    """MLP-Mixer: patches, and perceptrons over both axes."""

    def __init__(self, width: int = 384, patches: int = 196, layers: int = 8) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.over_patches = nn.ModuleList(
            nn.Sequential(nn.Linear(patches, 256), nn.GELU(), nn.Linear(256, patches)) for _ in range(layers)
        )
        self.over_width = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 100)

    def forward(self, images: Tensor) -> Tensor:
        here = self.patch(images).flatten(2).transpose(1, 2)
        for across, along in zip(self.over_patches, self.over_width, strict=True):
            here = here + across(here.transpose(1, 2)).transpose(1, 2)
            here = here + along(here)
        return self.head(here.mean(1))  # type: ignore[no-any-return]


class Translator(nn.Module):
    """Sequence to sequence with LSTMs and dot-product attention between them."""

    def __init__(self, words: int = 16_000, width: int = 320) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True, dropout=0.2)
        self.bridge = nn.Linear(2 * width, width)
        self.decoder = nn.LSTM(width, width, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(2 * width, words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.bridge(self.encoder(self.source(source))[0])
        states = self.decoder(self.target(target))[0]
        weights = (states @ memory.transpose(1, 2)).softmax(-1)
        logits = self.head(torch.cat([states, weights @ memory], -1))
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


class SessionModel(nn.Module):
    """Next item from a session: item embeddings, a GRU, scores of all items, and a mask of real positions."""

    def __init__(self, items: int = 30_000, width: int = 100) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width, padding_idx=0)
        self.body = nn.GRU(width, width, batch_first=True)

    def forward(self, session: Tensor) -> Tensor:
        states = self.body(self.items(session))[0]
        real = session[:, 1:] > 0
        scores = states[:, :-1][real] @ self.items.weight.T
        return functional.cross_entropy(scores, session[:, 1:][real])


def _sessions(n: int) -> Batch:
    sessions = torch.randint(1, 30_000, (n, 30))
    sessions[:, 22:] = 0
    return (sessions,), {}


def _roberta() -> nn.Module:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    return RobertaForSequenceClassification(
        RobertaConfig(num_hidden_layers=6, hidden_size=512, intermediate_size=2048, num_attention_heads=8)
    )


def _opt() -> nn.Module:
    from transformers import OPTConfig, OPTForCausalLM

    return OPTForCausalLM(
        OPTConfig(num_hidden_layers=6, hidden_size=512, ffn_dim=2048, num_attention_heads=8, word_embed_proj_dim=512)
    )


def _vit_of_transformers() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(num_hidden_layers=6, hidden_size=384, intermediate_size=1536, num_attention_heads=6)
    )


def _llama_lora() -> nn.Module:
    from peft import LoraConfig, get_peft_model

    adapted: nn.Module = get_peft_model(_llama(), LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))  # type: ignore[arg-type]
    return adapted


def _llama_checkpointed() -> nn.Module:
    model = _llama()
    model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    return model


class PositionBags(nn.Module):
    """Wide and deep: one large table read by bags of different lengths, and feature crosses."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(400_000, 48, mode="mean")
        self.fields = nn.ModuleList(nn.Embedding(size, 48) for size in (1_000, 50, 7_000, 20_000))
        self.deep = nn.Sequential(
            nn.Linear(5 * 48, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 128), nn.ReLU(),
            nn.Linear(128, 1),
        )  # fmt: skip

    def forward(self, history: Tensor, fields: Tensor) -> Tensor:
        parts = [self.table(history), *(table(fields[:, i]) for i, table in enumerate(self.fields))]
        return self.deep(torch.cat(parts, 1))  # type: ignore[no-any-return]


HELD_BACK = {
    "resnet34": (24, 160), "resnext50_32x4d": (8, 56), "wide_resnet50_2": (8, 40), "mobilenet_v3_large": (16, 112),
    "squeezenet1_1": (32, 200), "efficientnet_v2_s": (6, 40), "convnext_small": (6, 32), "vit_b_32": (16, 100),
    "separable": (64, 700), "denoiser": (8, 72), "mixer": (16, 120), "translator": (24, 160), "sessions": (64, 300),
    "roberta": (10, 70), "opt": (6, 36), "vit_hf": (16, 120), "llama_lora": (3, 14), "llama_checkpointed": (3, 20),
    "position_bags": (1500, 20000), "unet_narrow": (3, 20), "lstm_wide": (48, 600), "gru_deep": (80, 1200),
}  # fmt: skip

for _name in list(HELD_BACK)[:8]:
    JOBS[_name] = Job(_torchvision(_name), _images(224), _class_loss)
JOBS["separable"] = Job(Separable, lambda n: ((torch.rand(n, 1, 96, 96),), {}), _class_loss)
JOBS["denoiser"] = Job(Denoiser, _images(48), _square_loss)
JOBS["mixer"] = Job(Mixer, _images(224), _class_loss)
JOBS["translator"] = Job(
    Translator,
    lambda n: ((torch.randint(0, 16_000, (n, 40)), torch.randint(0, 16_000, (n, 36))), {}),
    lambda loss: loss,
)
JOBS["sessions"] = Job(SessionModel, _sessions, lambda loss: loss)
JOBS["roberta"] = Job(_roberta, _padded, _model_loss)
JOBS["opt"] = Job(_opt, _tokens(50_000, 320), _model_loss)
JOBS["vit_hf"] = Job(_vit_of_transformers, _images(224), lambda output: _class_loss(output.logits))
JOBS["llama_lora"] = Job(_llama_lora, _tokens(32_000, 384), _model_loss)
JOBS["llama_checkpointed"] = Job(_llama_checkpointed, _tokens(32_000, 512), _model_loss)
JOBS["position_bags"] = Job(
    PositionBags,
    lambda n: ((torch.randint(0, 400_000, (n, 25)), torch.randint(0, 50, (n, 4))), {}),
    _square_loss,
)
JOBS["unet_narrow"] = Job(lambda: UNet(24), _images(192), _class_loss_of_pixels)
JOBS["lstm_wide"] = Job(lambda: Recurrent(nn.LSTM, 40, 640, num_layers=2, dropout=0.1), _windows(120, 40), _square_loss)
JOBS["gru_deep"] = Job(
    lambda: Recurrent(nn.GRU, 12, 96, num_layers=4, bidirectional=True), _windows(72, 12), _square_loss
)

# -- fresh: measured after the rules were written, and forecast once ---------------------------------------------------


class Summarizer(nn.Module):
    """Sequence to sequence with GRUs: the decoder starts from what the encoder ended with, and shares its table."""

    def __init__(self, words: int = 24_000, width: int = 256) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.encoder = nn.GRU(width, width // 2, 2, bidirectional=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.bias = nn.Parameter(torch.zeros(words))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        last = self.encoder(self.words(source).transpose(0, 1))[1]
        start = torch.cat([last[-2], last[-1]], -1)[None].contiguous()
        states = self.decoder(self.words(target[:, :-1]), start)[0]
        logits = functional.linear(states, self.words.weight, self.bias)
        return functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())


class Tagger(nn.Module):
    """A label for every word: a deep LSTM in both directions over words and their shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.shapes = nn.Embedding(40_000, 200), nn.Embedding(60, 24)
        self.body = nn.LSTM(224, 272, 3, batch_first=True, bidirectional=True, dropout=0.3)
        self.head = nn.Sequential(nn.Linear(544, 128), nn.Tanh(), nn.Linear(128, 45))

    def forward(self, words: Tensor, shapes: Tensor) -> Tensor:
        states = self.body(torch.cat([self.words(words), self.shapes(shapes)], -1))[0]
        return functional.cross_entropy(self.head(states).flatten(0, 1), shapes.flatten() % 45)


for _name, _size in {
    "resnet101": 192, "densenet169": 160, "efficientnet_b2": 260, "mnasnet1_0": 192, "regnet_x_800mf": 176,
    "vgg13": 128, "convnext_base": 192, "shufflenet_v2_x2_0": 256, "squeezenet1_0": 160, "regnet_y_1_6gf": 200,
    "swin_s": 224,
}.items():  # fmt: skip
    JOBS[_name] = Job(_torchvision(_name), _images(_size), _class_loss)
JOBS["unet_middling"] = Job(lambda: UNet(40), _images(160), _class_loss_of_pixels)
JOBS["unet_bilinear_wide"] = Job(lambda: UNet(56, transposed=False), _images(192), _class_loss_of_pixels)
JOBS["summarizer"] = Job(
    Summarizer,
    lambda n: ((torch.randint(0, 24_000, (n, 90)), torch.randint(0, 24_000, (n, 21))), {}),
    lambda loss: loss,
)
JOBS["tagger"] = Job(
    Tagger,
    lambda n: ((torch.randint(0, 40_000, (n, 64)), torch.randint(0, 60, (n, 64))), {}),
    lambda loss: loss,
)


# -- new: popular models, and families that had no rules before -------------------------------------------------------


class CellLoop(nn.Module):
    """A cell called step by step, as people write decoders with attention and policies of agents."""

    def __init__(self, kind: type[nn.LSTMCell] | type[nn.GRUCell]) -> None:
        super().__init__()
        self.cell, self.head = kind(64, 512), nn.Linear(512, 1)

    def forward(self, windows: Tensor) -> Tensor:
        hidden = memory = windows.new_zeros(len(windows), 512)
        for x in windows.unbind(1):
            if isinstance(self.cell, nn.LSTMCell):
                hidden, memory = self.cell(x, (hidden, memory))
            else:
                hidden = self.cell(x, hidden)
        return self.head(hidden)  # type: ignore[no-any-return]


class SparseTables(nn.Module):
    """Two tables whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(400_000, 64, sparse=True), nn.Embedding(100_000, 64, sparse=True)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        return (self.users(users) * self.items(items)).sum(-1)


def _gpt2_lora_dropout() -> nn.Module:
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=16, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, lora_dropout=0.1)
    adapted: nn.Module = get_peft_model(_gpt2(n_layer=4), settings)  # type: ignore[arg-type]
    return adapted


JOBS["lstm_cells"] = Job(lambda: CellLoop(nn.LSTMCell), _windows(60, 64), _square_loss)
JOBS["gru_cells"] = Job(lambda: CellLoop(nn.GRUCell), _windows(60, 64), _square_loss)
JOBS["sparse_tables"] = Job(
    SparseTables, lambda n: ((torch.randint(0, 400_000, (n,)), torch.randint(0, 100_000, (n,))), {}), _square_loss
)
JOBS["gpt2_lora_dropout"] = Job(_gpt2_lora_dropout, _tokens(50_257, 256), _model_loss)
JOBS |= {name: Job(made.model, made.batch, made.loss) for name, made in POPULAR.items()}
OPTIMIZERS["sparse_adam"] = lambda p: torch.optim.SparseAdam(list(p), lr=1e-3)


@dataclass(frozen=True)
class Case:
    """One measurement."""

    job: str
    batch_size: int
    optimizer: str
    precision: str

    @property
    def held_back(self) -> bool:
        return self.job in HELD_BACK or self.job in POPULAR_HELD_BACK

    @property
    def name(self) -> str:
        return f"{self.job}/{self.batch_size}/{self.optimizer}/{self.precision}"


def _cases() -> list[Case]:
    """Every job at two batch sizes with AdamW in fp32 and bf16; the other optimizers and fp16 spread over the jobs."""
    sizes = {
        "resnet18": (16, 128), "resnet50": (8, 64), "vgg11": (8, 48), "vgg16_bn": (4, 24), "mobilenet_v2": (16, 96),
        "mobilenet_v3_small": (32, 256), "efficientnet_b0": (8, 64), "convnext_tiny": (8, 48), "densenet121": (8, 40),
        "vit_b_16": (8, 64), "swin_t": (8, 48), "regnet_y_400mf": (16, 96), "shufflenet_v2_x1_0": (32, 192),
        "alexnet": (32, 256), "resnet50_frozen": (16, 64), "resnet50_channels_last": (8, 64), "unet": (2, 12),
        "unet_bilinear": (4, 24), "video_3d": (4, 32), "autoencoder": (16, 128), "lstm": (128, 2048),
        "lstm_small": (256, 4096), "lstm_both_ways": (64, 1024), "lstm_projected": (64, 1024), "gru": (128, 2048),
        "rnn_tanh": (128, 2048), "gru_text": (64, 512), "conv1d": (64, 512), "gpt2": (4, 16), "gpt2_small": (16, 64),
        "gpt2_eager": (4, 16), "gpt2_checkpointed": (4, 24), "gpt2_checkpointed_reentrant": (4, 24),
        "gpt2_lora": (4, 24), "llama": (2, 12), "llama_bf16": (2, 12), "bert": (8, 48), "distilbert_padded": (8, 64),
        "t5": (8, 48), "torch_encoder": (16, 96), "blocks": (8, 48), "blocks_checkpointed": (8, 64),
        "blocks_checkpointed_reentrant": (8, 64), "two_tables": (2048, 65536), "bags": (1024, 16384),
        "bags_mean": (1024, 16384), "factorization": (2048, 65536), "mlp": (256, 8192),
    }  # fmt: skip
    sizes |= HELD_BACK
    others = ["sgd", "sgdm", "adamw_fused", "adam_loop", "rmsprop", "adagrad", "adafactor", "adamw_amsgrad", "nadam"]
    cases = []
    for i, (job, (small, large)) in enumerate(sizes.items()):
        cases += [Case(job, small, "adamw", "fp32"), Case(job, large, "adamw", "bf16")]
        cases.append(Case(job, large, others[i % len(others)], "fp32"))
        if job != "llama_bf16":  # torch's scaler refuses bf16 gradients
            cases.append(Case(job, small, others[(i + 3) % len(others)], "fp16"))
    return cases


CASES = _cases()
FRESH = [
    Case("resnet101", 24, "adamw", "fp32"), Case("densenet169", 36, "sgdm", "bf16"),
    Case("efficientnet_b2", 20, "adamw", "bf16"), Case("mnasnet1_0", 72, "rmsprop", "fp32"),
    Case("regnet_x_800mf", 50, "adamw", "fp32"), Case("vgg13", 60, "sgd", "bf16"),
    Case("convnext_base", 14, "adamw", "fp32"), Case("shufflenet_v2_x2_0", 44, "adam_loop", "fp16"),
    Case("squeezenet1_0", 80, "nadam", "fp32"), Case("regnet_y_1_6gf", 36, "adamw_fused", "bf16"),
    Case("swin_s", 20, "adamw", "bf16"), Case("unet_middling", 14, "adamw", "fp32"),
    Case("unet_bilinear_wide", 9, "sgdm", "bf16"), Case("summarizer", 110, "adamw", "fp32"),
    Case("summarizer", 240, "adagrad", "bf16"), Case("tagger", 180, "sgd", "fp32"),
]  # fmt: skip

# In bf16 with optimizers that need nothing while they step, so that the peak is in the backward pass.
_LEAN = ("adamw_fused", "sgd", "sgdm")
NEW = [
    Case("lstm_cells", 128, "adamw", "fp32"), Case("lstm_cells", 1024, "adamw", "bf16"),
    Case("gru_cells", 128, "adamw", "fp32"), Case("gru_cells", 1024, "adamw", "bf16"),
    Case("sparse_tables", 4096, "sparse_adam", "fp32"), Case("sparse_tables", 65536, "sgd", "fp32"),
    Case("gpt2_lora_dropout", 4, "adamw", "fp32"), Case("gpt2_lora_dropout", 24, "adamw", "bf16"),
]  # fmt: skip
for _place, (_name, _popular) in enumerate(POPULAR.items()):
    _small, _large = _popular.sizes
    NEW += [Case(_name, _small, "adamw", "fp32"), Case(_name, _large, _LEAN[_place % len(_LEAN)], "bf16")]

# (job, optimizer, precision, GiB that torch may reserve)
CAPS = [
    ("gpt2", "adamw", "bf16", 8), ("gpt2", "adamw", "fp32", 16), ("lstm", "adamw", "bf16", 4),
    ("lstm", "sgd", "fp32", 8), ("resnet50", "sgdm", "bf16", 8), ("resnet18", "adamw", "fp32", 4),
    ("unet", "adamw", "bf16", 8),
    ("vit_b_16", "adamw", "bf16", 16), ("bert", "adamw", "bf16", 8), ("two_tables", "adamw", "fp32", 4),
    ("efficientnet_b0", "adamw", "bf16", 4), ("llama", "adamw", "bf16", 8), ("gpt2_checkpointed", "adamw", "bf16", 8),
    ("swin_t", "adamw", "fp32", 8), ("denoiser", "adamw", "bf16", 4), ("translator", "adamw", "fp32", 8),
    ("mobilenet_v3_large", "sgd", "fp32", 8), ("gru_deep", "adamw", "bf16", 4),
]  # fmt: skip
