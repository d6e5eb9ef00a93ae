"""The cards brim knows by name: what a forecast has to know about a GPU that is not in this machine.

``Card.memory`` is what torch reports as ``total_memory``; ``Card.driver_reserve`` is how much more NVML (nvidia-smi)
reports, which the driver keeps for itself. Where the figures come from:

- measured: the H200, both figures, to the byte.
- public logs: every row of the tables that is not marked "derived". torch's total is from printed device properties,
  deviceQuery, llama.cpp's start-up lines and, where marked "oom", torch's out-of-memory messages, which round to a
  hundredth of a GiB; all are rounded down to a whole MiB. Drivers differ: newer ones keep 120 to 200 MiB more than
  older ones on most cards, and of several totals one of the smallest was taken. Expect the real total between 0.5 %
  below and 2 % above.
- "derived": NVML's total less the reserve of cards of the same family and about the same size. Expect the real total
  between 1 % below and 2.5 % above.

NVML's totals are those that nvidia-smi prints under Linux, with ECC as these cards are mostly run: on in the data
centre, off on the others. An RTX A or Ada card loses 6 % when it is switched on. Under Windows torch sees nearly all of
a GeForce's memory. About two thirds of these totals were seen in logs as well; the others, some multiprocessor counts
(Nvidia's specifications) and the clouds were not looked up anew.
"""

import difflib
import re
from dataclasses import dataclass, replace

import torch

from brim.arguments.choices import shorten
from brim.errors import ConfigError, some_of
from brim.hardware.inventory import Gpu

MIB = 2**20

CONSUMER = "consumer"
WORKSTATION = "workstation"
DATA_CENTRE = "data centre"


@dataclass(frozen=True)
class Card:
    """One kind of GPU. ``memory`` is what torch sees as its total, in bytes.

    ``driver_reserve`` is NVML's total less torch's, in bytes: NVML counts it as used. 0 means not known, as an empty
    ``kind`` does.
    """

    name: str
    memory: int
    capability: tuple[int, int]
    multiprocessors: int
    threads_per_multiprocessor: int = 2048
    driver_reserve: int = 0
    kind: str = ""
    clouds: str = ""
    measured: bool = False

    @property
    def is_capable_of_bf16(self) -> bool:
        """Whether the card computes in bfloat16 itself; older ones emulate it, slowly."""
        return self.capability >= (8, 0)


# How many threads a multiprocessor holds is a property of the architecture, not of the card.
THREADS_PER_MULTIPROCESSOR = {
    (6, 0): 2048,
    (6, 1): 2048,
    (7, 0): 2048,
    (7, 5): 1024,
    (8, 0): 2048,
    (8, 6): 1536,
    (8, 9): 1536,
    (9, 0): 2048,
    (10, 0): 2048,
    (12, 0): 1536,
}

H200 = Card(
    "NVIDIA H200",
    150_109_880_320,
    (9, 0),
    132,
    driver_reserve=644_939_776,
    kind=DATA_CENTRE,
    clouds="AWS p5e and p5en, GCP a3-ultragpu, Azure ND H200 v5",
    measured=True,
)

_COMMUNITY = "RunPod, Vast.ai"

