"""Forecasts as users ask for them."""

import copy
import json
import threading

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.optim import optimizer as torch_optimizer
from torch.utils.checkpoint import checkpoint

from brim.errors import BrimError, ConfigError, ModelError
from brim.hardware.cards import H200, find_card
from brim.memory import Forecast, forecast, largest_batch
from brim.memory.allocator.allocator import rounded
from brim.memory.forecast import PRECISIONS, choose_card, loss_in, parse_runtime

MIB = 1 << 20


def rows(n: int, width: int = 64):
    return (torch.randn(n, width),), {}


def predict(model, batch=rows, loss=None, optimizer=None, batch_size: int = 8, **more) -> Forecast:
    return forecast(model, batch, loss, optimizer, batch_size=batch_size, card=more.pop("card", H200), **more)


class Does(nn.Module):
    """A layer of 64 by 64, and whatever a test wants to do with it."""

    def __init__(self, forward, **parts) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.does = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args):
        return self.does(self, *args)


def doing(forward, **more) -> Forecast:
    return predict(lambda: Does(forward), **more)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 64))


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.matrix(3)
@pytest.mark.parametrize("precision", ["32", "bf16", "fp16"])
@pytest.mark.parametrize("card", ["NVIDIA H200", "RTX 4090", "T4"])
def test_parts_add_up(card: str, precision: str) -> None:
    found = predict(perceptron, card=card, precision=precision)
    assert sum(found.parts.values()) == found.device
    assert found.device == found.reserved + found.parts["context"]
    assert found.parts["fragmentation"] == found.reserved - found.allocated
    assert min(found.parts.values()) >= 0
    low, high = found.device_band
    assert low <= found.device <= high
    assert (low == high) == found.card.measured


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_parts_add_up_where_convolutions_leave_doubt(precision: str) -> None:
    found = predict(convolutions, images, batch_size=64, precision=precision)
    assert sum(found.parts.values()) == found.device >= found.reserved + found.parts["context"]
    assert found.device_band[0] <= found.device <= found.device_band[1]


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (100, 7), (3000, 3000), (1, 1)])
def test_states_of_a_layer_are_right_to_the_byte(inputs: int, outputs: int) -> None:
    found = predict(lambda: nn.Linear(inputs, outputs), lambda n: rows(n, inputs), batch_size=2)
    weight, bias, step = rounded(4 * inputs * outputs), rounded(4 * outputs), rounded(4)
    assert found.parts["parameters"] == weight + bias
    assert found.parts["gradients"] == weight + bias
    assert found.parts["optimizer"] == 2 * (weight + bias) + 2 * step


@pytest.mark.parametrize(
    ("optimizer", "copies"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1),
        (lambda p: torch.optim.Adam(p, amsgrad=True), 3),
        (lambda p: torch.optim.RMSprop(p), 1),
        (lambda p: torch.optim.AdamW(p, fused=True), 2),
    ],
    ids=["sgd", "momentum", "amsgrad", "rmsprop", "fused"],
)
def test_optimizers_keep_as_many_copies_as_they_do(optimizer, copies: int) -> None:
    found = predict(lambda: nn.Linear(1024, 1024, bias=False), lambda n: rows(n, 1024), optimizer=optimizer)
    assert copies * 4 * MIB <= found.parts["optimizer"] <= copies * 4 * MIB + 2048


def test_adamw_is_the_optimizer_when_none_is_named() -> None:
    assert predict(perceptron) == predict(perceptron, optimizer=torch.optim.AdamW)


def test_activations_grow_with_the_batch() -> None:
    small, large = (predict(perceptron, batch_size=n) for n in (1000, 4000))
    assert large.parts["activations"] == pytest.approx(4 * small.parts["activations"], rel=0.01)
    assert large.parts["parameters"] == small.parts["parameters"]


def test_tied_weights_are_counted_once() -> None:
    def tied() -> nn.Module:
        model = Does(lambda self, x: self.head(self.layer(x)), head=nn.Linear(64, 64, bias=False))
        model.head.weight = model.layer.weight
        return model

    parts = predict(tied).parts
    assert parts["parameters"] == parts["gradients"] == rounded(4 * 64 * 64) + rounded(4 * 64)
    assert predict(tied()).parts == parts


