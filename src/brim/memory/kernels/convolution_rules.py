"""The workspaces of convolutions by **fitted rules**: what holds where nothing alike was measured.

cuDNN chooses a kernel by heuristics of its own and asks for what that kernel needs, and neither can be had without the
GPU. Only sizes were seen, no kernels: names such as Winograd or Fourier below are read off the sizes they explain. The
rules were fitted on 2026-11-15 to what some 5,300 convolutions, forward and backward, allocated on an H200 (cuDNN
9.19, torch 2.11, ``cudnn.benchmark`` off, TF32 allowed): fp32, bf16 and fp16, planes and channels last, one to three
dimensions, grouped, depthwise, transposed and dilated. float64 was not measured and is taken for fp32.

What was found there, and is said below:

- cuDNN's tensor core kernels want channels last. Planes are laid out anew inside the workspace: bytes of x, y and w.
- Pointwise filters are plain matrix products, mostly without workspace; their weight gradient holds one fp32 sum an
  image.
- Other weight gradients split the sum over the multiprocessors, each with fp32 sums of its own.

How good they are, beside the measured neighbours that are asked first, stands in `convolution_measured`. Where a rule
errs, it mostly takes a kernel that lays its images out anew for one that does not, or the reverse: an error of about x
and y. Not modelled are the partial sums of forward and input gradients (3 to 16 MiB, in about a tenth of the fp32
ones), a few Fourier kernels for 5 x 5 fp32 filters (up to some GB), 7 x 7 depthwise weight gradients in fp32 with
channels last (four times x and y), and grouped convolutions whose groups are filled up: the neighbours know them.
"""

import math
from dataclasses import dataclass

#: What cuDNN asks for behind the copies, to align them.
ALIGNMENT = 16
#: A thread block adds up a square of 128 x 128 fp32 sums.
TILE = 128
TILE_BYTES = 4 * TILE * TILE