# Name, torch's total in MiB, NVML's total in MiB, capability, multiprocessors, clouds.
# "low": cards that are sold under one name ("A100 80GB") all have the smallest total seen on any of them, so that this
# name is enough to look one up.
_Row = tuple[str, int, int, tuple[int, int], int, str]
# fmt: off
_CONSUMER_ROWS: tuple[_Row, ...] = (
    ("NVIDIA GeForce GTX 1080 Ti", 11_172, 11_264, (6, 1), 28, ""),
    ("NVIDIA TITAN RTX", 24_080, 24_576, (7, 5), 72, ""),  # derived
    ("NVIDIA GeForce RTX 2080 Ti", 10_822, 11_264, (7, 5), 68, "Vast.ai"),
    ("NVIDIA GeForce RTX 3060", 11_906, 12_288, (8, 6), 28, "Vast.ai"),
    ("NVIDIA GeForce RTX 3070", 7_819, 8_192, (8, 6), 46, _COMMUNITY),
    ("NVIDIA GeForce RTX 3080", 9_850, 10_240, (8, 6), 68, _COMMUNITY),  # derived
    ("NVIDIA GeForce RTX 3080 Ti", 11_870, 12_288, (8, 6), 80, _COMMUNITY),  # derived
    ("NVIDIA GeForce RTX 3090", 24_123, 24_576, (8, 6), 82, _COMMUNITY),
    ("NVIDIA GeForce RTX 3090 Ti", 24_142, 24_564, (8, 6), 84, _COMMUNITY),
    ("NVIDIA GeForce RTX 4060", 7_788, 8_188, (8, 9), 24, ""),  # derived
    ("NVIDIA GeForce RTX 4060 Ti", 15_944, 16_380, (8, 9), 34, "Vast.ai"),  # 16 GB; the 8 GB one has the same name
    ("NVIDIA GeForce RTX 4070", 11_866, 12_282, (8, 9), 46, "Vast.ai"),
    ("NVIDIA GeForce RTX 4070 Ti SUPER", 15_934, 16_376, (8, 9), 66, "Vast.ai"),
    ("NVIDIA GeForce RTX 4080", 15_930, 16_376, (8, 9), 76, _COMMUNITY),  # derived
    ("NVIDIA GeForce RTX 4090", 24_080, 24_564, (8, 9), 128, _COMMUNITY),
    ("NVIDIA GeForce RTX 5070 Ti", 15_842, 16_303, (12, 0), 70, "Vast.ai"),
    ("NVIDIA GeForce RTX 5080", 15_846, 16_303, (12, 0), 84, _COMMUNITY),  # oom
    ("NVIDIA GeForce RTX 5090", 32_109, 32_607, (12, 0), 170, _COMMUNITY),
)
_WORKSTATION_ROWS: tuple[_Row, ...] = (
    ("NVIDIA RTX A4000", 15_979, 16_376, (8, 6), 48, "Paperspace, RunPod"),  # oom
    ("NVIDIA RTX A5000", 24_138, 24_564, (8, 6), 64, "Paperspace, RunPod"),
    ("NVIDIA RTX A6000", 48_535, 49_140, (8, 6), 84, "Lambda, Paperspace, RunPod"),  # derived
    ("NVIDIA RTX 4000 Ada Generation", 20_010, 20_475, (8, 9), 48, "RunPod"),  # derived
    ("NVIDIA RTX 5000 Ada Generation", 32_220, 32_760, (8, 9), 100, "RunPod"),  # derived
    ("NVIDIA RTX 6000 Ada Generation", 48_500, 49_140, (8, 9), 142, _COMMUNITY),  # derived
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97_247, 97_887, (12, 0), 188, _COMMUNITY),
)
_DATA_CENTRE_ROWS: tuple[_Row, ...] = (
    ("Tesla P100-PCIE-16GB", 16_280, 16_384, (6, 0), 56, "GCP N1 with P100, Kaggle"),
    ("Tesla P100-SXM2-16GB", 16_280, 16_384, (6, 0), 56, ""),  # derived
    ("Tesla V100-SXM2-16GB", 16_144, 16_384, (7, 0), 80, "AWS p3, GCP N1 with V100"),
    ("Tesla V100-PCIE-16GB", 16_144, 16_384, (7, 0), 80, "Azure NCv3"),  # derived
    ("Tesla V100-SXM2-32GB", 32_494, 32_768, (7, 0), 80, "AWS p3dn, Azure NDv2"),
    ("Tesla V100-PCIE-32GB", 32_494, 32_768, (7, 0), 80, ""),
    ("Tesla T4", 14_912, 15_360, (7, 5), 40, "AWS g4dn, GCP N1 with T4, Azure NCasT4 v3, Colab, Kaggle"),
    ("NVIDIA A10", 22_515, 23_028, (8, 6), 72, "Lambda, OCI, Azure NVadsA10 v5"),  # oom
    ("NVIDIA A10G", 22_587, 23_028, (8, 6), 80, "AWS g5"),
    ("NVIDIA A16", 14_900, 15_356, (8, 6), 10, "Vultr"),  # derived; one of the board's four GPUs
    ("NVIDIA A30", 24_089, 24_576, (8, 0), 56, ""),  # oom
    ("NVIDIA A40", 45_403, 46_068, (8, 6), 84, "RunPod, Vultr"),
    ("NVIDIA A100-SXM4-40GB", 40_326, 40_960, (8, 0), 108, "AWS p4d, GCP a2-highgpu, Lambda, Colab"),  # low
    ("NVIDIA A100-PCIE-40GB", 40_326, 40_960, (8, 0), 108, "Lambda"),
    ("NVIDIA A100-SXM4-80GB", 81_049, 81_920, (8, 0), 108, "AWS p4de, GCP a2-ultragpu, Azure NDm v4"),  # low
    ("NVIDIA A100 80GB PCIe", 81_049, 81_920, (8, 0), 108, "Azure NC A100 v4, RunPod"),
    ("NVIDIA L4", 22_553, 23_034, (8, 9), 58, "GCP g2, AWS g6, Colab"),  # oom
    ("NVIDIA L40", 45_460, 46_068, (8, 9), 142, "RunPod"),  # oom
    ("NVIDIA L40S", 45_467, 46_068, (8, 9), 142, "AWS g6e, RunPod"),
    ("NVIDIA H100 80GB HBM3", 81_008, 81_559, (9, 0), 132, "AWS p5, GCP a3, Azure ND H100 v5, Lambda"),  # low
    ("NVIDIA H100 PCIe", 81_008, 81_559, (9, 0), 114, "Lambda, RunPod"),
    ("NVIDIA H100 NVL", 95_226, 95_830, (9, 0), 132, "Azure NC H100 v5, RunPod"),  # oom
    ("NVIDIA B200", 182_631, 183_359, (10, 0), 148, "AWS p6-b200, GCP a4, Lambda"),
)
# fmt: on