def test_frozen_parts_have_no_gradients_no_state_and_keep_no_activations() -> None:
    def model(frozen: bool) -> nn.Module:
        made = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8)), nn.Linear(64, 64))
        made[:8].requires_grad_(not frozen)
        return made

    whole, frozen = (predict(lambda f=f: model(f), batch_size=4096).parts for f in (False, True))
    one = rounded(4 * 64 * 64) + rounded(4 * 64)
    assert frozen["parameters"] == whole["parameters"]
    assert frozen["gradients"] <= one
    assert frozen["optimizer"] <= whole["optimizer"] / 8
    assert frozen["activations"] < whole["activations"] / 2


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_lowers_activations(reentrant: bool) -> None:
    class Deep(nn.Module):
        def __init__(self, checkpointed: bool) -> None:
            super().__init__()
            self.first = nn.Linear(64, 64)
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(6)
            )
            self.checkpointed = checkpointed

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=reentrant) if self.checkpointed else block(x)
            return x

    plain, checkpointed = (predict(lambda c=c: Deep(c), batch_size=4096) for c in (False, True))
    assert checkpointed.parts["activations"] < plain.parts["activations"] / 3
    assert checkpointed.allocated < plain.allocated
    assert checkpointed.parts["parameters"] == plain.parts["parameters"]


def test_accumulation_keeps_gradients_through_the_next_slice() -> None:
    def model() -> nn.Module:
        return nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))

    once, twice, thrice = (
        predict(model, batch_size=4096, accumulation=a, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
        for a in (1, 2, 3)
    )
    assert once.allocated < twice.allocated == thrice.allocated
    assert twice.allocated - once.allocated <= 4 * (rounded(4 * 64 * 64) + rounded(4 * 64))


def test_clipping_costs_little() -> None:
    plain, clipped = predict(perceptron), predict(perceptron, clip_norm=1.0)
    assert plain.allocated <= clipped.allocated <= plain.allocated + MIB


@pytest.mark.matrix(4)
@pytest.mark.parametrize(("name", "same_as"), PRECISIONS.items())
def test_names_of_precisions(name: str, same_as: str) -> None:
    found = predict(perceptron, precision=name)
    assert found.precision == same_as
    assert found == predict(perceptron, precision=same_as)


def test_half_precision_halves_what_products_keep() -> None:
    def model() -> nn.Module:
        return nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(16)))

    full, half = (predict(model, batch_size=1 << 16, precision=p).parts["activations"] for p in ("32", "bf16"))
    assert 0.45 < half / full < 0.65


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (100, 7)])
def test_weights_in_bf16_and_what_follows_from_them_have_two_bytes(inputs: int, outputs: int) -> None:
    model = nn.Linear(inputs, outputs)
    found = predict(model, lambda n: rows(n, inputs), batch_size=2, precision="bf16-true")
    weight, bias, step = rounded(2 * inputs * outputs), rounded(2 * outputs), rounded(4)
    assert found.parts["parameters"] == weight + bias
    assert found.parts["gradients"] == weight + bias
    assert found.parts["optimizer"] == 2 * (weight + bias) + 2 * step
    assert model.weight.dtype == torch.float32  # the one that was asked about is left alone


def test_a_model_that_came_in_bf16_has_the_forecast_of_one_that_is_cast() -> None:
    cast = predict(perceptron, precision="bf16-true")
    came = predict(lambda: perceptron().bfloat16(), lambda n: ((torch.randn(n, 64).bfloat16(),), {}))
    assert cast.parts == came.parts and cast.reserved == came.reserved


def test_many_micro_batches_of_weights_in_bf16_are_summed_up_in_four_bytes() -> None:
    def gradients(accumulation: int) -> int:
        layer = nn.Linear(2048, 2048, bias=False)
        found = predict(
            layer, lambda n: rows(n, 2048), precision="bf16-true", accumulation=accumulation,
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
        )  # fmt: skip
        return found.parts["gradients"]

    size = 2 * 2048 * 2048
    assert [gradients(n) for n in (1, 2, 3, 8)] == [size, size, 3 * size, 3 * size]


