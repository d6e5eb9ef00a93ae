import re
from types import SimpleNamespace

import pytest
import torch

from brim.errors import ConfigError
from brim.hardware.cards import CARDS, H200, MIB, THREADS_PER_MULTIPROCESSOR, Card, card_of, find_card
from brim.hardware.inventory import Gpu

GIB = 2**30


def test_names_are_unique_even_without_case():
    assert len({card.name.casefold() for card in CARDS}) == len(CARDS) >= 45


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_every_card_has_sensible_figures(card):
    assert 7 * GIB < card.memory < 200 * GIB
    assert (6, 0) <= card.capability <= (12, 0)
    assert 10 <= card.multiprocessors <= 200
    assert card.threads_per_multiprocessor == THREADS_PER_MULTIPROCESSOR[card.capability]
    assert card.kind in {"consumer", "workstation", "data centre"}
    # a slip in either of the two totals shows here: what drivers keep grows slowly with the memory
    assert 64 * MIB <= card.driver_reserve <= 450 * MIB + 0.01 * card.memory
    assert card.measured == (card is H200)


@pytest.mark.parametrize("card", [card for card in CARDS if "GB" in card.name], ids=lambda card: card.name)
def test_memory_agrees_with_the_size_in_the_name(card):
    (size,) = re.findall(r"(\d+)GB", card.name)
    assert 0.9 <= card.memory / (int(size) * GIB) <= 1.01


@pytest.mark.parametrize(
    ("name", "threads"), [("V100 32GB", 2048), ("T4", 1024), ("A100 80GB", 2048), ("4090", 1536), ("5090", 1536)]
)
def test_threads_per_multiprocessor_follow_the_capability(name, threads):
    assert find_card(name).threads_per_multiprocessor == threads


def test_the_h200_is_what_was_measured():
    assert H200 in CARDS
    assert (H200.memory, H200.driver_reserve) == (150_109_880_320, 644_939_776)
    assert (H200.capability, H200.multiprocessors, H200.threads_per_multiprocessor) == ((9, 0), 132, 2048)


@pytest.mark.parametrize(("name", "can"), [("T4", False), ("V100 16GB", False), ("A100 40GB", True), ("h200", True)])
def test_bf16_needs_ampere(name, can):
    assert find_card(name).is_capable_of_bf16 is can


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_every_card_is_found_by_its_own_name(card):
    assert find_card(card.name) is card
    assert find_card(card.name.upper()) is card
    assert find_card(f" {card.name.lower()} ") is card
    assert find_card(card.name.removeprefix("NVIDIA ").removeprefix("GeForce ").removeprefix("Tesla ")) is card


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("h200", "NVIDIA H200"),
        ("H200 141GB", "NVIDIA H200"),
        ("a10", "NVIDIA A10"),
        ("a10g", "NVIDIA A10G"),
        ("nvidia tesla t4", "Tesla T4"),
        ("rtx 4090", "NVIDIA GeForce RTX 4090"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("RTX4090", "NVIDIA GeForce RTX 4090"),
        ("rtx-4090 24 GB", "NVIDIA GeForce RTX 4090"),
        ("3080", "NVIDIA GeForce RTX 3080"),
        ("3080Ti", "NVIDIA GeForce RTX 3080 Ti"),
        ("4060", "NVIDIA GeForce RTX 4060"),
        ("RTX 4060 Ti 16GB", "NVIDIA GeForce RTX 4060 Ti"),
        ("4070 ti super", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("1080 ti", "NVIDIA GeForce GTX 1080 Ti"),
        ("Titan RTX", "NVIDIA TITAN RTX"),
        ("A6000", "NVIDIA RTX A6000"),
        ("RTXA6000", "NVIDIA RTX A6000"),
        ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"),
        ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
        ("A100 40GB", "NVIDIA A100-SXM4-40GB"),
        ("A100 80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100 SXM 80GB", "NVIDIA A100-SXM4-80GB"),
        ("a100 pcie 80 gb", "NVIDIA A100 80GB PCIe"),
        ("V100 32 GiB", "Tesla V100-SXM2-32GB"),
        ("P100", "Tesla P100-PCIE-16GB"),
        ("L40", "NVIDIA L40"),
        ("L40S 48GB", "NVIDIA L40S"),
        ("H100 SXM5", "NVIDIA H100 80GB HBM3"),
        ("H100 80GB", "NVIDIA H100 80GB HBM3"),
        ("h100 nvl", "NVIDIA H100 NVL"),
    ],
)
def test_names_as_people_write_them(asked, name):
    assert find_card(asked).name == name


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "GTX 4090",
        "RTX 3080 12GB",
        "RTX 4060 Ti 8GB",
        "Quadro RTX 4000",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "A10X",
        "80GB",
        "NVIDIA",
        "",
    ],
)
def test_what_is_not_known_is_refused(name):
    with pytest.raises(ConfigError, match="no card is known as"):
        find_card(name)


def test_an_unknown_name_gets_three_near_ones_and_another_way():
    with pytest.raises(ConfigError) as caught:
        find_card("A10X")
    message = str(caught.value)
    assert message.startswith("no card is known as 'A10X'; the nearest are NVIDIA A10, NVIDIA A10G, ")
    assert message.count("NVIDIA") + message.count("Tesla") == 3
    assert "--memory" in message and "memory=" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("A100", ["NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe"]),
        ("V100", ["Tesla V100-SXM2-16GB", "Tesla V100-PCIE-32GB"]),
        ("H100", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"]),
        ("RTX 6000", ["NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"]),
        ("rtx", ["NVIDIA TITAN RTX", "more"]),
    ],
)
def test_a_name_for_different_cards_is_refused_with_all_of_them(name, candidates):
    with pytest.raises(ConfigError, match="can be any of") as caught:
        find_card(name)
    assert all(candidate in str(caught.value) for candidate in candidates)


def test_a_known_gpu_keeps_its_real_memory():
    card = card_of(Gpu(0, "NVIDIA GeForce RTX 4090", 25_386_352_640))
    assert card.memory == 25_386_352_640
    assert (card.capability, card.multiprocessors, card.kind) == ((8, 9), 128, "consumer")


def test_names_of_older_drivers_are_known():
    assert card_of(Gpu(0, "GeForce RTX 2080 Ti", 11_554_717_696)).name == "NVIDIA GeForce RTX 2080 Ti"
    assert card_of(Gpu(0, "A100-SXM4-40GB", 42_505_273_344)).name == "NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize(
    "name", ["NVIDIA GB10", "NVIDIA RTX 4000", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100"]
)
def test_an_unknown_gpu_is_described_by_torch(monkeypatch, name):
    asked = []

    def properties(index):
        asked.append(index)
        return SimpleNamespace(major=12, minor=1, multi_processor_count=48, max_threads_per_multi_processor=1536)

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert card_of(Gpu(3, name, 16 * GIB)) == Card(name, 16 * GIB, (12, 1), 48, 1536)
    assert asked == [3]