def _card(
    kind: str, name: str, seen_mib: int, nvml_mib: int, capability: tuple[int, int], multiprocessors: int, clouds: str
) -> Card:
    return Card(
        name=name,
        memory=seen_mib * MIB,
        capability=capability,
        multiprocessors=multiprocessors,
        threads_per_multiprocessor=THREADS_PER_MULTIPROCESSOR[capability],
        driver_reserve=(nvml_mib - seen_mib) * MIB,
        kind=kind,
        clouds=clouds,
    )


CARDS: tuple[Card, ...] = (
    *(_card(CONSUMER, *row) for row in _CONSUMER_ROWS),
    *(_card(WORKSTATION, *row) for row in _WORKSTATION_ROWS),
    *(_card(DATA_CENTRE, *row) for row in _DATA_CENTRE_ROWS),
    H200,
)

_VENDOR_WORDS = {"nvidia", "geforce", "tesla", "gpu"}
# Words of a name that nobody types, and that tell no two cards apart.
_OPTIONAL_WORDS = frozenset({"rtx", "gtx", "generation", "edition"})
# Words that people use for a card and that its name lacks.
_ADDED_WORDS = {"NVIDIA H100 80GB HBM3": {"sxm"}, "NVIDIA H200": {"sxm"}}
_SIZE = re.compile(r"(\d+)gi?b")
_NAMED_AT_MOST = 6