def test_expandable_segments_are_asked_for_or_set_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = predict(perceptron, batch_size=5000, expandable_segments=True)
    assert asked.reserved % (2 * MIB) == 0
    assert asked != predict(perceptron, batch_size=5000)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64, expandable_segments: True")
    assert predict(perceptron, batch_size=5000) == asked
    assert predict(perceptron, batch_size=5000, expandable_segments=False) != asked


def test_a_forecast_is_the_same_every_time() -> None:
    assert len({predict(perceptron).reserved for _ in range(3)}) == 1
    assert predict(perceptron) == predict(perceptron)


# -- a model that exists -----------------------------------------------------------------------------------------------


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.body = nn.LSTM(64, 64, num_layers=2, batch_first=True, dropout=0.1)
        self.attend = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)

    def forward(self, tokens):
        return self.attend(self.body(self.embed(tokens))[0])


def images(n: int):
    return (torch.randn(n, 3, 16, 16),), {}


def tokens(n: int):
    return (torch.randint(0, 100, (n, 12)),), {}


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 14 * 14, 5))


@pytest.mark.matrix(2)
@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize(
    ("build", "batch"), [(perceptron, rows), (Sequences, tokens), (convolutions, images)], ids=["mlp", "text", "images"]
)
def test_a_model_and_its_builder_have_the_same_forecast(build, batch, precision: str) -> None:
    assert predict(build(), batch, precision=precision) == predict(build, batch, precision=precision)


def state_of(model: nn.Module):
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    others = [
        (len(m._forward_hooks), len(m._forward_pre_hooks), m.training, [type(p.grad) for p in m.parameters(False)])
        for m in model.modules()
    ]
    return tensors, others


def unchanged(before, after) -> bool:
    return before[1] == after[1] and all(torch.equal(tensor, after[0][name]) for name, tensor in before[0].items())


@pytest.mark.parametrize(("build", "batch"), [(perceptron, rows), (Sequences, tokens)], ids=["mlp", "text"])
def test_a_real_model_is_untouched(build, batch) -> None:
    model = build().eval()
    before = state_of(model)
    predict(model, batch)
    assert unchanged(before, state_of(model))


def test_a_real_model_that_a_builder_hands_out_is_untouched() -> None:
    model = perceptron().eval()
    before = state_of(model)
    predict(lambda: model)
    assert unchanged(before, state_of(model))


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_batch_sliced_from_real_data_counts_as_what_it_holds() -> None:
    data = torch.randn(100_000, 64)
    assert predict(perceptron, lambda n: ((data[:n],), {})) == predict(perceptron)


def test_a_batch_of_real_tensors_counts_as_one_of_fake_ones() -> None:
    data = torch.randn(8, 64)
    assert predict(perceptron, lambda n: ((data,), {})) == predict(perceptron)


# -- what models do ----------------------------------------------------------------------------------------------------


def test_asking_for_the_value_of_a_loss() -> None:
    def forward(self, x):
        loss = self.layer(x).sum()
        if loss.item() > 1e9 or float(loss) != loss.item() or not torch.isfinite(loss):
            raise AssertionError
        return loss

    assert doing(forward).notes == ()


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: self.layer(x.cuda()),
        lambda self, x: self.layer(x.cuda(0, non_blocking=True)),
        lambda self, x: self.layer(x.to("cuda")),
        lambda self, x: self.layer(x.to("cuda:0", torch.float32)),
        lambda self, x: self.layer(x.to(device="cuda")),
        lambda self, x: self.layer(x.to(torch.device("cuda", 0))),
        lambda self, x: self.layer(x + torch.zeros(64, device="cuda")),
        lambda self, x: self.layer(x + torch.tensor([0.0] * 64, device="cuda")),
        lambda self, x: self.layer(x + x.new_zeros(64, device="cuda")),
        lambda self, x: self.layer(x + torch.arange(64, device=torch.device("cuda"))),
        lambda self, x: self.cuda().layer(x),
        lambda self, x: self.to("cuda").layer(x),
    ],
)
def test_naming_the_gpu(forward) -> None:
    plain = doing(lambda self, x: self.layer(x))
    assert plain.allocated <= doing(forward).allocated <= plain.allocated + 8192


