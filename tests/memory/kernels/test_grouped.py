"""What grouped matrix products take for themselves, from torch's sources."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from brim.hardware.cards import find_card
from brim.memory.kernels.grouped import is_cutlass

Ran = Callable[..., list[str]]
PRODUCT = "aten._grouped_mm.default"
SMS = 132


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("left", "right", "arguments", "maps"),
    [
        (meta(512, 64), meta(8, 64, 256), 8 * 60, 5),  # 64 rows a group
        (meta(8192, 64), meta(8, 64, 256), 8 * 60, 4),
        (meta(8192, 64), meta(7, 64, 256), 7 * 60 + 24, 4),  # pointers are aligned to 16 bytes
        (meta(256, 8192), meta(8192, 512), 8 * 60, 4),  # the gradient of the weights
    ],
)
def test_one_buffer_of_arguments_and_one_of_tensor_maps(
    ran: Ran, left: Tensor, right: Tensor, arguments: int, maps: int
) -> None:
    groups = right.shape[0] if right.dim() == 3 else 8
    words = ran(PRODUCT, left, right, offs=meta(groups, dtype=torch.int32))
    workspace = maps * 128 * SMS
    assert words == ["o0", f"t{arguments}", f"t{workspace}", f"f{workspace}", f"f{arguments}"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_group_by_group_takes_nothing_of_its_own(ran: Ran, dtype: torch.dtype) -> None:
    words = ran(PRODUCT, meta(512, 64, dtype=dtype), meta(8, 64, 256, dtype=dtype), meta(8, dtype=torch.int32))
    assert words == ["o0"]


@pytest.mark.parametrize(("card", "expected"), [("NVIDIA H200", True), ("A100 80GB", False), ("RTX 4090", False)])
def test_which_cards_have_the_kernel(card: str, expected: bool) -> None:
    assert is_cutlass(find_card(card), meta(8, 8)) == expected


def test_scaled_products_have_pointers_to_their_scales_too(ran: Ran) -> None:
    left, right = meta(4096, 64, dtype=torch.float8_e4m3fn), meta(8, 64, 256, dtype=torch.float8_e4m3fn)
    words = ran("aten._scaled_grouped_mm.default", left, right, None, None, offs=meta(8, dtype=torch.int32))
    assert words[1] == f"t{8 * (60 + 16)}"