@dataclass(frozen=True)
class Problem:
    """A convolution as cuDNN sees it: from an image x through a filter w to an image y.

    A transposed convolution is the same problem run backwards: its input is y and its output is x.
    """

    batch: int
    channels_in: int
    channels_out: int
    groups: int
    pixels_in: int
    pixels_out: int
    taps: int
    strided: bool
    element: int
    channels_last: bool = False
    transposed: bool = False
    blocks: int = 132
    #: How many 4 x 4 squares cover y, over the whole batch; 0 if y is not two-dimensional.
    squares: int = 0
    dimensions: int = 2
    #: The longest side of the filter.
    widest: int = 3
    dilated: bool = False
    #: Among the half precisions: fp16, not bf16.
    fp16: bool = False

    @property
    def half(self) -> bool:
        return self.element == 2

    @property
    def thin(self) -> bool:
        """Fewer channels than a tensor core takes at once: the first layer of most networks."""
        return self.channels_in < 8

    @property
    def pointwise(self) -> bool:
        return self.taps == 1 and not self.strided

    @property
    def depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.channels_in

    @property
    def torch_kernel(self) -> bool:
        """torch has kernels of its own for depthwise convolutions over planes; they take no workspace."""
        return self.depthwise and not self.channels_last and not self.transposed

    @property
    def x(self) -> int:
        return self.batch * self.channels_in * self.pixels_in * self.element

    @property
    def y(self) -> int:
        return self.batch * self.channels_out * self.pixels_out * self.element

    @property
    def weights(self) -> int:
        return self.channels_in // self.groups * self.channels_out * self.taps

    @property
    def filled_width(self) -> int:
        """The channels of a group, filled up to a power of two and at least four, in x and y alike."""
        return 1 << max(2, (max(self.channels_in, self.channels_out) // self.groups - 1).bit_length())

    @property
    def filled_weights(self) -> int:
        return self.groups * self.filled_width**2 * self.taps if self.groups > 1 else self.weights

    @property
    def sums(self) -> int:
        """Bytes of one fp32 copy of the weight gradient."""
        return 4 * self.weights

    @property
    def positions(self) -> int:
        return self.batch * self.pixels_out

    @property
    def work(self) -> int:
        """Multiplications in one pass."""
        return self.positions * self.weights

    @property
    def depth(self) -> int:
        """How many products one value of y adds up."""
        return self.channels_in // self.groups * self.taps


def forward(problem: Problem) -> int:
    """Bytes of the workspace of y = x * w."""
    p = problem
    if p.depthwise:
        return 0
    if p.channels_last:
        return _padded_image(p) if p.thin and p.taps > 1 else 0
    if p.pointwise:
        return _copies(p) if _pointwise_converts(p) else 0
    if p.taps == 1:
        return _copies(p) if p.channels_in >= 128 else 0
    if p.groups == 1 and _shallow(p):
        return 0
    return _copies(p, output=not _writes_planes(p))


def input_gradient(problem: Problem) -> int:
    """Bytes of the workspace of the gradient of x."""
    p = problem
    if p.depthwise or p.channels_last:
        return 0
    if p.pointwise:
        return _copies(p) if p.weights > 600_000 and p.work > 2**27 else 0
    if p.taps == 1:
        return _copies(p) if p.half or p.channels_in >= 168 else 0
    if p.half or p.groups > 1:
        return _copies(p)
    # fp32 has kernels for planes, which win when there is little to do.
    little = p.work < 2**27 or (p.channels_in <= 8 and p.channels_out * p.taps < 400)
    return 0 if little else _copies(p)


def weight_gradient(problem: Problem) -> int:
    """Bytes of the workspace of the gradient of w."""
    p = problem
    if p.depthwise:
        return _depthwise_sums(p) if p.channels_last else 0
    if p.channels_last:
        return _channels_last_weight_gradient(p)
    if p.pointwise:
        return _pointwise_weight_gradient(p)
    if not p.half and p.groups == 1 and p.depth < 80 and _sums_planes(p):
        return 0
    if _winograd(p):
        return winograd(p)
    if _fourier(p):
        # Square transforms, although the image has one row: half of the complex numbers of x and y, twice.
        side = 1 << (p.pixels_in + p.taps - 2).bit_length()
        return p.x + 16 * side * (side // 2 + 1) * p.batch * (p.channels_in + p.channels_out)
    if p.thin and p.groups == 1:
        return _thin_weight_gradient(p)
    return _copies(p) + _split_sums(p)


def _copies(p: Problem, output: bool = True) -> int:
    """x, y and w laid out anew, channels last; what has one pixel or one channel lies so already.

    Half precision fills the channels of x up to a multiple of eight.
    """
    channels = up(p.channels_in, 8) if p.half and p.groups == 1 and p.channels_in > 1 else p.channels_in
    x = p.x // p.channels_in * channels if p.pixels_in > 1 and p.channels_in > 1 else 0
    y = p.y if output and p.pixels_out > 1 and p.channels_out > 1 else 0
    w = p.weights * p.element // p.channels_in * channels if p.taps > 1 else 0
    return x + y + w + ALIGNMENT


def _padded_image(p: Problem) -> int:
    """Channels last already, but too few of them: half precision copies x and w with eight channels."""
    channels = 8 if p.half else p.channels_in
    return (p.x + p.weights * p.element) // p.channels_in * channels + ALIGNMENT


def _pointwise_converts(p: Problem) -> bool:
    """Whether a pointwise convolution leaves the kernels for planes: these load eight pixels at once."""
    if not p.half:
        return p.weights > 900_000
    odd = p.pixels_out % 8 != 0
    return odd and ((p.pixels_out < 64 and p.work > 2**27) or (p.weights > 500_000 and p.work > 2**31.5))


def _shallow(p: Problem) -> bool:
    """Whether so few products make one value that a kernel for planes does it."""
    if p.half and p.thin:
        return p.depth < 28 or (p.depth < 140 and (p.depth > 80 or p.channels_out < 32))
    if p.half:
        return p.depth < 40
    large_image = p.pixels_out > 50_000 and not p.thin and not p.strided
    return p.depth < (100 if large_image else 146)


def _writes_planes(p: Problem) -> bool:
    """fp32 has kernels that read channels last and write planes, so that y needs no copy."""
    if p.half or p.thin or p.groups > 1 or p.pixels_out % 4 != 0 or p.channels_out % 64 != 0:
        return False
    if p.work < 2**28.8 and p.taps <= 9:
        return True
    return p.depth <= 600 and p.channels_out > p.channels_in and 48 < p.channels_in < 128


def _sums_planes(p: Problem) -> bool:
    """Whether fp32 takes the weight gradient of few products straight from planes."""
    middling = p.batch <= 16 and 3000 < p.positions < 80_000
    return not middling if p.thin else p.work < 2**27.9


def _split_sums(p: Problem) -> int:
    """The multiprocessors share the positions among them, and each share has sums of its own."""
    if p.half:
        return _split_sums_of_halves(p)
    if p.positions < 2048:
        return 0
    if p.channels_last and p.pointwise:
        shares = p.blocks if p.sums <= TILE_BYTES else p.blocks // 2
        return min(shares, 2 * p.blocks * TILE_BYTES // p.sums) * p.sums
    tiles = p.taps * math.ceil(p.channels_in / TILE) * math.ceil(p.channels_out / TILE)
    if 2 * tiles <= p.blocks:
        return p.blocks // tiles * p.sums
    # Too many tiles to give each a share of its own: one wave of blocks hands over what it has, or half a wave.
    return 0 if tiles > 1.5 * p.blocks else TILE_BYTES * (p.blocks if tiles > p.blocks else p.blocks // 2)


def _split_sums_of_halves(p: Problem) -> int:
    """Half precision is split less: not in small problems, and into fewer shares in middling ones."""
    if p.positions < 13_000 or p.weights > 1_000_000:
        return 0
    tiles = p.taps * math.ceil(p.channels_in / TILE) * math.ceil(p.channels_out / (2 * TILE))
    narrow = max(p.channels_in, p.channels_out) <= 64
    full = narrow or (p.positions > 65_536 and not p.strided)
    share_of_blocks = 0.9 if full else 0.41
    return int(share_of_blocks * p.blocks) // tiles * p.sums


def _pointwise_weight_gradient(p: Problem) -> int:
    """One fp32 sum an image over planes, unless that would be much more than to lay the images out anew."""
    per_image = p.batch * p.sums
    images = p.x + p.y
    if p.pixels_in == 1:
        return per_image if not p.half and p.batch > 256 and p.weights > 1000 else 0
    if p.half:
        worth = (p.channels_in > 456 and p.x < 7.9 * p.y) or p.work > 2**30.5
        tiny = p.pixels_in <= 32 and p.batch > 144
        converts = p.channels_in == 1 or (per_image > images and (worth or tiny))
        return _copies(p) if converts else per_image
    if per_image > 2 * images and (p.weights > 337_000 or p.work > 2**30.3):
        return _copies(p) + _split_sums(p)
    few_weights = p.weights < 2208 and p.channels_in % 48 != 0 and p.batch < 56 and p.positions > 26_000
    return _copies(p) if few_weights else per_image


def _thin_weight_gradient(p: Problem) -> int:
    """The first layer: the sums have the channels filled up too, to eight or in fp32 to four, and are split most."""
    if p.positions < 13_000:
        return _copies(p)
    sums = 4 * (8 if p.half else 4) * p.channels_out * p.taps
    shares = 0.46 if p.half and sums > 32 * 1024 else 0.92
    return _copies(p) + min(int(shares * p.blocks), 300 * TILE_BYTES // sums) * sums


def _channels_last_weight_gradient(p: Problem) -> int:
    if p.half:
        return _split_sums(p) + (_padded_image(p) if p.thin and p.taps > 1 else 0)
    if p.groups > 1:
        return _copies(p)
    if p.thin and p.taps > 1:
        return _copies(p) if p.positions < 200_000 else 0
    return _split_sums(p)


def _depthwise_sums(p: Problem) -> int:
    """Half precision keeps eight fp32 sums an image, in whole warps of channels; fp32 keeps few (0.3 to 8 MB)."""
    return 4 * 8 * p.batch * p.taps * up(p.channels_in, 32) if p.half else 8 * TILE_BYTES


def is_wide_and_dilated(p: Problem) -> bool:
    """The heads of segmentation networks: dilated filters over a thousand and more channels, fp32, planes."""
    plain = p.groups == 1 and not (p.half or p.channels_last or p.transposed)
    return plain and p.dilated and p.squares > 0 and p.taps > 1 and p.channels_in >= 1024


def wide_dilated_weight_gradient(p: Problem) -> int:
    """Copies and eight fp32 sums. None of these was measured alone: it is what explains all that a DeepLab on ResNet-50
    allocated and reserved in training (H200, batch 2, 2048 channels to 256)."""
    return _copies(p) + 8 * p.sums


def winograd(p: Problem) -> int:
    """6 x 6 transforms of the 4 x 4 squares of x and y, and of w."""
    return 4 * 36 * (p.squares * (p.channels_in + p.channels_out) + p.channels_in * p.channels_out)


def _winograd(p: Problem) -> bool:
    """fp32 weight gradients of 3 x 3 filters that are large beside their images."""
    if p.half or p.taps != 9 or p.strided or p.groups > 1 or p.squares == 0:
        return False
    large_filter = p.element * p.weights > (p.x + p.y) / 30
    return large_filter and p.weights < 600_000 and p.pixels_out >= 64 and 2**24 < p.work < 2**30.25


def _fourier(p: Problem) -> bool:
    """fp32 weight gradients of one-dimensional filters seven wide, 64 channels to 64: up to a thousand times x."""
    one_row = p.squares == 0 and p.taps == 7
    narrow = p.channels_in == p.channels_out == 64 and 64 < p.pixels_in <= 256
    return not p.half and not p.strided and one_row and narrow and p.batch > 32


def up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
