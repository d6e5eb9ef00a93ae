"""The rule for convolutions, against what convolutions allocated on an H200 (cuDNN 9.19, torch 2.11)."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from brim.hardware.cards import H200
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.kernels.convolution import RULES, convolution, convolution_backward
from brim.memory.kernels.convolution_rules import Problem, forward, input_gradient, weight_gradient
from brim.memory.kernels.scope import Call, Scope
from brim.memory.trace.trace import Recorder

#: cuDNN adds some hundred bytes for alignment and counters, which the rule does not follow one by one.
ROUNDING = 1024


def image(*shape: int, dtype: torch.dtype = torch.float32, channels_last: bool = False) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype, device="meta")
    return tensor.to(memory_format=torch.channels_last) if channels_last else tensor


def settings(x: Tensor, stride: int, padding: int, groups: int, transposed: bool) -> tuple[object, ...]:
    """The arguments from stride on, alike in both directions."""
    dimensions = x.dim() - 2
    return [stride] * dimensions, [padding] * dimensions, [1] * dimensions, transposed, [0] * dimensions, groups


def output_of(x: Tensor, w: Tensor, stride: int, padding: int, groups: int, transposed: bool) -> Tensor:
    return torch.ops.aten.convolution(x, w, None, *settings(x, stride, padding, groups, transposed))


def run_forward(
    x: Tensor, w: Tensor, stride: int = 1, padding: int = 0, groups: int = 1, transposed: bool = False
) -> list[str | int]:
    y = output_of(x, w, stride, padding, groups, transposed)
    scope = Scope()
    arguments = (x, w, None, *settings(x, stride, padding, groups, transposed))
    convolution(Call("aten.convolution.default", arguments, {}, (y,), H200), scope)
    return told(scope)


def run_backward(
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    transposed: bool = False,
    wanted: tuple[bool, bool, bool] = (True, True, False),
) -> list[str | int]:
    scope = Scope()
    arguments = (grad, x, w, [0], *settings(x, stride, padding, groups, transposed), list(wanted))
    convolution_backward(Call("aten.convolution_backward.default", arguments, {}, (None, None, None), H200), scope)
    return told(scope)


def told(scope: Scope) -> list[str | int]:
    """What a rule told: an output by its name, a temporary by its size and, given back, by its size below zero."""
    scope.close()
    sizes = {step.temporary: step.size for step in scope.steps if step.temporary is not None and step.size >= 0}
    lines: list[str | int] = []
    for step in scope.steps:
        if step.output is not None:
            lines.append(f"output {step.output}")
        elif step.temporary is not None:
            lines.append(step.size if step.size >= 0 else -sizes[step.temporary])
    return lines


def same(told: list[str | int], measured: list[str | int]) -> bool:
    """The same steps; sizes but for the rounding."""
    if len(told) != len(measured):
        return False
    return all(
        (isinstance(a, int) and isinstance(b, int) and abs(a - b) <= ROUNDING) or a == b
        for a, b in zip(told, measured, strict=True)
    )


FP32, BF16 = torch.float32, torch.bfloat16

FORWARD = [
    # x, w, stride, padding, groups, type, channels last, measured
    pytest.param((16, 64, 56, 56), (128, 64, 3, 3), 2, 1, 1, FP32, False, 13_139_984, id="fp32 writes planes"),
    pytest.param((16, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1, FP32, False, 61_051_664, id="fp32 first layer"),
    pytest.param((16, 128, 28, 28), (256, 128, 1, 1), 2, 0, 1, FP32, False, 9_633_808, id="fp32 strided 1x1"),
    pytest.param((2, 256, 56, 56), (256, 8, 3, 3), 2, 1, 32, FP32, False, 8_101_904, id="fp32 grouped"),
    pytest.param((64, 3, 64, 64), (16, 3, 3, 3), 2, 1, 1, FP32, False, 0, id="fp32 shallow"),
    pytest.param((8, 352, 14, 14), (128, 352, 1, 1), 1, 0, 1, FP32, False, 0, id="fp32 1x1"),
    pytest.param((96, 480, 14, 14), (480, 1, 5, 5), 1, 2, 480, FP32, False, 0, id="fp32 depthwise"),
    pytest.param((16, 3, 512, 512), (32, 3, 3, 3), 1, 1, 1, FP32, True, 50_335_120, id="fp32 thin channels last"),
    pytest.param((16, 192, 256, 256), (96, 192, 3, 3), 1, 1, 1, BF16, False, 604_311_699, id="bf16 3x3"),
    pytest.param((96, 64, 1024), (64, 64, 3), 1, 1, 1, BF16, False, 25_190_547, id="bf16 one dimension"),
    pytest.param((8, 32, 16, 56, 56), (64, 32, 3, 3, 3), 1, 1, 1, BF16, False, 77_181_075, id="bf16 3 dimensions"),
    pytest.param((40, 3, 160, 160), (64, 3, 4, 4), 2, 2, 1, BF16, False, 49_992_720, id="bf16 fills up channels"),
    pytest.param((128, 928, 7, 7), (128, 928, 1, 1), 1, 0, 1, BF16, False, 13_246_480, id="bf16 1x1 of 49 pixels"),
    pytest.param((128, 48, 28, 28), (288, 48, 1, 1), 1, 0, 1, BF16, False, 0, id="bf16 1x1"),
    pytest.param((80, 960, 14, 14), (960, 1, 3, 3), 1, 1, 960, BF16, False, 0, id="bf16 depthwise"),
    pytest.param((12, 64, 32, 32), (128, 64, 4, 4), 2, 2, 1, BF16, True, 0, id="bf16 channels last"),
]


@pytest.mark.parametrize(("x", "w", "stride", "padding", "groups", "dtype", "last", "measured"), FORWARD)
def test_forward_takes_what_was_measured(
    x: tuple[int, ...],
    w: tuple[int, ...],
    stride: int,
    padding: int,
    groups: int,
    dtype: torch.dtype,
    last: bool,
    measured: int,
) -> None:
    steps = run_forward(
        image(*x, dtype=dtype, channels_last=last), image(*w, dtype=dtype, channels_last=last), stride, padding, groups
    )
    assert same(steps, ["output 0", measured, -measured] if measured else ["output 0"])


@pytest.mark.parametrize(
    ("x", "w", "stride", "padding", "dtype", "measured"),
    [
        ((40, 1024, 4, 4), (1024, 512, 2, 2), 2, 0, BF16, 8_126_480),
        ((16, 256, 160, 160), (256, 128, 4, 4), 2, 1, FP32, 1_260_388_499),
        ((2, 32, 64, 64), (32, 3, 4, 4), 2, 1, FP32, 0),
    ],
)
def test_transposed_forward_is_the_gradient_of_an_image(
    x: tuple[int, ...], w: tuple[int, ...], stride: int, padding: int, dtype: torch.dtype, measured: int
) -> None:
    steps = run_forward(image(*x, dtype=dtype), image(*w, dtype=dtype), stride, padding, transposed=True)
    assert same(steps, ["output 0", measured, -measured] if measured else ["output 0"])


@pytest.mark.parametrize(
    ("x", "w", "y", "stride", "padding", "groups", "dtype", "last", "for_x"),
    [
        ((48, 64, 112, 112), (128, 64, 3, 3), (112, 112), 1, 1, 1, BF16, False, 231_358_611),
        ((96, 104, 28, 28), (208, 104, 1, 1), (14, 14), 2, 0, 1, BF16, False, 23_482_515),
        ((12, 544, 7, 7), (128, 544, 1, 1), (7, 7), 1, 0, 1, BF16, False, 0),
        ((48, 2048, 4, 4), (512, 2048, 1, 1), (4, 4), 1, 0, 1, BF16, False, 3_932_176),
        ((24, 576, 7, 7), (576, 1, 5, 5), (7, 7), 1, 2, 576, BF16, False, 0),
        ((32, 128, 16, 16), (256, 128, 3, 3), (16, 16), 1, 1, 1, BF16, True, 0),
        ((256, 128, 28, 28), (32, 128, 3, 3), (28, 28), 1, 1, 1, FP32, False, 128_598_163),
        ((128, 128, 128), (256, 128, 7), (128,), 1, 3, 1, FP32, False, 26_083_344),
        ((48, 64, 48), (64, 64, 3), (48,), 1, 1, 1, FP32, False, 0),
        ((8, 192, 7, 7), (1152, 192, 1, 1), (7, 7), 1, 0, 1, FP32, False, 0),
    ],
)
def test_gradient_of_x_takes_what_was_measured(
    x: tuple[int, ...],
    w: tuple[int, ...],
    y: tuple[int, ...],
    stride: int,
    padding: int,
    groups: int,
    dtype: torch.dtype,
    last: bool,
    for_x: int,
) -> None:
    grad = image(x[0], w[0], *y, dtype=dtype, channels_last=last)
    inputs = image(*x, dtype=dtype, channels_last=last), image(*w, dtype=dtype, channels_last=last)
    steps = run_backward(grad, *inputs, stride, padding, groups, wanted=(True, False, False))
    assert same(steps, ["output 0", for_x, -for_x] if for_x else ["output 0"])


@pytest.mark.parametrize(
    ("x", "w", "y", "stride", "padding", "groups", "dtype", "last", "for_w"),
    [
        ((48, 128, 8, 8), (256, 128, 3, 3), (8, 8), 1, 1, 1, BF16, False, 2_949_136),
        ((12, 64, 56, 56), (64, 64, 3, 3), (56, 56), 1, 1, 1, BF16, False, 11_625_127),
        ((64, 288, 14, 14), (128, 288, 1, 1), (14, 14), 1, 0, 1, BF16, False, 9_437_184),
        ((16, 512, 48), (512, 512, 1), (48,), 1, 0, 1, BF16, False, 1_572_880),
        ((40, 144, 56, 56), (144, 1, 5, 5), (28, 28), 2, 2, 144, BF16, True, 5_120_000),
        ((4, 960, 7, 7), (960, 1, 3, 3), (7, 7), 1, 1, 960, BF16, False, 0),
        ((256, 24, 1, 1), (96, 24, 1, 1), (1, 1), 1, 0, 1, BF16, False, 0),
        ((512, 960, 1, 1), (320, 960, 1, 1), (1, 1), 1, 0, 1, FP32, False, 629_145_600),
        ((12, 128, 56, 56), (128, 128, 1, 1), (56, 56), 1, 0, 1, FP32, False, 786_432),
        ((1, 128, 64, 64), (256, 128, 3, 3), (64, 64), 1, 1, 1, FP32, False, 18_874_368),
        ((128, 64, 96), (64, 64, 7), (96,), 1, 3, 1, FP32, False, 2_184_183_808),
        ((512, 1, 96), (32, 1, 3), (96,), 1, 1, 1, FP32, False, 0),
        ((40, 3, 96, 96), (16, 3, 4, 4), (49, 49), 2, 2, 1, FP32, False, 0),
    ],
)
def test_gradient_of_the_filter_takes_what_was_measured(
    x: tuple[int, ...],
    w: tuple[int, ...],
    y: tuple[int, ...],
    stride: int,
    padding: int,
    groups: int,
    dtype: torch.dtype,
    last: bool,
    for_w: int,
) -> None:
    grad = image(x[0], w[0], *y, dtype=dtype, channels_last=last)
    inputs = image(*x, dtype=dtype, channels_last=last), image(*w, dtype=dtype, channels_last=last)
    steps = run_backward(grad, *inputs, stride, padding, groups, wanted=(False, True, False))
    assert same(steps, ["output 1", for_w, -for_w] if for_w else ["output 1"])


def test_the_gradient_of_the_bias_comes_last() -> None:
    grad, x, w = image(8, 16, 8, 8), image(8, 8, 8, 8), image(16, 8, 1, 1)
    assert run_backward(grad, x, w, wanted=(True, True, True))[-1] == "output 2"


def test_a_slice_of_channels_is_copied_before_the_output() -> None:
    half_of_the_channels = image(32, 116, 28, 28)[:, :58]
    assert run_forward(half_of_the_channels, image(58, 58, 1, 1)) == [5_820_416, "output 0", -5_820_416]


def test_a_slice_of_a_gradient_is_copied_for_each_of_the_two() -> None:
    grad = image(40, 160, 14, 14, dtype=BF16)[:, 128:]
    steps = run_backward(grad, image(40, 128, 14, 14, dtype=BF16), image(32, 128, 3, 3, dtype=BF16), padding=1)
    copy, workspace = 501_760, 2_582_544
    around = [workspace, -workspace, -copy]
    assert same(steps, ["output 0", copy, *around, copy, "output 1", *around])


def test_a_transposed_convolution_copies_such_a_slice_once() -> None:
    grad = image(2, 1024, 32, 32)[:, :512]
    steps = run_backward(
        grad, image(2, 1024, 16, 16), image(1024, 512, 2, 2), 2, transposed=True, wanted=(True, True, True)
    )
    copy, workspace = 4_194_304, 14_680_080
    around = [workspace, -workspace]
    assert same(steps, [copy, "output 0", *around, "output 1", *around, -copy, "output 2"])


def test_channels_last_meets_planes() -> None:
    """A ConvNeXt: the image has channels last, the filter and the gradient do not, and both are copied."""
    grad, x, w = image(8, 768, 7, 7), image(8, 384, 14, 14, channels_last=True), image(768, 384, 2, 2)
    steps = run_backward(grad, x, w, 2, wanted=(True, True, True))
    assert steps == [1_204_224, "output 0", 4_718_592, -4_718_592, "output 1", -1_204_224, "output 2"]


def test_gradients_of_embedded_patches_are_laid_out_as_planes() -> None:
    """A ViT: the gradient of the patches has channels last, with a gap for the class token; the image has planes."""
    grad = image(8, 197, 768)[:, 1:].transpose(1, 2).unflatten(2, (14, 14))
    steps = run_backward(grad, image(8, 3, 224, 224), image(768, 3, 16, 16), 16, wanted=(False, True, True))
    assert steps[:2] == [4_816_896, "output 1"]
    bias = steps.index("output 2")
    assert steps[bias - 1] == -4_816_896
    # The sum over all but the channels, which lie last, is staged; a ViT's was 72,351,744 bytes for 120 images of 384.
    assert steps[bias + 1 :] == [9_830_400, 24, -24, -9_830_400]


def test_permuted_sequences_are_laid_out_as_planes() -> None:
    sequence = image(16, 96, 64).transpose(1, 2)
    assert run_forward(sequence, image(64, 64, 1)) == [393_216, "output 0", -393_216]


CHANGES: list[dict[str, int | bool]] = [
    {},
    {"element": 4},
    {"element": 4, "squares": 196},
    {"channels_last": True},
    {"channels_last": True, "element": 4},
    {"taps": 1},
    {"taps": 1, "element": 4},
    {"taps": 1, "strided": True, "pixels_out": 28 * 28},
    {"channels_in": 3, "taps": 49},
    {"channels_in": 3, "element": 4, "channels_last": True},
    {"channels_in": 1},
    {"pixels_in": 1, "pixels_out": 1, "taps": 1},
    {"groups": 32, "channels_out": 64},
    {"groups": 64, "channels_out": 64, "channels_last": True},
    {"channels_in": 1024, "channels_out": 1024, "pixels_in": 49, "pixels_out": 49},
]


@pytest.mark.parametrize("workspace", [forward, input_gradient, weight_gradient])
@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_workspace_is_never_negative(
    problem: Problem, workspace: Callable[[Problem], int], changes: dict[str, int | bool]
) -> None:
    for batch in (0, 1, 3, 64, 1000):
        assert workspace(replace(problem, **{"squares": 0, **changes, "batch": batch})) >= 0


@pytest.mark.parametrize("workspace", [forward, input_gradient, weight_gradient])
@pytest.mark.parametrize("element", [2, 4])
def test_a_workspace_grows_with_the_batch(problem: Problem, workspace: Callable[[Problem], int], element: int) -> None:
    sizes = [workspace(replace(problem, element=element, batch=batch, squares=0)) for batch in (16, 32, 64, 128, 256)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 8 * sizes[0]


def test_the_rule_splits_a_pointwise_weight_gradient_over_half_of_the_blocks(problem: Problem) -> None:
    """As measured; the neighbours, which are asked first, take it for 44 shares of 66."""
    pointwise = replace(
        problem,
        batch=24,
        channels_in=480,
        channels_out=112,
        pixels_in=196,
        pixels_out=196,
        taps=1,
        element=4,
        channels_last=True,
        squares=0,
    )
    assert abs(weight_gradient(pointwise) - 14_192_896) <= ROUNDING


def test_a_larger_card_splits_into_more_sums(problem: Problem) -> None:
    on_this_card = replace(problem, element=4, batch=64, squares=0)
    assert weight_gradient(replace(on_this_card, blocks=264)) > weight_gradient(on_this_card)


def test_both_directions_have_a_rule() -> None:
    assert {"aten.convolution.default", "aten.convolution_backward.default"} <= set(RULES)


@pytest.mark.parametrize("fold", [nn.Unfold(3), nn.Unfold(2, stride=4), nn.Fold(6, 3)])
def test_an_unfolded_image_and_its_gradient_lie_in_the_storages_that_torch_gives_them(fold: nn.Module) -> None:
    def storages() -> list[int]:
        given = torch.rand(2, 9, 16) if isinstance(fold, nn.Fold) else torch.rand(2, 3, 8, 8)
        middle = given.requires_grad_(True) * 1
        sizes = []
        middle.register_hook(lambda grad: sizes.append(grad.untyped_storage().nbytes()))
        made = fold(middle)
        made.sum().backward()
        return [made.untyped_storage().nbytes(), *sizes]

    recorder = Recorder(H200, (2, 11))
    recorder.watching = True
    with as_cuda(H200, (2, 11), recorder), recorder:
        forecast = storages()
    assert forecast == storages()


def test_what_unfolding_makes_larger_is_beside_a_tensor_like_the_input(ran: Callable[..., list[str]]) -> None:
    small, large = image(2, 3, 8, 8), image(2, 27, 36)
    assert ran("aten.im2col.default", small, outputs=(large,)) == [f"t{small.nbytes}", "o0", f"f{small.nbytes}"]
    assert ran("aten.col2im.default", large, outputs=(small,)) == ["o0"]
    assert small.untyped_storage().nbytes() == large.nbytes
