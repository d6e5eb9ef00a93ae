"""How fast the best known cards compute and read memory at most, which a forecast of time has to know.

The figures are those of Nvidia's public data sheets and architecture papers: dense, so without "sparsity", and for half
precision those with sums in 32 bits, which is what training does and what GeForce cards do at half the rate. No program
reaches them; what a forecast takes of them is said in `brim.speed_up.step_time`. Clocks of boards by other makers, and
of cards that are held to less power, differ by some percent. Those of the RTX 3090, 4090 and A4000, A40, L4, L40, L40S,
H100, H200 and B200 were compared with public copies; the others were not looked up anew. For cards that are not here
the user has to say how long a step takes.
"""

from dataclasses import dataclass

from brim.hardware.cards import H200, Card

TERA, GIGA = 10**12, 10**9


@dataclass(frozen=True)
class Peak:
    """What a card could do in a second at most: operations by number format, and bytes of its memory."""

    full: float  # float32 without tensor cores
    tf32: float  # float32 on tensor cores
    half: float  # bfloat16 and float16
    memory: float


# Name: TFLOP/s in float32, in TF32 (0: it has none), in half precision, GB/s of memory.
_Row = tuple[float, float, float, float]
# fmt: off
_DATA_SHEETS: dict[str, _Row] = {
    "NVIDIA GeForce RTX 2080 Ti": (13.4, 0, 53.8, 616),
    "NVIDIA GeForce RTX 3060": (12.7, 12.7, 25.5, 360),
    "NVIDIA GeForce RTX 3070": (20.3, 20.3, 40.6, 448),
    "NVIDIA GeForce RTX 3080": (29.8, 29.8, 59.5, 760),
    "NVIDIA GeForce RTX 3090": (35.6, 35.6, 71, 936),
    "NVIDIA GeForce RTX 4060 Ti": (22.1, 22.1, 44.1, 288),
    "NVIDIA GeForce RTX 4070": (29.1, 29.1, 58.3, 504),
    "NVIDIA GeForce RTX 4080": (48.7, 48.7, 97.5, 717),
    "NVIDIA GeForce RTX 4090": (82.6, 82.6, 165.2, 1008),
    "NVIDIA GeForce RTX 5080": (56.3, 56.3, 112.6, 960),
    "NVIDIA GeForce RTX 5090": (104.8, 104.8, 209.5, 1792),
    "NVIDIA RTX A4000": (19.2, 38.3, 76.7, 448),
    "NVIDIA RTX A5000": (27.8, 55.6, 111.1, 768),
    "NVIDIA RTX A6000": (38.7, 77.4, 154.8, 768),
    "NVIDIA RTX 6000 Ada Generation": (91.1, 182.1, 364.2, 960),
    "Tesla V100-SXM2-16GB": (15.7, 0, 125, 900),
    "Tesla V100-SXM2-32GB": (15.7, 0, 125, 900),
    "Tesla V100-PCIE-16GB": (14, 0, 112, 900),
    "Tesla V100-PCIE-32GB": (14, 0, 112, 900),
    "Tesla T4": (8.1, 0, 65, 320),
    "NVIDIA A10": (31.2, 62.5, 125, 600),
    "NVIDIA A10G": (31.5, 35, 70, 600),
    "NVIDIA A30": (10.3, 82, 165, 933),
    "NVIDIA A40": (37.4, 74.8, 149.7, 696),
    "NVIDIA A100-SXM4-40GB": (19.5, 156, 312, 1555),
    "NVIDIA A100-PCIE-40GB": (19.5, 156, 312, 1555),
    "NVIDIA A100-SXM4-80GB": (19.5, 156, 312, 2039),
    "NVIDIA A100 80GB PCIe": (19.5, 156, 312, 1935),
    "NVIDIA L4": (30.3, 60, 121, 300),
    "NVIDIA L40": (90.5, 90.5, 181, 864),
    "NVIDIA L40S": (91.6, 183, 362, 864),
    "NVIDIA H100 80GB HBM3": (67, 494, 989, 3350),
    "NVIDIA H100 PCIe": (51, 378, 756, 2000),
    "NVIDIA H100 NVL": (60, 417, 835, 3900),
    "NVIDIA H200": (67, 494, 989, 4800),
    "NVIDIA B200": (75, 1100, 2250, 8000),
}
# fmt: on
PEAKS = {
    name: Peak(full * TERA, (tf32 or full) * TERA, half * TERA, memory * GIGA)
    for name, (full, tf32, half, memory) in _DATA_SHEETS.items()
}
USUAL = PEAKS[H200.name]  # in whose proportions a step is divided where only its length is known


def peak_of(card: Card) -> Peak | None:
    """What a card could do at most, or None where no data sheet was read.

    >>> from brim.hardware.cards import find_card
    >>> peak_of(find_card("A100 80GB")).memory / 1e9
    2039.0
    """
    return PEAKS.get(card.name)
