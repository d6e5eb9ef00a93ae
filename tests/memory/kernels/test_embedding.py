"""Embedding tables against what an H200 allocated (torch 2.11)."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

KIB = 1024
Ran = Callable[..., list[str]]


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def indices(*shape: int) -> Tensor:
    return meta(*shape, dtype=torch.int64)


def strided(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Not contiguous: an expanded number."""
    return meta(1, dtype=dtype).expand(*shape)


def peak(words: list[str], *outputs: int) -> int:
    held = most = 0
    for word in words:
        number = int(word[1:])
        held += outputs[number] if word[0] == "o" else number if word[0] == "t" else -number
        most = max(most, held)
    return most


GRADIENT = "aten.embedding_dense_backward.default"


def test_gradient_in_order(ran: Ran) -> None:
    words = ran(GRADIENT, meta(4096, 8, dtype=torch.bfloat16), indices(4096), 5000, 0, False)
    assert " ".join(words) == (
        "t32768 t32768 t32768 t83455 f83455 f32768 o0 t32768 t8 t32768 t1279 f1279 f32768 t32768 t32768 t1279 f1279 "
        "t8 t36040 t144160 f144160 f36040 f8 f32768 f32768 f8 f32768 f32768 f32768"
    )


def test_gradient_by_frequency_counts_first(ran: Ran) -> None:
    words = ran(GRADIENT, meta(100, 128), indices(100), 1000, 0, True)
    assert " ".join(words[:13]) == "t800 t800 t800 t1 f1 f800 t800 t1279 f1279 t1279 f1279 o0 t800"


@pytest.mark.parametrize(
    ("dtype", "lookups", "width", "rows", "tail"),
    [
        (torch.float16, 5000, 64, 1000, "t12000 t384000"),
        (torch.float16, 5000, 64, 32, "t4256 t4256 t8192"),
        (torch.bfloat16, 100000, 64, 512, "t84096 t84096 t131072"),
        (torch.bfloat16, 65536, 128, 1000, "t60424 t3867136"),
        (torch.float32, 16384, 128, 50257, "t144176 t9227264"),
        (torch.float32, 16384, 768, 100, "t13904 t13904"),
        (torch.bfloat16, 4096, 4, 512, "t7368 t14736"),
    ],
)
def test_pieces_are_summed_in_buffers_or_atomically(
    ran: Ran, dtype: torch.dtype, lookups: int, width: int, rows: int, tail: str
) -> None:
    words = ran(GRADIENT, meta(lookups, width, dtype=dtype), indices(lookups), rows, -1, False)
    assert tail in " ".join(words)
    assert [word for word in words if word[0] == "t"][-len(tail.split()) :] == tail.split()


@pytest.mark.parametrize(
    ("lookups", "scratch"),
    [(3073, 67583), (4096, 83455), (5000, 99327), (16384, 283135), (65536, 1080831), (100000, 1639423)],
)
def test_scratch_of_the_sort(ran: Ran, lookups: int, scratch: int) -> None:
    assert f"t{scratch}" in ran(GRADIENT, meta(lookups, 1), indices(lookups), 200000, -1, False)


def test_few_lookups_need_nothing(ran: Ran) -> None:
    assert ran(GRADIENT, meta(3072, 100), indices(3072), 1000, 0, False) == ["o0"]


def test_what_is_not_contiguous_is_copied(ran: Ran) -> None:
    assert ran(GRADIENT, strided(2048, 64), indices(2048), 100000, -1, False) == ["t524288", "o0", "f524288"]
    assert ran("aten.embedding.default", meta(2, 768), indices(128).expand(8, 128)) == ["t8192", "o0", "f8192"]
    assert ran("aten.embedding.default", meta(2, 768), indices(8, 128)) == ["o0"]


BAG = "aten._embedding_bag_backward.default"


def bag_arguments(bags: int, width: int, lookups: int, rows: int, mode: int) -> tuple[object, ...]:
    maximum = indices(bags, width) if mode == 2 else indices(0)
    offsets = indices(bags)
    return strided(bags, width), indices(lookups), offsets, indices(lookups), offsets, maximum, rows, False, mode, False


@pytest.mark.parametrize(
    ("bags", "width", "lookups", "rows", "mode", "measured"),
    [
        (5000, 64, 5000, 1000, 2, 1280000 + 256000),
        (1024, 768, 4096, 5000, 1, 32544984),
        (39, 1024, 768, 200000, 0, 822854256),
        (25000, 100, 100000, 20000, 0, 32960016),
    ],
)
def test_bag_gradient(ran: Ran, bags: int, width: int, lookups: int, rows: int, mode: int, measured: int) -> None:
    words = ran(BAG, *bag_arguments(bags, width, lookups, rows, mode))
    assert peak(words, rows * width * 4) == pytest.approx(measured, abs=KIB)


def test_dense_bag_gradient_is_the_same(ran: Ran) -> None:
    grad, index, _, bag, size, maximum, *rest = bag_arguments(1024, 768, 4096, 5000, 1)
    rows, frequency, mode, _ = rest
    dense = ran("aten._embedding_bag_dense_backward.default", grad, index, bag, size, maximum, rows, frequency, mode)
    assert dense == ran(BAG, *bag_arguments(1024, 768, 4096, 5000, 1))


def test_bag_makes_its_outputs_in_this_order(ran: Ran) -> None:
    assert ran("aten._embedding_bag.default", meta(1000, 64), indices(5000), indices(5000)) == ["o2", "o1", "o0", "o3"]


PUT = "aten.index_put.default"


@pytest.mark.parametrize(
    ("rows", "width", "lookups", "scratch"),
    [(512, 4, 5000, 87039), (100, 1, 16384, 6655), (5000, 1024, 65536, 1068543), (200000, 32, 16384, 272895)],
)
def test_accumulating_sorts_on_the_bits_it_needs(ran: Ran, rows: int, width: int, lookups: int, scratch: int) -> None:
    words = ran(PUT, meta(rows, width), [indices(lookups)], meta(lookups, width), True)
    size = lookups * 8
    held = f"t{size} t{size} f{size} t{size} t{size} t{size} t{scratch} f{scratch} f{size} f{size} f{size} f{size}"
    assert " ".join(words) == f"o0 t8 t1 f1 f8 t8 t1 f1 f8 {held}"


def test_accumulating_copies_values_that_are_not_contiguous(ran: Ran) -> None:
    words = ran(PUT, meta(20000, 8), [indices(3073)], strided(3073, 8), True)
    assert words[12:13] == ["t98336"]


def test_putting_without_accumulating_needs_nothing(ran: Ran) -> None:
    assert ran(PUT, meta(50257, 8), [indices(100)], meta(100, 8)) == ["o0"]
    assert ran("aten.index_put_.default", meta(50257, 8), [None, indices(100)], meta(50257, 100)) == []


def test_in_place_makes_no_output(ran: Ran) -> None:
    words = ran("aten.index_put_.default", meta(100, 8), [indices(100)], meta(100, 8), True)
    assert "o0" not in words
