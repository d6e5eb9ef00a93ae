import pytest

from brim.hardware.cards import CARDS, H200, find_card
from brim.memory.context import BARE, CUBLAS, CUDNN, MIB, context_of, libraries_of
from brim.memory.trace.trace import Storage, Trace


def trace_of(*operators: str) -> Trace:
    return Trace([Storage(1, operator, "forward") for operator in operators])


@pytest.mark.parametrize(
    ("cublas", "cudnn", "measured"), [(False, False, 610), (False, True, 630), (True, False, 742), (True, True, 762)]
)
def test_the_measured_card_is_known_exactly(cublas: bool, cudnn: bool, measured: int) -> None:
    context = context_of(H200, cublas, cudnn)
    assert context.size == context.low == context.high == measured * MIB


@pytest.mark.parametrize("card", [card for card in CARDS if not card.measured], ids=lambda card: card.name)
def test_other_cards_have_a_band(card) -> None:
    context = context_of(card, True, True)
    assert 200 * MIB < context.low < context.size < context.high < 1300 * MIB


def test_the_context_follows_the_multiprocessors() -> None:
    small, large = (context_of(find_card(name), False, False).size for name in ("RTX 3060", "RTX 4090"))
    assert 0.25 * BARE < small < large < BARE


def test_libraries_add_to_it_on_every_card() -> None:
    card = find_card("RTX 4090")
    assert context_of(card, True, True).size - context_of(card, False, False).size == CUBLAS + CUDNN


@pytest.mark.parametrize(
    ("operators", "uses"),
    [
        ((), (False, False)),
        (("aten.add.Tensor", "aten.native_layer_norm.default"), (False, False)),
        (("aten.mm.default",), (True, False)),
        (("aten.addmm.default",), (True, False)),
        (("aten.bmm.default",), (True, False)),
        (("aten.baddbmm.default",), (True, False)),
        (("aten.convolution.default",), (False, True)),
        (("aten.convolution_backward.default", "aten.mm.default"), (True, True)),
        (("aten._cudnn_rnn.default",), (False, True)),
    ],
)
def test_libraries_are_told_by_the_operators(operators: tuple[str, ...], uses: tuple[bool, bool]) -> None:
    assert libraries_of(trace_of(*operators)) == uses
