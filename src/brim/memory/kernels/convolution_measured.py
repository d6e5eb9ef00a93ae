"""The workspaces of convolutions by their nearest **measured** relatives.

cuDNN chooses a kernel by heuristics of its own, and the workspace follows from the kernel. Convolutions alike get the
same kernel, so a new one is looked up among 37,592 that were measured on 2026-11-15 on an H200 (driver 580, cuDNN 9.19,
torch 2.11, ``cudnn.benchmark`` off, TF32 allowed): 4,859 geometries, which are those of many torchvision models at
several image sizes, of U-Nets, of one-dimensional, three-dimensional and transposed ones, and 2,600 random ones, of
which 650 grouped or depthwise, at one to eight batch sizes each, in fp32, bf16 and fp16, over planes and (fewer) with
channels last. float64 is taken for fp32, and other cards for an H200.

What is carried over from a neighbour is not its bytes but the *expressions* that explain them: x, y and w laid out
anew, so many partial sums, or the fitted rule of `convolution_rules`. Each of the nearest votes for all that explain
its own bytes, and the winner is evaluated for the new convolution.

The table is ``convolution_measured.npz``. ``geometries`` has a row for each geometry, with the columns of `GEOMETRY`
(where ``squares`` is for one image). The others have a row for each measurement: ``geometry``, a row of the former;
``kind``, a place in `KINDS`; ``batch``; and ``workspaces``, the bytes of the three passes in the order of `Pass`. A
transposed convolution is stored as the problem it runs backwards, and a batch of more than 2**31 numbers as the part
that goes through at once.

How good it is on geometries that it has not seen: 1,008 random ones (grouped, depthwise and plain) were measured last.
The expressions and weights for groups were chosen with half of them, and this is the other half, 2,977 measurements,
looked up in a table without it. Right is within 1 KiB or 0.5 %; the sum is that of all absolute errors over that of all
x and y:

=============  ===========  ==================  =========  ================
pass           right: rule  right: neighbours   sum: rule  sum: neighbours
=============  ===========  ==================  =========  ================
forward, fp32         76 %                85 %      0.135             0.043
forward, half         87 %                92 %      0.069             0.037
input, fp32           72 %                85 %      0.129             0.024
input, half           86 %                91 %      0.082             0.045
weight, fp32          24 %                49 %      0.258             0.115
weight, half          53 %                64 %      0.089             0.072
=============  ===========  ==================  =========  ================

Most weight gradients that err do so by a few MiB: they have another number
of partial sums. Most of what is left lies near the border between two kernels, where the neighbours disagree, and errs
by about x and y.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from brim.memory.kernels.convolution_rules import (
    ALIGNMENT,
    TILE,
    TILE_BYTES,
    Problem,
    forward,
    input_gradient,
    is_wide_and_dilated,
    up,
    weight_gradient,
    wide_dilated_weight_gradient,
    winograd,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray  # takes longer to import than all the rest of the forecast

TABLE = "convolution_measured.npz"
#: So many neighbours vote, each with a power of its inverse distance; NEAR keeps one from outvoting all others.
NEIGHBOURS = 12
NEAR = 0.02
SHARPNESS = 1.5
#: The fitted rule votes like a neighbour that far away.
RULE_DISTANCE = 5.0
#: Two sizes are the same within this, for cuDNN adds some hundred bytes for alignment and counters.
SLACK = 1024
#: Partial sums take no more than this; what is larger is another kind of kernel.
MOST_SUMS = 330 * TILE_BYTES
#: Sizes that nothing explains are compared in steps of one percent.
STEPS_A_DOUBLING = 64


class Pass(IntEnum):
    """The three products of a convolution, in the order of the table's columns."""

    FORWARD = 0
    INPUT = 1
    WEIGHT = 2


class Expression(NamedTuple):
    """A size in terms of a problem: which images are copied, and something besides, so many times."""

    copies: str
    extra: str = ""
    times: int = 0


RULE = Expression("rule")
WINOGRAD = Expression("winograd")
SCALED = "scaled"
#: One fp32 filter for each image.
IMAGES = "images"
#: How far an explanation is trusted, against that of others for the same size: what says more about a kernel is worth
#: more, and rarer copies are worth less.
TRUST = {IMAGES: 0.99, "filters": 0.9, "filled filters": 0.89, "tiles": 0.9, "flat tiles": 0.9, "bytes": 0.8}
LESS_A_RANK = 0.02