def find_card(name: str) -> Card:
    """The card of that name, as nvidia-smi prints it or as people call it.

    >>> find_card("4090").name
    'NVIDIA GeForce RTX 4090'
    >>> find_card("A100 80GB").name
    'NVIDIA A100-SXM4-80GB'

    A short name that fits several cards is good enough when they have the same memory and capability.
    """
    if not isinstance(name, str):
        raise ConfigError(f"card={shorten(name)} is no name of a card; write it as 'NVIDIA H200', or give memory=")
    exact = _same_name(name)
    fitting = [exact] if exact is not None else _same_words(name, _OPTIONAL_WORDS) or _more_words(name)
    # The size is looked at last: a "3080 12GB" is not in the table, and must not become the 3080 Ti, which has 12 GB.
    fitting = [card for card in fitting if _has_sizes(card, name)]
    if not fitting:
        raise ConfigError(
            f"no card is known as {name!r}; the nearest are {', '.join(_nearest(name))}: "
            "use one of these, or give the memory itself with --memory or memory="
        )
    if len({(card.memory, card.capability) for card in fitting}) > 1:
        named = some_of((card.name for card in fitting), _NAMED_AT_MOST)
        raise ConfigError(f"{name!r} can be any of {named}: say which one is meant")
    return fitting[0]


def card_of(gpu: Gpu) -> Card:
    """The card that a GPU in this machine is, with the memory that it really has.

    Short names are not tried here: torch gives whole ones, so a GPU without an entry of its own is described by what
    torch says about it and not by a card that is called about the same.
    """
    exact = _same_name(gpu.name)
    known = [exact] if exact is not None else [card for card in _same_words(gpu.name) if _has_sizes(card, gpu.name)]
    if known:
        return replace(known[0], memory=gpu.memory)
    properties = torch.cuda.get_device_properties(gpu.index)
    return Card(
        name=gpu.name,
        memory=gpu.memory,
        capability=(properties.major, properties.minor),
        multiprocessors=properties.multi_processor_count,
        threads_per_multiprocessor=properties.max_threads_per_multi_processor,
    )


def _same_name(name: str) -> Card | None:
    """The card with exactly this name, but for upper and lower case."""
    wanted = name.strip().casefold()
    return next((card for card in CARDS if card.name.casefold() == wanted), None)


def _same_words(name: str, may_be_missing: frozenset[str] = frozenset()) -> list[Card]:
    """The cards whose names have these words and no others: "3080" is not the 3080 Ti.

    Older drivers print names without "NVIDIA", and newer ones without "Tesla": those words never count.
    """
    words = _words(name)
    return [card for card in _more_words(name) if _words(card.name) - words <= may_be_missing]


def _more_words(name: str) -> list[Card]:
    """The cards whose names have all of these words, and perhaps others; a word that a card lacks rules it out."""
    words = _words(name)
    return [card for card in CARDS if words and words <= _words(card.name) | _ADDED_WORDS.get(card.name, set())]


def _words(name: str) -> set[str]:
    """What tells cards apart in a name, but for sizes; which SXM socket it is follows from the rest."""
    return {"sxm" if word.startswith("sxm") else word for word in _split(name) if not _SIZE.fullmatch(word)}


def _has_sizes(card: Card, name: str) -> bool:
    """Whether the card is sold with the memory named: ECC and the driver leave at least nine tenths of it to torch."""
    sizes = [int(size[1]) for word in _split(name) if (size := _SIZE.fullmatch(word))]
    return all(0.9 * size <= card.memory / 2**30 <= 1.01 * size for size in sizes)


def _split(name: str) -> list[str]:
    """The words of a name in lower case, in order, without the vendor's: "RTX4090", "rtx-4090" and "RTX 4090" agree."""
    text = re.sub(r"\b(rtx|gtx)(?=\w)", r"\1 ", name.casefold())
    text = re.sub(r"(?<=\d)(ti|super)", r" \1", text)
    text = re.sub(r"(\d)\s+(gi?b)\b", r"\1\2", text)
    return [word for word in re.findall(r"\w+", text) if word not in _VENDOR_WORDS]


def _nearest(name: str) -> list[str]:
    """Three known names that look most like this one, without the vendor's words, which make all names look alike."""
    names = {" ".join(_split(card.name)): card.name for card in CARDS}
    return [names[key] for key in difflib.get_close_matches(" ".join(_split(name)), names, n=3, cutoff=0.0)]
