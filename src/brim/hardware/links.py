"""What connects the GPUs: how many bytes a second in one direction, and how long one hop takes at least.

Of what a data sheet promises, rings of NCCL are published to reach about 0.8 over NVLink (230 to 250 of 300 GB/s on
eight A100) and 0.6 over PCIe (35 to 45 of 63 GB/s on H100 PCIe); of a network 0.8 is assumed. Those factors are in the
table. GeForce cards have no direct way to each other: their bytes go through the host's memory, and may take twice as
long. Latencies are rough figures for one hop of a ring. None of this was measured by us: ``--link 45GB/s`` says more.
"""

import re
from dataclasses import dataclass
from typing import Any

from brim.errors import ConfigError
from brim.hardware.cards import Card

GIGA, MICRO = 10**9, 1e-6
NVLINK_SHARE, PCIE_SHARE, NETWORK_SHARE = 0.8, 0.6, 0.8


@dataclass(frozen=True)
class Link:
    """A way from one GPU to the next: bytes a second in one direction, and seconds a hop."""

    name: str
    bandwidth: float
    latency: float
    within_machine: bool = True
    measured: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "bandwidth": self.bandwidth, "latency": self.latency, "measured": self.measured,
            "within_machine": self.within_machine,
        }  # fmt: skip


def _link(name: str, promised: float, share: float, latency: float, within_machine: bool = True) -> Link:
    return Link(name, promised * share * GIGA, latency * MICRO, within_machine)


# What is promised is GB/s in one direction: half of what NVLink's data sheets say, which add both.
LINKS = {
    link.name: link
    for link in (
        _link("nvlink2", 150, NVLINK_SHARE, 3),  # V100
        _link("nvlink3", 300, NVLINK_SHARE, 3),  # A100
        _link("nvlink4", 450, NVLINK_SHARE, 3),  # H100, H200
        _link("nvlink5", 900, NVLINK_SHARE, 3),  # B200
        _link("pcie3", 15.75, PCIE_SHARE, 6),
        _link("pcie4", 31.5, PCIE_SHARE, 6),
        _link("pcie5", 63, PCIE_SHARE, 6),
        _link("infiniband-200", 25, NETWORK_SHARE, 6, within_machine=False),
        _link("infiniband-400", 50, NETWORK_SHARE, 6, within_machine=False),
        _link("ethernet-10", 1.25, NETWORK_SHARE, 30, within_machine=False),
        _link("ethernet-25", 3.125, NETWORK_SHARE, 30, within_machine=False),
        _link("ethernet-100", 12.5, NETWORK_SHARE, 30, within_machine=False),
    )
}
_NVLINK = {(7, 0): "nvlink2", (8, 0): "nvlink3", (9, 0): "nvlink4", (10, 0): "nvlink5"}
_WITHOUT_SXM_IN_THE_NAME = {"NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200"}
_PCIE_5_FROM = (9, 0)
_WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(GB|MB)/s\s*", re.IGNORECASE)
_UNITS = {"gb": 10**9, "mb": 10**6}


def link_of(card: Card) -> Link:
    """What usually connects cards of a kind: NVLink for those in SXM sockets, else PCIe of their generation.

    >>> from brim.hardware.cards import find_card
    >>> link_of(find_card("H200")).name, link_of(find_card("RTX 4090")).name
    ('nvlink4', 'pcie4')
    """
    if "SXM" in card.name or card.name in _WITHOUT_SXM_IN_THE_NAME:
        return LINKS[_NVLINK.get(card.capability, "nvlink2")]
    if card.capability >= _PCIE_5_FROM:
        return LINKS["pcie5"]
    return LINKS["pcie4" if card.capability >= (8, 0) else "pcie3"]


def find_link(written: str, card: Card) -> Link:
    """A link by name, or by what was measured: ``pcie4``, ``ethernet-100``, ``45GB/s``. ``nvlink`` is the card's own.

    >>> from brim.hardware.cards import H200
    >>> find_link("45GB/s", H200).bandwidth
    45000000000.0
    """
    name = written.strip().casefold()
    if name == "nvlink":
        # A card in no SXM socket has it by a bridge, if at all: then of its architecture.
        name = _NVLINK.get(card.capability, "nvlink3")
    if name in LINKS:
        return LINKS[name]
    match = _WRITTEN.fullmatch(written)
    if match is None or float(match[1]) == 0:
        raise ConfigError(
            f"there is no link {written!r}; use nvlink, {', '.join(LINKS)}, or what was measured, such as 45GB/s"
        )
    # How long a hop takes was not said: what the card's own link takes.
    return Link(name, float(match[1]) * _UNITS[match[2].lower()], link_of(card).latency, measured=True)