#: What a convolution is compared in, and how much a difference of one counts: in logarithms to base two, and as it is.
LOGARITHMS = {"channels_in": 1.0, "channels_out": 1.0, "pixels_out": 0.5, "batch": 0.5, "taps": 2.0, "groups": 0.5}
STEPS = {"strided": 4.0, "dilated": 3.0, "transposed": 2.0, "fp16": 0.03, "dimensions": 4.0, "widest": 1.0}
#: Whether a number is a multiple of another decides whether a kernel can be had at all.
MULTIPLES = {
    ("channels_in", 4): 2.0, ("channels_in", 8): 2.0, ("channels_in", 32): 0.3, ("channels_in", 64): 0.6,
    ("channels_out", 4): 1.0, ("channels_out", 8): 4.0, ("channels_out", 32): 0.3, ("channels_out", 64): 0.3,
    ("pixels_out", 4): 0.25, ("pixels_out", 8): 1.0,
}  # fmt: skip
#: Whether a number is below another: thin images, and what is only one.
BELOW = {
    ("channels_in", 2): 2.0, ("channels_in", 8): 2.0, ("channels_out", 8): 2.0, ("pixels_out", 2): 3.0,
    ("taps", 2): 6.0,
}  # fmt: skip
#: How much larger x is than y.
SHRINKING = 1.0
#: Of grouped convolutions: the width of a group (in logarithms), and whether it and the number of groups are even ones.
GROUP_WIDTH = 2.0
FILLED_GROUPS = 8.0
GROUPS_OF_EIGHTS = 1.0
#: torch gives fp16 alone of the depthwise convolutions over planes to cuDNN.
FP16_DEPTHWISE = 8.0
#: Forward through few channels, fp16 has kernels that bf16 has not: for channels as they are, and for four of them.
FP16_THIN = 8.0

#: The columns of the table of geometries.
GEOMETRY = (
    "channels_in", "channels_out", "groups", "pixels_in", "pixels_out", "taps", "widest", "dimensions",
    "strided", "dilated", "transposed", "squares",
)  # fmt: skip
YES_OR_NO = ("strided", "dilated", "transposed", "channels_last", "fp16")
#: Element size, channels last, fp16.
KINDS = ((4, False, False), (4, True, False), (2, False, False), (2, True, False), (2, False, True))

Columns = dict[str, "NDArray[np.float64]"]


@lru_cache(maxsize=2**16)
def workspace(problem: Problem, direction: Pass) -> int:
    """Bytes of the workspace of one pass, as the nearest measured convolutions have it."""
    if direction is Pass.WEIGHT and is_wide_and_dilated(problem):  # no neighbour is dilated
        return wide_dilated_weight_gradient(problem)
    neighbours = table().neighbours(problem, direction) if problem.batch > 0 else []
    return estimate(problem, direction, neighbours)


def estimate(problem: Problem, direction: Pass, neighbours: list[tuple[int, float]]) -> int:
    """The size by the expression that explains the neighbours best; they are rows of the table and distances."""
    votes = {RULE: _weight(RULE_DISTANCE)}
    for row, distance in neighbours:
        for expression, trust in explanations(row, direction):
            votes[expression] = votes.get(expression, 0.0) + trust * _weight(distance)
    return evaluate(max(votes, key=votes.__getitem__), problem, direction)


def _weight(distance: float) -> float:
    return math.pow(NEAR + distance, -SHARPNESS)


def by_rule(problem: Problem, direction: Pass) -> int:
    return (forward, input_gradient, weight_gradient)[direction](problem)


def evaluate(expression: Expression, problem: Problem, direction: Pass) -> int:
    """The bytes an expression stands for in a problem."""
    if expression == RULE:
        return by_rule(problem, direction)
    if expression == WINOGRAD:
        return winograd(problem)
    if expression.copies == SCALED:
        return int(2 ** (expression.times / STEPS_A_DOUBLING) * copies(problem)["xyw"])
    size = copies(problem)[expression.copies] + expression.times * extras(problem).get(expression.extra, 0)
    return size + ALIGNMENT if size > 0 else 0


@lru_cache(maxsize=2**16)
def explanations(row: int, direction: Pass) -> tuple[tuple[Expression, float], ...]:
    """The expressions that give what was measured in a row, and how far each is to be trusted."""
    problem, size = table().problem(row), table().size(row, direction)
    found = [*_whole(problem, direction, size), *_with_sums(problem, size)]
    if (not found or size > MOST_SUMS) and size > SLACK:
        steps = round(STEPS_A_DOUBLING * math.log2(size / copies(problem)["xyw"]))
        found.append((Expression(SCALED, times=steps), 0.5))
    return tuple(found)


