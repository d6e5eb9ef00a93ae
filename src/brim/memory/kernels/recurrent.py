"""The memory of cuDNN's recurrent layers: LSTM (with and without projection), GRU and plain RNN.

Everything here is arithmetic on plain numbers. The sizes were read off 392 random layers trained on an H200 with torch
2.11 and cuDNN 9.19 (2026-11-15) and repeated on seven whole models:

* the flattened weights and the order of allocations are exact;
* the *reserve*, kept from forward to backward, is a closed formula, exact to less than 1 KiB in all layers;
* the *workspace* is the larger of two closed formulas found from the data, one for each way of scheduling a layer
  (:func:`_fused` and :func:`_split`): exact to the byte in 93 % of the layers, within 0.5 % in 98 %, at worst 4.3 %
  off. So is the peak inside forward (within 0.5 % in 98.7 %, at worst 2.5 %) and backward (97.7 %, 4.2 %).
  These are the layers the formulas were found on, so the figures are no test of them; the seven models, of which the
  smallest terms were found too, agree to the byte.

Irregular, and the reason for what is left: layers stacked in one direction on more than 256 steps (fitted, on one
length of 365 steps), and how many steps apart cuDNN runs stacked layers (12 to 48 were seen, by no rule found).
Projections were measured at a quarter of the hidden size only. Inference is taken to need the training workspace.

Outputs are numbered for the tracer: forward 0 output, 1 hy, 2 cy (LSTM only), 3 reserve, 4 flattened weights (where
the call makes them); under autocast also 5 the cast hx, 6 the cast cx (LSTM only) and 7 the cast input, all kept for
the backward. Backward: 0 dx, 1 dhx, 2 dcx (LSTM only), 3 the flattened gradient of the weights.

With dropout between layers the first call on a device also makes the dropout state, ``DROPOUT_STATE_BYTES``, which
stays for good.
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from brim.memory.kernels.scope import Scope

DROPOUT_STATE_BYTES = 6_488_064
CUBLAS_BYTES = 8 << 20  # cuDNN gives the matrix products of every layer and direction 8 MiB of their own
ALIGNMENT = 256
LONGEST_FUSED = 256  # measured: 200 steps still fused, 365 not
PIPELINE_STEPS = {2: 12, 3: 14, 4: 40}  # usual steps in flight between stacked layers; 12 to 48 were seen

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SAVED_PER_STEP = {"LSTM": 5, "GRU": 6, "RNN": 1}  # gates, plus what their derivatives need

Mode = Literal["LSTM", "GRU", "RNN"]


@dataclass(frozen=True)
class Recurrent:
    """A recurrent layer, as torch.nn names its parts, and the sequence it is fed.

    ``element_size`` is that of the numbers cuDNN computes with (2 under autocast). ``flat_weights`` says whether the
    module keeps its weights in one buffer: ``flatten_parameters`` does that in float32 and float16, not in bfloat16,
    and every call then makes the buffer anew. ``autocast`` layers have float32 weights and always make it.
    """

    mode: Mode
    input_size: int
    hidden_size: int
    time: int
    batch: int
    layers: int = 1
    projection: int = 0
    bidirectional: bool = False
    batch_first: bool = False
    dropout: float = 0.0
    element_size: int = 4
    half: bool = False  # float16 and not bfloat16: only then is the persistent kernel used
    flat_weights: bool = True
    autocast: bool = False
    bias: bool = True
    training: bool = True

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        return self.projection or self.hidden_size

    @property
    def stacks(self) -> int:
        return self.layers * self.directions

    @property
    def drops(self) -> bool:
        """Dropout acts between layers only."""
        return self.training and self.dropout > 0 and self.layers > 1

    @property
    def input_bytes(self) -> int:
        return self.time * self.batch * self.input_size * self.element_size

    @property
    def output_bytes(self) -> int:
        return self.time * self.batch * self.output_size * self.directions * self.element_size

    @property
    def hidden_bytes(self) -> int:
        return self.stacks * self.batch * self.output_size * self.element_size

    @property
    def cell_bytes(self) -> int:
        return self.stacks * self.batch * self.hidden_size * self.element_size

    @property
    def transposed(self) -> bool:
        """cuDNN wants time first; with one step or one sequence the two orders are the same memory."""
        return self.batch_first and self.time > 1 and self.batch > 1


def _weights(layer: Recurrent, biases: int) -> int:
    """The number of weights in all layers and directions."""
    rows = GATES[layer.mode] * layer.hidden_size
    projection = layer.hidden_size * layer.projection
    total = 0
    for depth in range(layer.layers):
        width = layer.input_size if depth == 0 else layer.output_size * layer.directions
        total += layer.directions * (rows * (width + layer.output_size + biases) + projection)
    return total


def weight_bytes(layer: Recurrent) -> int:
    """The flattened weights: cuDNN keeps two biases per gate."""
    return _weights(layer, 2 if layer.bias else 0) * layer.element_size


def reserve_bytes(layer: Recurrent) -> int:
    """What the forward keeps for the backward: the gates of every step, what goes from layer to layer, and one bit of
    dropout mask for every number that does (in both directions for both directions of the next layer)."""
    if not layer.training:
        return 0
    per_step = SAVED_PER_STEP[layer.mode] * layer.hidden_size
    if layer.projection:
        per_step += layer.hidden_size + layer.projection
    between = (layer.layers - 1) * layer.directions
    numbers = layer.time * layer.batch * (layer.stacks * per_step + between * layer.hidden_size)
    mask = 0
    if layer.drops:
        mask = ceil(layer.time * layer.batch * layer.output_size / 8) * between * layer.directions
    return numbers * layer.element_size + mask + ALIGNMENT


def _keeps_weights_on_chip(layer: Recurrent, forward: bool) -> bool:
    """Whether torch asks for the algorithm for small hidden sizes (get_algo in ATen's cudnn/RNN.cpp), whose limit is
    higher in the forward; or, in float16, for the persistent one. Both take the same workspace. cuDNN does not use
    them in a call that has to flatten bfloat16 weights first."""
    if layer.projection or not (layer.flat_weights or layer.autocast):
        return False
    limits = (384, 256) if layer.mode == "RNN" else (192, 128)
    return layer.hidden_size <= limits[0 if forward else 1] or _persistent(layer)


def _persistent(layer: Recurrent) -> bool:
    """use_persist_common_heuristics and use_persist_device_heuristics of ATen, for Ampere and later."""
    wide = layer.hidden_size >= 896 and layer.batch >= 96 and layer.mode == "RNN"
    fits = layer.hidden_size <= 1024 and layer.hidden_size % 128 == 0 and layer.input_size % 128 == 0
    batches = layer.batch % 8 == 0 and layer.batch <= 128
    return layer.half and layer.mode != "GRU" and layer.stacks == 1 and fits and batches and not wide


# Rows of batch x hidden numbers a step: how much more the algorithms that keep weights on chip take.
ON_CHIP_STEPS = {"LSTM": 12, "GRU": 14, "RNN": 9}


def _narrowing(layer: Recurrent) -> float:
    """How wide a projected output is, as part of the state; nought without a projection."""
    return layer.projection / layer.hidden_size


def _fused(layer: Recurrent, small: bool) -> float:
    """One way, with the input products of all steps at once, in rows of batch x hidden numbers."""
    part, inputs = _narrowing(layer), layer.time * layer.input_size / layer.hidden_size
    per_step, rows = (5 + part, 8 + 2 * part if part else 10.0) if layer.mode == "LSTM" else (4.0, 5.0)
    if layer.mode == "RNN" or (layer.mode == "GRU" and (small or layer.layers == 1)):
        return 0.0  # never more than _split
    if small:
        per_step, rows = 21.0, 8.0
    elif layer.time > LONGEST_FUSED and layer.layers == 1:
        return 0.0
    elif layer.time > LONGEST_FUSED and not part:
        per_step = 3.8 if layer.mode == "LSTM" else 3.3  # fitted
    return (per_step + layer.drops) * layer.time + inputs + rows * layer.stacks


def _fused_both_ways(layer: Recurrent, small: bool) -> float:
    part, inputs = _narrowing(layer), layer.time * layer.input_size / layer.hidden_size
    if layer.mode == "LSTM":
        rows = 9 if small else 10 + 2 * part if part else 12
        return (30 if small else 14 + 2 * part) * layer.time + inputs + rows * layer.stacks
    if layer.mode == "GRU" and not small:
        return 12 * layer.time + inputs + 7 * layer.stacks
    return 0.0


def _split(layer: Recurrent, small: bool) -> float:
    """One way, step by step, in rows of batch x hidden numbers: a buffer is as wide as the wider of input and state,
    which makes narrow layers on wide inputs expensive. Stacked layers run as a pipeline, a few steps apart."""
    steps, inputs = layer.time, layer.time * layer.input_size / layer.hidden_size
    per_state, rows = 3.0 * steps, 11 if layer.mode == "LSTM" else 5
    if small:
        per_state += (ON_CHIP_STEPS[layer.mode] + (layer.layers > 1)) * steps
        rows += 1
    elif layer.layers > 1:
        per_state = 2.0 * steps + min(steps, PIPELINE_STEPS.get(layer.layers, 40))
    if layer.projection:
        per_state -= (1 - 2 * _narrowing(layer)) * steps
        rows -= 3
    return per_state + max(inputs, steps) + 2 * inputs + rows * layer.stacks


def _split_both_ways(layer: Recurrent, small: bool) -> float:
    steps, inputs = layer.time, layer.time * layer.input_size / layer.hidden_size
    per_step, rows = 6.0 + 2 * (layer.layers > 1), 13 if layer.mode == "LSTM" else 7
    if small:
        per_step += ON_CHIP_STEPS[layer.mode]
    if layer.projection:
        per_step -= 2 * (1 - 2 * _narrowing(layer))
        rows -= 3
    return per_step * steps + 4 * max(inputs, steps) + 2 * inputs + rows * layer.stacks


def _workspace(layer: Recurrent, forward: bool) -> int:
    small = _keeps_weights_on_chip(layer, forward)
    if layer.bidirectional:
        rows = max(_fused_both_ways(layer, small), _split_both_ways(layer, small))
    else:
        rows = max(_fused(layer, small), _split(layer, small))
    numbers = rows * layer.batch * layer.hidden_size + _weights(layer, 0)
    lengths = ceil(layer.batch * 8 / 32) * 32  # of the sequences, which cuDNN keeps on the card too
    return layer.stacks * CUBLAS_BYTES + round(numbers * layer.element_size) + lengths + ALIGNMENT


def forward_workspace_bytes(layer: Recurrent) -> int:
    return _workspace(layer, forward=True)


def backward_workspace_bytes(layer: Recurrent) -> int:
    """The backward switches to the standard algorithm at a smaller hidden size than the forward, and asks for this
    twice: for the gradient of the data and for that of the weights."""
    return _workspace(layer, forward=False)


def forward_steps(layer: Recurrent, scope: Scope) -> None:
    """What ``_cudnn_rnn`` allocates, in order, and under autocast the casts before it."""
    if layer.autocast:
        scope.output(4)
        for cast in ((6, 5) if layer.mode == "LSTM" else (5,)) + (7,):
            scope.output(cast)
    copied = scope.allocate(layer.input_bytes) if layer.transposed else None
    scope.output(0)
    scope.output(1)
    if layer.mode == "LSTM":
        scope.output(2)
    if not (layer.flat_weights or layer.autocast):
        scope.output(4)
    workspace = scope.allocate(forward_workspace_bytes(layer))
    if layer.training:
        scope.output(3)
    scope.free(workspace)
    if copied is not None:
        scope.free(copied)


def backward_steps(layer: Recurrent, scope: Scope, *, states_unused: bool = True) -> None:
    """What ``_cudnn_rnn_backward`` allocates, in order.

    ``states_unused``: hy and cy had no gradient, so zeros stand for them. The gradient of a batch-first output is taken
    to come batch first and to be copied: it does, unless it is an elementwise function's gradient of the output itself.
    """
    zeros = [scope.allocate(layer.hidden_bytes)] if states_unused else []
    if states_unused and layer.mode == "LSTM":
        zeros.append(scope.allocate(layer.cell_bytes))
    sizes = (layer.input_bytes, layer.output_bytes) if layer.transposed else ()
    copies = [scope.allocate(size) for size in sizes]
    for index in (0, 1, 2) if layer.mode == "LSTM" else (0, 1):
        scope.output(index)
    scope.workspace(backward_workspace_bytes(layer))
    for number in reversed(copies):
        scope.free(number)
    copies = [scope.allocate(layer.input_bytes)] if layer.transposed else []
    scope.output(3)
    scope.workspace(backward_workspace_bytes(layer))
    for number in copies + zeros[::-1]:
        scope.free(number)
