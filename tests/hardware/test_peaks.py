"""The table of data sheets: every row is a card that brim knows, and no figure is out of its place."""

import pytest

from brim.hardware.cards import CARDS, H200, Card, find_card
from brim.hardware.peaks import PEAKS, USUAL, peak_of


def test_every_row_is_a_known_card() -> None:
    assert set(PEAKS) <= {card.name for card in CARDS}


@pytest.mark.parametrize("name", PEAKS)
def test_half_precision_is_not_slower_than_tf32_nor_that_than_full(name: str) -> None:
    peak = PEAKS[name]
    assert peak.half > peak.tf32 >= peak.full > 1e12
    assert 100e9 < peak.memory < 10e12


@pytest.mark.parametrize("name", ["Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA GeForce RTX 2080 Ti"])
def test_cards_before_ampere_have_no_tf32_and_compute_in_full(name: str) -> None:
    assert not find_card(name).is_capable_of_bf16
    assert PEAKS[name].tf32 == PEAKS[name].full


def test_a_card_without_a_data_sheet_has_no_peak() -> None:
    assert peak_of(Card("NVIDIA Something New", 1 << 34, (12, 0), 100)) is None
    assert peak_of(H200) == USUAL