def test_building_on_the_gpu() -> None:
    plain = predict(lambda: nn.Linear(64, 64))
    assert predict(lambda: nn.Linear(64, 64).cuda()) == plain
    assert predict(lambda: nn.Linear(64, 64).to("cuda")) == plain
    assert predict(lambda: nn.Linear(64, 64, device="cuda")) == plain

    def under_a_device() -> nn.Module:
        with torch.device("cuda"):
            return nn.Linear(64, 64)

    assert predict(under_a_device) == plain


def test_batches_on_the_gpu() -> None:
    plain = predict(perceptron)
    assert predict(perceptron, lambda n: ((torch.randn(n, 64, device="cuda"),), {})) == plain
    assert predict(perceptron, lambda n: ((torch.randn(n, 64).pin_memory().cuda(non_blocking=True),), {})) == plain


@pytest.mark.parametrize(
    "forward", [lambda self, x: self.layer(x.to(0)), lambda self, x: self.layer(x + torch.zeros(64, device=0))]
)
def test_naming_the_gpu_by_its_number(forward) -> None:
    plain = doing(lambda self, x: self.layer(x))
    assert plain.allocated <= doing(forward).allocated <= 1.1 * plain.allocated


@pytest.mark.parametrize(
    "asks",
    [
        lambda x: torch.is_autocast_enabled(),
        lambda x: torch.is_autocast_enabled("cuda"),
        lambda x: torch.get_autocast_dtype("cuda") == torch.bfloat16,
        lambda x: x.is_cuda,
        lambda x: x.device.type == "cuda",
    ],
    ids=["autocast", "autocast of cuda", "dtype", "is_cuda", "device"],
)
def test_a_model_that_asks_where_it_is(asks) -> None:
    def forward(self, x):
        assert asks(x)
        return self.layer(x)

    doing(forward, precision="bf16")


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: self.layer(x + torch.rand(64, generator=torch.Generator(x.device), device=x.device)),
        lambda self, x: self.layer(x + torch.zeros(64, device=x.device)),
        lambda self, x: self.layer.to(x.device)(x),
        lambda self, x: self.layer(x.to(self.layer.weight.device)),
    ],
)
def test_what_a_model_does_where_it_is(forward) -> None:
    plain = doing(lambda self, x: self.layer(x))
    assert plain.allocated <= doing(forward).allocated <= plain.allocated + 8192


@pytest.mark.matrix(2)
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    "compute",
    [
        lambda layer, x: layer(x + torch.zeros(64, device="cuda")),
        lambda layer, x: layer(x if x.is_cuda else x[:0]),
        lambda layer, x: layer(x.to(x.device)),
    ],
)
def test_what_is_checkpointed_is_on_the_gpu_in_the_backward_too(compute, reentrant: bool) -> None:
    def forecast_of(compute) -> Forecast:
        return doing(
            lambda self, x: checkpoint(compute, self.layer, x.requires_grad_(), use_reentrant=reentrant).float()
        )

    plain = forecast_of(lambda layer, x: layer(x))
    assert plain.allocated <= forecast_of(compute).allocated <= plain.allocated + 8192


def test_the_gpu_is_seen_in_the_forecast_alone() -> None:
    doing(lambda self, x: self.layer(x), precision="bf16")
    assert not torch.is_autocast_enabled("cuda")
    assert type(torch.Generator("cpu")).__name__ == "Generator"
    with FakeTensorMode():
        assert torch.empty(2).device.type == "cpu"
        assert not torch.empty(2).is_cuda


def test_copies_of_submodules() -> None:
    def copies() -> nn.Module:
        layer = nn.Linear(64, 64)
        return nn.Sequential(*(copy.deepcopy(layer) for _ in range(4)))

    assert predict(copies) == predict(lambda: nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))))


def test_known_masks_are_exact_and_masks_of_floats_a_bound_with_a_note() -> None:
    def half(n: int):
        return (torch.randn(n, 64), torch.arange(n) % 2), {}

    def known(self, x, keep):
        return self.layer(x[keep == 1])

    def unknown(self, x, keep):
        return self.layer(x[x[:, 0] > 0])

    exact, bound = (doing(f, batch=half, batch_size=8192) for f in (known, unknown))
    assert exact.notes == ()
    assert len(bound.notes) == 1
    assert bound.parts["activations"] > 1.3 * exact.parts["activations"]


