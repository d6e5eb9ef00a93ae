import pytest
import torch

from brim.hardware.cards import H200, find_card
from brim.memory.kernels.blas import MIB, PRODUCTS, BlasWorkspaces

MATRIX, VECTOR, COLUMN = torch.empty(4, 4), torch.empty(4), torch.empty(4, 1)


def test_the_first_product_takes_a_workspace_and_the_next_none() -> None:
    blas = BlasWorkspaces(H200, (2, 11))
    assert blas.asked_for("aten.mm.default", (MATRIX, MATRIX), False) == [32 * MIB]
    assert all(blas.asked_for(name, (MATRIX, MATRIX, MATRIX), False) == [] for name in PRODUCTS)


def test_the_backward_pass_takes_one_of_its_own() -> None:
    blas = BlasWorkspaces(H200, (2, 11))
    assert [blas.asked_for("aten.mm.default", (), backward) for backward in (False, True, False, True)] == [
        [32 * MIB], [32 * MIB], [], [],
    ]  # fmt: skip


def test_a_fused_bias_takes_a_mebibyte_more() -> None:
    blas = BlasWorkspaces(H200, (2, 11))
    assert blas.asked_for("aten.addmm.default", (VECTOR, MATRIX, MATRIX), False) == [32 * MIB, MIB]
    assert blas.asked_for("aten.addmm.default", (VECTOR, MATRIX, MATRIX), False) == []


@pytest.mark.parametrize("args", [(MATRIX, MATRIX, MATRIX), (VECTOR, MATRIX, COLUMN), (VECTOR, COLUMN, COLUMN.T)])
def test_a_bias_that_is_not_fused_takes_none(args: tuple) -> None:
    assert BlasWorkspaces(H200, (2, 11)).asked_for("aten.addmm.default", args, False) == [32 * MIB]


def test_other_operators_take_nothing() -> None:
    assert BlasWorkspaces(H200, (2, 11)).asked_for("aten.add.Tensor", (MATRIX, MATRIX), False) == []


@pytest.mark.parametrize(("card", "size"), [("RTX 4090", 8_519_680), ("V100 32GB", 8_519_680), ("B200", 32 * MIB)])
def test_older_cards_take_less(card: str, size: int) -> None:
    assert BlasWorkspaces(find_card(card), (2, 11)).asked_for("aten.bmm.default", (), False) == [size]
