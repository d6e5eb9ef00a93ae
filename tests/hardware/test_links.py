"""What connects GPUs: by card, by name, by what was measured."""

import pytest

from brim.errors import ConfigError
from brim.hardware.cards import CARDS, H200, find_card
from brim.hardware.links import LINKS, find_link, link_of


@pytest.mark.parametrize(
    ("card", "link"),
    [
        ("NVIDIA B200", "nvlink5"),
        ("NVIDIA H200", "nvlink4"),
        ("NVIDIA H100 80GB HBM3", "nvlink4"),
        ("NVIDIA H100 PCIe", "pcie5"),
        ("NVIDIA A100-SXM4-80GB", "nvlink3"),
        ("NVIDIA A100 80GB PCIe", "pcie4"),
        ("Tesla V100-SXM2-16GB", "nvlink2"),
        ("NVIDIA GeForce RTX 5090", "pcie5"),
        ("NVIDIA GeForce RTX 4090", "pcie4"),
        ("Tesla T4", "pcie3"),
    ],
)
def test_sxm_cards_have_nvlink_and_others_the_pcie_of_their_time(card: str, link: str) -> None:
    assert link_of(find_card(card)).name == link


def test_every_card_has_a_link_within_its_machine() -> None:
    assert all(link_of(card).within_machine for card in CARDS)


def test_nvlink_is_that_of_the_card() -> None:
    assert find_link("nvlink", H200).name == "nvlink4"
    assert find_link("NVLink", find_card("NVIDIA A100 80GB PCIe")).name == "nvlink3"


@pytest.mark.parametrize("name", LINKS)
def test_every_link_has_a_bandwidth_and_a_latency(name: str) -> None:
    link = find_link(name, H200)
    assert link.name == name
    assert link.bandwidth > 0
    assert link.latency > 0
    assert not link.measured


def test_networks_are_not_within_a_machine() -> None:
    assert {name for name, link in LINKS.items() if not link.within_machine} == {
        "ethernet-10", "ethernet-25", "ethernet-100", "infiniband-200", "infiniband-400",
    }  # fmt: skip


@pytest.mark.parametrize(("written", "bandwidth"), [("45GB/s", 45e9), ("1.5 gb/s", 1.5e9), ("800MB/s", 8e8)])
def test_what_was_measured_is_taken_as_it_is(written: str, bandwidth: float) -> None:
    link = find_link(written, H200)
    assert (link.bandwidth, link.measured) == (bandwidth, True)


@pytest.mark.parametrize("written", ["", "carrier pigeon", "45", "45GB", "-1GB/s", "0GB/s", "nanGB/s", "1e9GB/s"])
def test_anything_else_is_refused_with_the_names_there_are(written: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no link .*pcie4.*45GB/s"):
        find_link(written, H200)
