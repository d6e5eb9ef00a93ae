"""The proof of a captured step: its replays beside eager steps, from the same state, one batch after the other.

For each batch the loss and the gradients are computed eagerly and by a replay, at the same weights, and so is what the
forward pass moves and which random numbers it draws. Then the optimizer steps as the user has it, with the gradients of
the replay, and must come to the weights and the state of the replay. The next batch starts from there.

A proof that could not fail would prove nothing. So the graph's memory is filled with NaN before each replay (a gradient
that is not written shows), batches reach the eager step by another way than the graph (one that is not copied in
shows), and the numbers that a graph might have frozen are changed between batches: the learning rate, the limit of the
clip, the loss scale, the state of the generators.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from brim.data import Batch
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.inputs import BlockInputs, own_copy, read_window
from brim.engine.captured.optimizers import DeviceOptimizer
from brim.engine.captured.proof.comparison import (
    Likeness,
    are_same,
    compare_buffers,
    compare_gradients,
    compare_losses,
    compare_updates,
    distances,
    loss_sensitivity,
    norms,
)
from brim.engine.captured.proof.rounding import Rounding
from brim.engine.captured.proof.step_state import StateCopy, StepState, copy_all
from brim.engine.captured.report import Refusal, Unproven
from brim.engine.sandbox.python_state import PythonState
from brim.engine.step.nonfinite import are_finite

RATES = (1.0, 0.5, 2.0)  # by which learning rates that move are moved
SEEN = 2.0**6  # times the rounding of weights: how large an update must be for a frozen rate to show in it
UNSEEN = 2.0**7  # by which a rate is raised that does not move the weights at all: so much less it is at least
MOST_RAISES = 8
MOST_HALVINGS = 32  # of a loss scale, until gradients are finite
LEAST_FINITE = 2  # steps with finite gradients: what differs from one to the next shows in the second one only
Window = Sequence[Batch]


@dataclass(frozen=True)
class StepOutcome:
    """What came of a step before the optimizer: the loss, gradients, what the forward pass moved, the generator."""

    loss: float
    gradients: dict[str, Tensor]
    others: dict[str, Tensor]
    generator: Tensor
    weights: dict[str, Tensor]  # trained ones that the forward pass moved


@dataclass(eq=False)
class StepProof:
    """Proves one graph. The state is left somewhere else: whoever calls puts it back."""

    graph: StepGraph
    windows: Sequence[Window]
    state: StepState
    on_device: DeviceOptimizer
    rounding: Rounding
    python: PythonState

    def __post_init__(self) -> None:
        self.eager, self.names = self.graph.eager, self.state.names
        self.windows = [*self.windows, *self.windows][: max(2, len(self.windows))]  # numbers change in between
        self._boost = 1.0

    def run(self) -> Likeness:
        """How alike they are; refuses where they are not."""
        likeness = Likeness(self.rounding)
        for number, (window, tensors) in enumerate(zip(self.windows, self._given(), strict=True)):
            self.python.retake()
            self._change_numbers(number, window, likeness)
            here = self.state.copy()
            likeness.steps += self._prove(here, window, tensors, likeness)
        if likeness.steps < LEAST_FINITE:
            raise Unproven("gradients of the steps that it was tried on are not finite, which proves nothing")
        return likeness

    def _given(self) -> list[list[Tensor]]:
        """The tensors as the feed would hand them over: for a graph that reads blocks, rows of one."""
        flat = [read_window(own_copy(window))[0] for window in self.windows]
        if not isinstance(self.graph.inputs, BlockInputs):
            return flat
        blocks = [torch.cat(column) for column in zip(*flat, strict=True)]
        length = len(flat[0][0])
        return [[block[row : row + length] for block in blocks] for row in range(0, length * len(flat), length)]

    def _change_numbers(self, number: int, window: Window, likeness: Likeness) -> None:
        scaler, rates = self.eager.precision.scaler, self.graph.rates
        if scaler is not None and scaler._scale is not None:
            if number == 0:
                self._lower_scale(scaler._scale, window)
            if number == 1:
                scaler._scale.mul_(0.5)
                likeness.tried.append("the loss scale")
        if rates.move:
            self._boost = self._boost if number else self._needed_boost(window)
            rates.probe(RATES[number % len(RATES)] * self._boost)
            likeness.tried += ["the learning rate"] if number == 1 else []
        self.graph.clip.refill()
        if self.eager.clip_norm is not None and number == 1:
            norm = self._gradient_norm(window)
            if 0.0 < norm < math.inf:
                self.graph.clip.set(norm / 2)
                likeness.tried.append("the clip")

    def _needed_boost(self, window: Window) -> float:
        """By which power of two rates are raised for an update to stand out from the rounding of the weights."""
        here = self.state.copy()
        eager = self._eagerly(here, window)
        before = [here.copies[name] for name in self.state.trained]
        size = math.hypot(*norms(before, self.state.trained).values())
        coarsest = max((torch.finfo(tensor.dtype).eps for tensor in before), default=0.0)
        boost, way = 1.0, 0.0
        for number in range(MOST_RAISES):
            boost = UNSEEN**number
            self.graph.rates.probe(boost)
            here.restore()
            self._step_alone(eager.gradients, eager.loss)
            way = math.hypot(*distances([self.state.named[name] for name in self.state.trained], before))
            if way:
                break
        self._go_back(here)
        if not 0.0 < way < math.inf:  # there is no gradient
            return 1.0
        needed = SEEN * coarsest * size / way
        return boost * (2.0 ** math.ceil(math.log2(needed)) if needed > 1.0 else 1.0)

    def _lower_scale(self, scale: Tensor, window: Window) -> None:
        """Until nothing overflows: a step that is left out shows nothing."""
        for _ in range(MOST_HALVINGS):
            here = self.state.copy()
            found = self._eagerly(here, window)
            self._go_back(here)
            if are_finite(list(found.gradients.values())):
                return
            scale.mul_(0.5)

    def _gradient_norm(self, window: Window) -> float:
        """Of the whole gradient, as it is before it is clipped."""
        here = self.state.copy()
        with self.graph.clip.on_host(math.inf):
            self.graph.eager_gradients(own_copy(window))
        found = self._gradients()
        self._go_back(here)
        return math.hypot(*norms(list(found.values()), list(found)).values())

    def _go_back(self, here: StateCopy) -> None:
        here.restore()
        self.python.restore()
        self.eager.precision.forget_unscaling()

    def _prove(self, here: StateCopy, window: Window, tensors: list[Tensor], likeness: Likeness) -> bool:
        """One step; False where its gradients are not finite, and being the same means little."""
        eager = self._eagerly(here, window)
        captured = self._replayed(here, tensors)
        try:
            likeness.gradients = max(likeness.gradients, self._compare(here, eager, captured))
        except Refusal as refusal:
            raise self._blamed(refusal, here, window, eager) from None
        after = self.state.copy()
        here.restore()
        copy_all([self.state.named[name] for name in eager.weights], list(eager.weights.values()))
        self._step_alone(captured.gradients, captured.loss)
        stepped = [*self.state.trained, *self.state.of_optimizer]
        likeness.updates = max(
            likeness.updates,
            compare_updates(
                {name: here.copies[name] for name in stepped},
                {name: self.state.named[name] for name in stepped},
                {name: after.copies[name] for name in stepped},
                self.state.trained,
            ),
        )
        is_finite = are_finite(list(eager.gradients.values()))
        (after if is_finite else here).restore()  # from weights that are not finite no step would be
        return is_finite

    def _eagerly(self, here: StateCopy, window: Window) -> StepOutcome:
        limit = self.graph.clip.tensor  # of the clip, at the moment: torch reads it on the host
        with nullcontext() if limit is None else self.graph.clip.on_host(float(limit)):
            loss = self.graph.eager_gradients(own_copy(window))
        weights = self._moved_weights(here)
        told = float(loss)
        if self.eager.precision.scaler is not None:  # only the whole step takes the scale out, and moves it
            with self.graph.rates.on_device():
                self.eager.apply(loss)
        gradients = {name: gradient.clone() for name, gradient in self._gradients().items()}
        if self._leaves_out(gradients, told) and self.eager.precision.scaler is None:
            told = math.nan  # as the step itself tells it
        return self._outcome(told, gradients, weights)

    def _replayed(self, here: StateCopy, tensors: list[Tensor]) -> StepOutcome:
        self.graph.poison()
        here.restore()
        self.graph.show_gradients()
        self.graph.inputs.fill(tensors)
        self._check_inputs(tensors)
        loss = self.graph.replay()
        gradients = {self.names[id(parameter)]: gradient for parameter, gradient in self.graph.gradients}
        return self._outcome(float(loss), gradients, {})

    def _check_inputs(self, tensors: list[Tensor]) -> None:
        read = read_window(self.graph.inputs.window())[0]
        if not all(are_same(one, other) for one, other in zip(read, tensors, strict=True)):
            raise Refusal("a part of the batch does not reach the captured step")

    def _compare(self, here: StateCopy, eager: StepOutcome, captured: StepOutcome) -> float:
        if not torch.equal(eager.generator, captured.generator):
            raise Refusal("a captured step draws other random numbers than an eager one")
        apart = compare_gradients(eager.gradients, captured.gradients, self.rounding)
        sensitivity = loss_sensitivity(self.state.named, eager.gradients)
        compare_losses(eager.loss, captured.loss, sensitivity, self.rounding)
        before = {name: here.copies[name] for name in eager.others}
        compare_buffers(before, eager.others, captured.others, self.rounding)
        return apart

    def _blamed(self, refusal: Refusal, here: StateCopy, window: Window, eager: StepOutcome) -> Refusal:
        """The same refusal; or, where eager steps do not come to the same either, that."""
        self._go_back(here)
        again = self._eagerly(here, window)
        try:
            self._compare(here, eager, again)
        except Refusal:
            return Refusal(
                f"eager steps differ from each other by more than rounding explains, and prove nothing ({refusal})"
            )
        return refusal

    def _step_alone(self, gradients: dict[str, Tensor], loss: float) -> None:
        """The optimizer as the user has it, on these gradients."""
        if self._leaves_out(gradients, loss):
            return
        self.eager.clear_gradients()
        for parameter in self.eager.parameters:
            parameter.grad = gradients.get(self.names.get(id(parameter), ""))
        with self.on_device.as_before(), self.graph.rates.on_host():
            self.eager.optimizer.step()

    def _leaves_out(self, gradients: dict[str, Tensor], loss: float) -> bool:
        """Whether a step with these is left out: by the loss scaler, or because the user wants it so."""
        is_scaled = self.eager.precision.scaler is not None
        if not (is_scaled or self.eager.skip_nonfinite):
            return False
        return not (are_finite(list(gradients.values())) and (is_scaled or math.isfinite(loss)))

    def _gradients(self) -> dict[str, Tensor]:
        return {self.names[id(p)]: p.grad for p in self.eager.parameters if p.grad is not None}

    def _moved_weights(self, here: StateCopy) -> dict[str, Tensor]:
        """Trained weights that the forward pass has moved: a clamp, a norm."""
        named, copies = self.state.named, here.copies
        return self.state.copies_of([name for name in self.state.trained if not are_same(named[name], copies[name])])

    def _outcome(self, loss: float, gradients: dict[str, Tensor], weights: dict[str, Tensor]) -> StepOutcome:
        others = self.state.copies_of(self.state.others)
        return StepOutcome(loss, gradients, others, device_generator(self.state.device), weights)


def device_generator(device: torch.device) -> Tensor:
    """Where the generator stands that a step on this device draws from."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