def test_nonzero_and_unique() -> None:
    def forward(self, x):
        marked = (x > 0).nonzero()
        return self.layer(x) + torch.unique(x).sum() + marked.sum()

    assert len(doing(forward).notes) == 2


# -- what it says ------------------------------------------------------------------------------------------------------


def test_the_largest_storages_are_explained() -> None:
    def forward(self, x):
        return torch.exp(self.layer(x)).sum()

    found = doing(forward, batch_size=1 << 16)
    line = f"{__file__}:{forward.__code__.co_firstlineno + 1}"
    assert any(holder.operator == "exp" and holder.line == line for holder in found.holders)
    text = found.explain()
    assert text.startswith(f"peak in the {found.phase}: ")
    assert line in text
    assert list(found.holders) == sorted(found.holders, key=lambda holder: -holder.size)


def test_plain_data_can_be_written_as_json() -> None:
    found = predict(perceptron)
    data = json.loads(json.dumps(found.as_json()))
    assert data["parts"] == found.parts
    assert (data["allocated"], data["reserved"], data["fits"]) == (found.allocated, found.reserved, True)


def test_fits_is_about_the_card_less_its_context() -> None:
    found = predict(perceptron)
    assert found.limit == H200.memory - 742 * MIB
    small, large = (predict(perceptron, batch_size=n, card="RTX 3070") for n in (10, 1 << 22))
    assert small.fits
    assert not large.fits


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"precision": "64"},
        {"precision": None},
        {"accumulation": 0},
        {"accumulation": True},
        {"accumulation": 1.5},
        {"batch_size": 0},
        {"batch_size": -3},
        {"batch_size": 2.0},
        {"batch_size": True},
        {"runtime": "new"},
        {"strategy": "none"},
        {"gpus": 0},
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_by_name(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=rf"^{next(iter(wrong))}=") as caught:
        predict(perceptron, **wrong)
    assert "\n" not in str(caught.value)


def test_a_card_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="no card is known as 'Voodoo'"):
        predict(perceptron, card="Voodoo")


def test_an_error_of_the_model_is_one_sentence_with_its_line() -> None:
    def forward(self, x):
        return self.layer(x[:, :3])

    with pytest.raises(ModelError) as caught:
        doing(forward)
    line = f"{__file__}:{forward.__code__.co_firstlineno + 1}"
    assert str(caught.value).startswith(f"the forward pass failed at {line} in layer (Linear): RuntimeError: ")
    assert "\n" not in str(caught.value)


def test_an_output_that_is_no_loss_is_told() -> None:
    with pytest.raises(ConfigError, match="the model gives a tuple; say with loss= how it becomes a loss"):
        doing(lambda self, x: (self.layer(x), x))


def test_the_loss_of_an_output() -> None:
    class Output:
        loss = torch.tensor(3.0)

    assert loss_in(Output()) == loss_in({"loss": torch.tensor(3.0)}) == loss_in(torch.tensor([2.0, 4.0])) == 3
    assert loss_in(torch.tensor([2, 4])) == 3


@pytest.mark.parametrize(("text", "runtime"), [("2.11", (2, 11)), ("2.13.0+cu130", (2, 13)), ("2.12.1", (2, 12))])
def test_versions_of_torch(text: str, runtime: tuple[int, int]) -> None:
    assert parse_runtime(text) == runtime


def test_cards_by_name_or_as_they_are() -> None:
    assert choose_card("4090") is find_card("RTX 4090")
    assert choose_card(H200) is H200


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which is the card")
def test_where_nothing_names_a_card_a_warning_at_the_users_line_does() -> None:
    said = "this forecast is about the NVIDIA H200; name another with card="
    with pytest.warns(UserWarning, match=said) as told:
        made = forecast(nn.Linear(64, 64), rows, lambda out: out.sum(), batch_size=8)
    with pytest.warns(UserWarning, match=said) as again:
        largest_batch(nn.Linear(64, 64), rows, lambda out: out.sum(), memory="128MiB")
    assert made.card is H200 and [one.filename for one in (*told, *again)] == [__file__, __file__]


