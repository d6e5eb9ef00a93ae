"""Sorting and selecting against what an H200 allocated (torch 2.11)."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from brim.memory.kernels.sorting import radix_sort_bytes

Ran = Callable[..., str]


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.fixture
def ran(ran: Callable[..., list[str]]) -> Ran:
    """As one text, because here the whole is compared."""
    return lambda *args, **kwargs: " ".join(ran(*args, **kwargs))


@pytest.mark.parametrize(
    ("count", "key", "value", "bits", "measured"),
    [
        (2048, 8, 8, None, 1),
        (3072, 8, 8, None, 67071),
        (262144, 8, 8, None, 4269567),
        (5000, 8, 8, 15, 87039),
        (262144, 8, 8, 5, 60927),  # one pass: nothing to swap with
        (6272, 4, 8, None, 86015),
        (12582912, 4, 8, None, 153400831),
        (3136, 4, 0, None, 1),
        (6272, 4, 0, None, 34815),
        (12582912, 4, 0, None, 52106751),
        (150771, 8, 8, 38, 2457087),
    ],
)
def test_radix_sort(count: int, key: int, value: int, bits: int | None, measured: int) -> None:
    assert radix_sort_bytes(count, key, value, bits) == measured


@pytest.mark.parametrize(
    ("shape", "measured"),
    [
        ((512, 1), "o0 o1 t8 f8"),
        ((1000, 384), "o0 o1 t3072 f3072"),
        ((3072,), "o0 o1 t24576 f24576"),
        ((8192,), "o0 o1 t65536 t109055 f109055 f65536"),
        ((32000,), "o0 o1 t256000 t398847 f398847 f256000"),
        ((9682944,), "o0 o1 t77463552 t118049279 f118049279 f77463552"),
    ],
)
def test_sort(ran: Ran, shape: tuple[int, ...], measured: str) -> None:
    assert ran("aten.sort.default", meta(*shape)) == measured
    assert ran("aten.sort.stable", meta(*shape), stable=True) == measured


def test_sort_of_many_long_rows_that_are_not_contiguous(ran: Ran) -> None:
    values = meta(7, 8192, 49).transpose(-1, -2)
    assert ran("aten.sort.default", values) == (
        "o0 o1 t11239424 t11239424 t22478848 t22478848 t33718527 f33718527 f22478848 f22478848 f11239424 f11239424"
    )


@pytest.mark.parametrize(
    ("values", "measured"),
    [
        (meta(1000, 384), "o0 o1"),
        (meta(128, 49).t(), "o0 o1 t25088 f25088"),
        (
            meta(1024, 3072),
            "o0 o1 t4096 t8192 t8192 t524288 t1048576 t4096 t4096 t1279 f1279 t1279 f1279 "
            "f4096 f4096 f1048576 f524288 f8192 f8192 f4096",
        ),
        (
            meta(50257),
            "o0 o1 t4 t8 t8 t25600 t1024 t200 t200 t1279 f1279 t1279 f1279 f200 f200 f1024 f25600 f8 f8 f4",
        ),
    ],
    ids=["small", "transposed", "wide", "one row"],
)
def test_topk(ran: Ran, values: Tensor, measured: str) -> None:
    assert ran("aten.topk.default", values, 5) == measured


@pytest.mark.parametrize(
    ("count", "measured"),
    [
        (512, "o0 t8 f8 t4096 t2048 t2048 t1 f1 f2048 f2048 f4096"),
        (16384, "o0 t8 f8 t131072 t65536 t65536 t209407 f209407 f65536 f65536 f131072"),
        (32000, "o0 t8 f8 t256000 t256000 t256000 t529919 f529919 f256000 f256000 f256000"),
        (6291456, "o0 t8 f8 t50331648 t50331648 t50331648 t102074879 f102074879 f50331648 f50331648 f50331648"),
    ],
)
def test_randperm(ran: Ran, count: int, measured: str) -> None:
    assert ran("aten.randperm.default", count) == measured


@pytest.mark.parametrize(
    ("values", "measured"),
    [
        (meta(512, 1), "t2048 t4096 t4096 f4096 f4096 t1 o0 f1 f2048"),
        (meta(8192), "t32768 t65536 t65536 t109055 f109055 f65536 f65536 t1 o0 f1 f32768"),
        (meta(128, 49).t(), "t25088 t25088 t50176 t50176 t86015 f86015 f50176 f50176 f25088 t1 o0 f1 f25088"),
    ],
    ids=["small", "large", "transposed"],
)
def test_median(ran: Ran, values: Tensor, measured: str) -> None:
    assert ran("aten.median.default", values) == measured


@pytest.mark.parametrize(
    ("shape", "measured"),
    [((512, 1), "t4 t1 f1 o0 t1023 f1023 f4"), ((8192,), "t4 t21503 f21503 o0 t1023 f1023 f4")],
)
def test_nonzero(ran: Ran, shape: tuple[int, ...], measured: str) -> None:
    assert ran("aten.nonzero.default", meta(*shape, dtype=torch.bool)) == measured


def test_mask_with_known_hits(ran: Ran) -> None:
    mask, hits = meta(32, 1000, dtype=torch.bool), meta(16204)
    measured = "t4 t21503 f21503 t259264 t1023 f1023 f4 o0 f259264"
    assert ran("aten.index.Tensor", meta(32, 1000), [mask], outputs=(hits,)) == measured
    assert ran("aten.masked_select.default", meta(32, 1000), mask, outputs=(hits,)) == measured


def test_mask_with_unknown_hits_is_bounded_by_all(ran: Ran) -> None:
    mask = meta(32, 1000, dtype=torch.bool)
    assert f"t{32 * 1000 * 2 * 8}" in ran("aten.index.Tensor", meta(32, 1000), [mask]).split()


def test_mask_behind_another_dimension(ran: Ran) -> None:
    words = ran("aten.index.Tensor", meta(4, 100), [None, meta(100, dtype=torch.bool)], outputs=(meta(4, 30),))
    assert "t240" in words.split()


def test_indices_need_nothing(ran: Ran) -> None:
    assert ran("aten.index.Tensor", meta(5000, 256), [meta(4096, dtype=torch.int64)]) == "o0"


@pytest.mark.parametrize(
    ("count", "measured"),
    [
        (512, "t2048 t1 f1 o0 t8 t1023 f1023 f8 f2048"),
        (50257, "t201028 t217087 f217087 o0 t8 t1023 f1023 f8 f201028"),
    ],
)
def test_unique(ran: Ran, count: int, measured: str) -> None:
    values = meta(count, dtype=torch.int32)
    assert ran("aten._unique2.default", values, outputs=(values,)) == measured


def test_unique_output_keeps_the_length_of_its_input(ran: Ran) -> None:
    words = ran("aten._unique2.default", meta(512, dtype=torch.int32), outputs=(meta(12, dtype=torch.int32),))
    assert "o0 t2000" in words


@pytest.mark.parametrize(
    ("values", "output", "measured"),
    [
        (meta(512, 100), meta(512, 100), "o0"),
        (meta(3072), meta(3072), "o0 t1023 f1023"),
        (meta(2048, 1000).t(), meta(1000, 2048), "o0 t8192000 f8192000"),
        (meta(4, 512, dtype=torch.bool), meta(4, 512, dtype=torch.int64), "o0 t16384 f16384"),
    ],
    ids=["rows", "whole", "transposed", "bool"],
)
def test_cumsum(ran: Ran, values: Tensor, output: Tensor, measured: str) -> None:
    assert ran("aten.cumsum.default", values, -1, outputs=(output,)) == measured


def test_roll(ran: Ran) -> None:
    assert ran("aten.roll.default", meta(768, 128), [1], [0]) == "o0"
    assert ran("aten.roll.default", meta(1024, 1000).t(), [1], [0]) == "t4096000 o0 f4096000"
    assert ran("aten.roll.default", meta(512, 1), [1, 1], [0, 1]) == "t2048 o0 f2048"


def test_histc(ran: Ran) -> None:
    assert ran("aten.histc.default", meta(8192)) == "o0 t4 f4 t4 f4"
    assert ran("aten.histc.default", meta(128, 49).t()) == "o0 t4 t25088 f25088 f4 t4 t25088 f25088 f4"


@pytest.mark.parametrize("rows", [1, 5, 200])
def test_longer_rows_need_no_less(ran: Ran, rows: int) -> None:
    def most(length: int) -> int:
        held = best = 0
        for word in ran("aten.sort.default", meta(rows, length)).split()[2:]:
            held += int(word[1:]) * (1 if word[0] == "t" else -1)
            best = max(best, held)
        return best

    sizes = [most(length) for length in (100, 4096, 4097, 10000, 50000)]
    assert sizes == sorted(sizes)


def test_nothing_to_sort(ran: Ran) -> None:
    assert ran("aten.sort.default", meta(0)) == "o0 o1"
    assert ran("aten.randperm.default", 0) == "o0 t8 f8"