def _whole(problem: Problem, direction: Pass, size: int) -> Iterator[tuple[Expression, float]]:
    """Copies alone, and kernels of which there is a formula for everything."""
    if abs(by_rule(problem, direction) - size) <= max(SLACK, size // 200):
        yield RULE, 1.02
    if direction is Pass.WEIGHT and problem.squares and 0 <= size - winograd(problem) <= SLACK:
        yield WINOGRAD, 1.0
    for rank, (name, copied) in enumerate(copies(problem).items()):
        if 0 <= size - copied <= SLACK:
            yield Expression(name), 1 - LESS_A_RANK * rank


def _with_sums(problem: Problem, size: int) -> Iterator[tuple[Expression, float]]:
    """Copies and partial sums: one fp32 filter an image, a number of them, of whole tiles, or just so many bytes."""
    units, seen = extras(problem), set()
    for rank, (name, copied) in enumerate(copies(problem).items()):
        rest, trust = size - copied, 1 - LESS_A_RANK * rank
        if rest <= SLACK or copied in seen:
            continue
        seen.add(copied)
        for extra, unit in units.items():
            count = rest // unit
            plausible = count == 1 if extra == IMAGES else count > 0 and rest <= MOST_SUMS
            if plausible and rest - count * unit <= SLACK:
                yield Expression(name, extra, count), trust * TRUST[extra]


def copies(p: Problem) -> dict[str, int]:
    """Bytes of x, y and w laid out anew, likeliest first; a capital for one whose channels are filled up.

    A filled-up image has a filled-up filter: A along the channels of x, B along those of y, C along both. Z and D are x
    and w filled up to four channels, which fp16 alone has kernels for.
    """
    filled_in, filled_out = _filled_channels(p)
    x, y, w = p.x, p.y, p.weights * p.element
    wide_x, wide_y = x // p.channels_in * filled_in, y // p.channels_out * filled_out
    a, b = w // p.channels_in * filled_in, w // p.channels_out * filled_out
    c = b // p.channels_in * filled_in
    four = up(p.channels_in, 4 if p.groups == 1 else 1)
    z, d = x // p.channels_in * four, w // p.channels_in * four
    alike = {"": 0, "xyw": x + y + w, "xw": x + w, "xy": x + y}
    filled = {"XyA": wide_x + y + a, "xYB": x + wide_y + b, "XYC": wide_x + wide_y + c}
    parts = {"yw": y + w, "XA": wide_x + a, "YB": wide_y + b, "Xy": wide_x + y, "xY": x + wide_y}
    return (
        alike | _copies_of_groups(p) | filled | parts | {"X": wide_x, "Y": wide_y, "ZyD": z + y + d, "ZD": z + d}
    )  # fmt: skip


def _filled_channels(p: Problem) -> tuple[int, int]:
    """Tensor cores take eight halves or four fp32 numbers at once, and eight of either where there are groups."""
    multiple = 8 if p.half or p.groups > 1 else 4
    return up(p.channels_in, multiple), up(p.channels_out, multiple)


def _copies_of_groups(p: Problem) -> dict[str, int]:
    """What only grouped convolutions take: x, y and w of eight groups at a time, or with all groups filled up."""
    if p.groups == 1:
        return {}
    everything = p.x + p.y + p.weights * p.element
    channels = p.groups * p.filled_width
    images = p.x // p.channels_in * channels + p.y // p.channels_out * channels
    filled = images + p.filled_weights * p.element
    return {"filled groups": filled, "eight groups": everything * 8 // max(p.groups, 8)}


def extras(p: Problem) -> dict[str, int]:
    """Bytes of what partial sums are counted in."""
    tiles = p.taps * math.ceil(p.channels_in / TILE) * math.ceil(p.channels_out / TILE)
    flat_tiles = math.ceil(p.taps * p.channels_in / TILE) * math.ceil(p.channels_out / TILE)
    filled = {"filled filters": 4 * p.filled_weights} if p.groups > 1 else {}
    return {
        IMAGES: p.batch * p.sums,
        "filters": p.sums,
        **filled,
        "tiles": tiles * TILE_BYTES,
        "flat tiles": flat_tiles * TILE_BYTES,
        "bytes": SLACK,
    }


@dataclass(frozen=True)
class Group:
    """Rows and their places in the space of comparison."""

    rows: NDArray[np.int64]
    places: NDArray[np.float64]

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        squares: NDArray[np.float64] = np.square(self.places).sum(axis=1)
        return squares

    def squares(self, place: NDArray[np.float64]) -> NDArray[np.float64]:
        """Squared distances, by one matrix product: subtracting all places would take five times as long."""
        squares: NDArray[np.float64] = self.norms - 2 * (self.places @ place) + place @ place
        return squares


@dataclass(frozen=True)
class MeasuredTable:
    """What was measured: a row is one convolution, with the bytes of its three workspaces."""

    columns: Columns
    sizes: NDArray[np.int64]

    @cached_property
    def groups(self) -> dict[tuple[bool, bool, int], Group]:
        """Rows that may be neighbours, by what has to be the same."""
        keys = np.stack(_group(self.columns), axis=1).astype(np.int64)
        places = _places(self.columns)
        found = {}
        for key in np.unique(keys, axis=0):
            rows = np.flatnonzero((keys == key).all(axis=1))
            found[bool(key[0]), bool(key[1]), int(key[2])] = Group(rows, places[rows])
        return found

    def neighbours(self, problem: Problem, direction: Pass) -> list[tuple[int, float]]:
        """The nearest rows and their distances."""
        columns = {name: np.array([float(getattr(problem, name))]) for name in self.columns}
        half, channels_last, grouping = (float(part[0]) for part in _group(columns))
        group = self.groups.get((bool(half), bool(channels_last), int(grouping)))
        if group is None:
            return []
        squares = group.squares(_places(columns)[0])
        if direction is Pass.FORWARD and problem.thin:
            squares += FP16_THIN**2 * (self.columns["fp16"][group.rows] != problem.fp16)
        nearest = np.argsort(squares) if len(squares) <= NEIGHBOURS else np.argpartition(squares, NEIGHBOURS)
        return [(int(group.rows[i]), math.sqrt(max(squares[i], 0.0))) for i in nearest[:NEIGHBOURS]]

    def problem(self, row: int) -> Problem:
        values: dict[str, Any] = {name: int(column[row]) for name, column in self.columns.items()}
        return Problem(**values | {name: bool(values[name]) for name in YES_OR_NO})

    def size(self, row: int, direction: Pass) -> int:
        return int(self.sizes[row, direction])


@lru_cache(maxsize=1)
def table() -> MeasuredTable:
    with files(__package__).joinpath(TABLE).open("rb") as file, np.load(file) as stored:
        rows: dict[str, NDArray[Any]] = {name: stored[name] for name in stored.files}
    geometry = rows["geometries"][rows["geometry"]].astype(np.float64)
    columns = {name: geometry[:, place] for place, name in enumerate(GEOMETRY)}
    kinds = np.array(KINDS, dtype=np.float64)[rows["kind"]]
    columns |= {name: kinds[:, place] for place, name in enumerate(("element", "channels_last", "fp16"))}
    columns["batch"] = rows["batch"].astype(np.float64)
    columns["squares"] = columns["squares"] * columns["batch"]
    return MeasuredTable(columns, rows["workspaces"])


def _group(columns: Columns) -> list[NDArray[np.float64]]:
    """Half precision; channels last; plain, depthwise or grouped."""
    several = columns["groups"] > 1
    depthwise = several & (columns["groups"] == columns["channels_in"])
    return [
        (columns["element"] == 2).astype(np.float64),
        columns["channels_last"],
        np.where(depthwise, 1.0, np.where(several, 2.0, 0.0)),
    ]


def _places(columns: Columns) -> NDArray[np.float64]:
    """Where convolutions lie: their distance says how likely they are to get the same kernel."""
    depthwise = (columns["groups"] == columns["channels_in"]) & (columns["groups"] > 1)
    axes = [
        *(weight * _log(columns[name]) for name, weight in LOGARITHMS.items()),
        *(weight * columns[name] for name, weight in STEPS.items()),
        *(weight * (columns[name] % number != 0) for (name, number), weight in MULTIPLES.items()),
        *(weight * (columns[name] < number) for (name, number), weight in BELOW.items()),
        SHRINKING * (_log(columns["pixels_in"]) - _log(columns["pixels_out"])),
        FP16_DEPTHWISE * columns["fp16"] * depthwise,
        *_places_of_groups(columns),
    ]
    return np.stack(axes, axis=1)


def _places_of_groups(columns: Columns) -> list[NDArray[np.float64]]:
    """What is the same for all that have one group."""
    several = columns["groups"] > 1
    width = np.maximum(columns["channels_in"], columns["channels_out"]) / columns["groups"]
    return [
        GROUP_WIDTH * several * _log(width),
        FILLED_GROUPS * several * (np.abs(_log(width) % 1) > 1e-6),
        GROUPS_OF_EIGHTS * several * (width % 8 != 0),
        GROUPS_OF_EIGHTS * several * (columns["groups"] % 8 != 0),
    ]


def _log(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log2(np.maximum(numbers, 1))