# -- nothing leaks -----------------------------------------------------------------------------------------------------


def real_results() -> list[torch.Tensor]:
    """Operators that a forecast sends another way, on real tensors."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 16, 16)
    lstm = nn.LSTM(16, 8)
    results = [
        functional.dropout(x, 0.5),
        functional.scaled_dot_product_attention(x, x, x, is_causal=True),
        functional.rms_norm(x, (16,), torch.ones(16)),
        functional.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
        x.bfloat16().softmax(-1, dtype=torch.float32),
        lstm(x[0])[0].detach(),
    ]
    with torch.autocast("cpu", torch.bfloat16):
        results += [
            functional.linear(x, x[0, 0]),
            functional.layer_norm(x.bfloat16(), (16,)),
            x.bfloat16().softmax(-1),
            torch.cat([x, x.bfloat16()]),
            x.bfloat16().exp(),
        ]
    return results


def same_results(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_real_tensors_behave_as_before() -> None:
    before = real_results()
    predict(Sequences, tokens, precision="bf16")
    assert same_results(before, real_results())


@pytest.mark.parametrize("fails_in", ["model", "batch", "forward", "loss", "optimizer"])
def test_real_tensors_behave_as_before_after_an_error(fails_in: str) -> None:
    def fail(*_):
        raise RuntimeError("on purpose")

    before = real_results()
    job = {"model": perceptron, "batch": rows, "loss": None, "optimizer": None}
    job |= {"model": lambda: Does(fail)} if fails_in == "forward" else {fails_in: fail}
    with pytest.raises(BrimError, match="on purpose"):
        predict(**job, precision="bf16")
    assert same_results(before, real_results())


def test_modes_and_optimizers_are_as_before() -> None:
    foreach, autocast = torch_optimizer._foreach_supported_types[:], torch.amp.autocast_mode.autocast.__init__
    predict(perceptron)
    assert torch_optimizer._foreach_supported_types == foreach
    assert torch.amp.autocast_mode.autocast.__init__ is autocast
    assert type(torch.zeros(1)) is torch.Tensor
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_random_numbers_are_not_used_up() -> None:
    before = torch.get_rng_state()
    predict(perceptron)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("make", [lambda n: torch.randint(0, 100, (n, 12)), lambda n: torch.randperm(96).view(8, 12)])
def test_random_whole_numbers_are_not_used_up(make) -> None:
    before = torch.get_rng_state()
    predict(Sequences, lambda n: ((make(n),), {}))
    assert torch.equal(torch.get_rng_state(), before)


def test_two_threads_get_what_one_gets() -> None:
    jobs = {"mlp": (perceptron, rows, "32"), "text": (Sequences, tokens, "bf16")}
    alone = {name: predict(model, batch, precision=p) for name, (model, batch, p) in jobs.items()}
    together: dict[str, list[Forecast]] = {name: [] for name in jobs}

    def ask(name: str) -> None:
        model, batch, precision = jobs[name]
        for _ in range(3):
            together[name].append(predict(model, batch, precision=precision))

    threads = [threading.Thread(target=ask, args=(name,)) for name in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == {name: [found] * 3 for name, found in alone.items()}


def test_another_thread_computes_on_as_before() -> None:
    x, weight = torch.randn(64, 64), torch.ones(64)
    right = functional.rms_norm(x, (64,), weight)
    inside, looked, wrong = threading.Event(), threading.Event(), []

    def forward(self, x):
        inside.set()
        looked.wait(10)
        return self.layer(x)

    def compute() -> None:
        inside.wait(10)
        wrong.append(not torch.equal(functional.rms_norm(x, (64,), weight), right))
        looked.set()

    thread = threading.Thread(target=compute)
    thread.start()
    doing(forward)
    thread.join()
    assert wrong == [False]


def test_a_captured_step_keeps_all_but_what_stands_between_steps():
    made = forecast(
        lambda: nn.Linear(256, 256), lambda n: ((torch.zeros(n, 256),), {}), batch_size=64, card="NVIDIA A10G"
    )
    standing = made.parts["parameters"] + made.parts["optimizer"]
    assert 0 < made.captured == made.reserved - standing
    assert made.as_json()["captured"] == made.captured
