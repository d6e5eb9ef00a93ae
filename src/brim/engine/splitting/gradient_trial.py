"""Gradients of a few samples and of parts of them, computed on trial: all from one moment, with the same draws."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch, batch_length
from brim.data.batches.batch import map_leaves, named_tensors, select_rows
from brim.data.randomness.generators import PythonGenerators
from brim.engine.components.loss import CountedLoss, Loss, LossOf, loss_of
from brim.engine.components.precision import Precision
from brim.engine.components.two_pass import criterion_in
from brim.engine.numbers.gather_scope import Alone, Answered, Noted, gathering
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.engine.oom.snapshot import Snapshot
from brim.engine.sandbox.trial_call import trial_call
from brim.engine.splitting.kept_weights import kept_weights
from brim.engine.splitting.loss_verdict import IN_PYTHON, MovingState
from brim.engine.splitting.same_draws import CannotSplit, SameDraws
from brim.float32_products import float32_products
from brim.replaced import replaced
from brim.uncompiled import uncompiled

SKETCH = 1 << 16  # numbers of each gradient that are compared
WATCHED_GRADIENTS = 4
Path = tuple[Any, ...]  # of keys, to a tensor in a batch
LARGEST_COPY = 1 << 30  # bytes of a model that is copied, to try something on the copy


@dataclass
class Gradients:
    """The gradients of a few samples and of their halves (some numbers of each), and what brim.Loss counts in them."""

    whole: Tensor
    halves: list[Tensor]
    counts: list[float] | None  # what brim.Loss says: of the whole, and of each half
    draws: SameDraws
    moving: tuple[MovingState, ...] = ()
    indices: frozenset[Path] = frozenset()  # where in the batch: tensors that something is indexed with
    never_negative: frozenset[Path] = frozenset()
    unchecked: frozenset[Path] = frozenset()

    def residual(self, counts: Sequence[float]) -> float:
        """How far the halves, weighted by these counts, are from the whole, relative to its gradient."""
        return residual_of(self.whole, self.halves, counts)

    @property
    def is_finite(self) -> bool:
        return all(bool(gradient.isfinite().all()) for gradient in (self.whole, *self.halves))

    @property
    def is_zero(self) -> bool:
        return not any(bool(gradient.any()) for gradient in (self.whole, *self.halves))


def residual_of(whole: Tensor, parts: Sequence[Tensor], counts: Sequence[float]) -> float:
    """How far gradients of parts, weighted by their counts, are from that of the whole, relative to its norm."""
    total = sum(counts)
    if not total:
        return float("inf")
    weighted = sum(part * (count / total) for part, count in zip(parts, counts, strict=True) if count)
    size = max(float(whole.norm()), float(torch.as_tensor(weighted).norm()))
    return float((whole - weighted).norm()) / size if size else 0.0


@dataclass
class GradientTrial:
    """A model, or a copy of it, whose gradients are computed on trial; :meth:`running` is around everything else."""

    compute: LossOf
    model: nn.Module | None
    loss_fn: Any
    parameters: list[nn.Parameter]
    precision: Precision
    is_copy: bool = False
    by_value: bool = False  # whether losses are compared instead of gradients
    alone: Alone = field(default_factory=Alone)  # counts the gathers of the loss, which nobody answers on trial
    snapshot: Snapshot = field(init=False)  # while it is running
    _rewind: Callable[[], None] = field(init=False)
    _written_to: Callable[[], list[nn.Parameter]] = field(init=False)

    @classmethod
    def of(
        cls, loss: CountedLoss, precision: Precision, parameters: Sequence[nn.Parameter], alone: Alone | None = None
    ) -> "GradientTrial":
        modules = [part for part in (loss.model, criterion_in(loss.loss_fn)) if part is not None]
        trained = dict.fromkeys([p for m in modules for p in m.parameters() if p.requires_grad])
        trained.update(dict.fromkeys(p for p in parameters if p.requires_grad))
        return cls(loss.plain, loss.model, loss.loss_fn, list(trained), precision, alone=alone or Alone())

    @property
    def is_half(self) -> bool:
        """Whether weights have 8 or 11 bits, which round much."""
        return any(parameter.element_size() < 4 for parameter in self.parameters)

    @contextmanager
    def running(self) -> Iterator[None]:
        """In full precision and without a trace: every pass begins at this moment, and so does what comes after."""
        roots, device = (self.model, self.loss_fn), self.precision.device
        kept = [part for part in roots if isinstance(part, nn.Module)]  # by the snapshot
        call = trial_call(*roots, device=device, but_for=kept, may_step=False)
        with (
            _without_special_rules(self.model), torch.enable_grad(), self._in_full_precision(), uncompiled(),
            call as rewind, gathering(self.alone), kept_weights(self.parameters) as written_to,
        ):  # fmt: skip
            self._written_to = written_to
            self.snapshot = Snapshot(self.model, self.precision, self.loss_fn)
            self.snapshot.take()
            self._rewind = rewind
            try:
                yield
            finally:
                self._start_over()

    def _start_over(self) -> None:
        self.snapshot.find_moves()
        self._rewind()
        self.snapshot.restore()

    def gradients(self, batch: Batch) -> Gradients:
        """The gradients of a batch and of its two halves."""
        samples = batch_length(batch)
        rows, draws = torch.arange(samples), SameDraws(self.model, samples)
        given = select_rows(batch, rows)
        tensors = list(named_tensors(given))  # as they are now: the loss may take something out of the batch
        whole, own = self._gradient(given, draws.recording())
        watch = draws.indices
        tests = watch.is_index, watch.is_never_negative, watch.is_unchecked
        kinds = [frozenset(path for path, tensor in tensors if test(tensor)) for test in tests]
        after = self.snapshot.find_moves(draws.written)
        halves, counts, states = [], [own], []
        for part in (rows[: samples // 2], rows[samples // 2 :]):
            half, own = self._gradient(select_rows(batch, part), draws.replaying(part))
            states.append(self.snapshot.find_moves(draws.written))
            halves.append(half)
            counts.append(own)
        known = [count for count in counts if count is not None]
        own_counts = known if len(known) == len(counts) else None
        moving = tuple(_moving_states(after, states))
        return Gradients(whole, halves, own_counts, draws, moving, *kinds)

    def gradient_of_rows(self, batch: Batch, rows: Tensor, gradients: Gradients) -> Tensor:
        """The gradient of some of the samples, with the draws that they had in ``gradients``."""
        return self._gradient(select_rows(batch, rows), gradients.draws.replaying(rows))[0]

    def rewrites(self) -> tuple[str, ...]:
        """The trained weights that the passes until now have written to, by name; while it is running."""
        names = {} if self.model is None else {id(one): name for name, one in self.model.named_parameters()}
        return tuple(names[id(one)] for one in self._written_to() if id(one) in names)

    def residual_over_ranks(self, batch: Batch, gradients: Gradients) -> float:
        """How far the losses of two ranks that gather from each other are from that of the whole, by their gradients.

        What each hands to :func:`brim.gather` is noted first; then both compute with what the other one has handed
        over. What they hand over must not depend on what they have gathered before.
        """
        rows = torch.arange(batch_length(batch))
        parts = rows[: len(rows) // 2 - 1], rows[len(rows) // 2 - 1 :]  # of different lengths, as those of ranks may be
        handed = [self._handed_over(select_rows(batch, part), gradients.draws.replaying(part)) for part in parts]
        joined = [torch.cat(tensors) for tensors in zip(*handed, strict=True)]
        found, counts = [], []
        for part in parts:
            with gathering(Answered(joined)):
                gradient, count = self._gradient(select_rows(batch, part), gradients.draws.replaying(part), keeps=True)
            found.append(gradient)
            counts.append(float(len(part)) if count is None else count)
        return residual_of(gradients.whole, found, counts)

    def _handed_over(self, batch: Batch, drawing: AbstractContextManager[None]) -> list[Tensor]:
        self._start_over()
        noted = Noted()
        with drawing, gathering(noted):
            self.compute(batch)
        return noted.handed

    def kept_in_python(self, batch: Batch, gradients: Gradients) -> MovingState | None:
        """What the loss keeps in Python and computes with: a count of its calls, or something that follows the data."""
        rows = torch.arange(batch_length(batch))
        try:
            after_all = self._gradient_after(rows, batch, gradients)
        except Exception:  # what fails when it is called again would fail in earnest too, and be seen there
            return None
        if residual_of(gradients.whole, [after_all], [1]) <= 1e-5:
            return None
        try:
            after_half = self._gradient_after(rows[: len(rows) // 2], batch, gradients)
        except Exception:
            return MovingState(IN_PYTHON, follows_data=True)
        return MovingState(IN_PYTHON, follows_data=residual_of(after_all, [after_half], [1]) > 1e-5)

    def _gradient_after(self, earlier: Tensor, batch: Batch, gradients: Gradients) -> Tensor:
        """The gradient of the batch in a second call, after one of these rows."""
        rows = torch.arange(batch_length(batch))
        self._gradient(select_rows(batch, earlier), gradients.draws.replaying(earlier))
        self.snapshot.find_moves()
        self.snapshot.restore()  # but not what is kept in Python
        return self._gradient(select_rows(batch, rows), gradients.draws.replaying(rows), starts_over=False)[0]

    def draws_outside_torch(self, batch: Batch) -> bool:
        """Whether the loss draws from the generators of numpy or of Python's ``random``."""
        self._start_over()
        before = PythonGenerators.now().marks()
        with torch.no_grad():
            self.compute(select_rows(batch, torch.arange(batch_length(batch))))
        return PythonGenerators.now().marks() != before

    def has_finite_gradient(self, batch: Batch, total: Callable[[Tensor | Loss], Tensor]) -> bool:
        """Whether ``total`` of the loss of this batch has a finite gradient."""
        self._start_over()
        value = total(self.compute(batch))
        found = torch.autograd.grad(value, self.parameters, allow_unused=True) if value.requires_grad else ()
        return all(bool(_dense(gradient).isfinite().all()) for gradient in found if gradient is not None)

    def _gradient(
        self, batch: Batch, drawing: AbstractContextManager[None], starts_over: bool = True, keeps: bool = False
    ) -> tuple[Tensor, float | None]:
        """Some numbers of the gradient of the mean loss (where nothing is trained, the loss), and its own count."""
        if starts_over:
            self._start_over()
        with drawing, self._gradients_untouched():
            loss = self.compute(batch)
            count = float(loss.count) if isinstance(loss, Loss) else None
            mean = loss.mean if isinstance(loss, Loss) else loss
            if not isinstance(mean, Tensor) or mean.dim():
                raise CannotSplit("it is not a single number")
            if not mean.requires_grad or self.by_value:
                return mean.detach().double().cpu().reshape(1), count
            mean = mean.float() if mean.element_size() < 4 else mean
            gradients = torch.autograd.grad(mean, self.parameters, retain_graph=keeps, allow_unused=True)
        return sketch_of(gradients, self.parameters), count

    @contextmanager
    def _gradients_untouched(self) -> Iterator[None]:
        """A loss that writes to gradients itself (an inner backward pass) would spoil those of the parts before it."""
        held = [(parameter, parameter.grad) for parameter in self.parameters]
        watched = sorted(self.parameters, key=Tensor.numel)[:WATCHED_GRADIENTS]
        for parameter, _ in held:
            parameter.grad = None
        for parameter in watched:
            parameter.grad = torch.zeros_like(parameter)
        marks = [(parameter.grad, parameter.grad._version) for parameter in watched if parameter.grad is not None]
        try:
            yield
            now = [(p.grad, -1 if p.grad is None else p.grad._version) for p in watched]
            if any(a is not b or v != w for (a, v), (b, w) in zip(marks, now, strict=True)):
                raise CannotSplit("it changes gradients by itself")
        finally:
            for parameter, gradient in held:
                parameter.grad = gradient

    def on_copy(
        self, nudge: float = 0.0, device: torch.device | None = None, dtype: torch.dtype = torch.float32
    ) -> "GradientTrial | None":
        """The same on a copy in this precision, its weights moved by ``nudge``; None where it cannot be copied."""
        model, home = self.model, device or self.precision.device
        if model is None or sum(dtype.itemsize * p.numel() for p in model.parameters()) > LARGEST_COPY:
            return None
        try:
            twin, loss_fn = copy.deepcopy((model, self.loss_fn if isinstance(self.loss_fn, nn.Module) else None))
            cast = nn.Module.double if dtype == torch.float64 else nn.Module.float  # these leave complex numbers alone
            twin = cast(twin.to(home))
            loss_fn = self.loss_fn if loss_fn is None else cast(loss_fn.to(home))
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return None
        generator = torch.Generator("cpu").manual_seed(0)
        with torch.no_grad():
            for parameter in twin.parameters() if nudge else ():
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.device), alpha=nudge)
        modules = [part for part in (twin, loss_fn) if isinstance(part, nn.Module)]
        return replace(
            self, compute=loss_of(twin, loss_fn).plain, model=twin, loss_fn=loss_fn, is_copy=True,
            parameters=[p for m in modules for p in m.parameters() if p.requires_grad],
            precision=Precision("32", home),
        )  # fmt: skip

    @property
    def is_double(self) -> bool:
        return any(parameter.dtype == torch.float64 for parameter in self.parameters)

    def adapted(self, batch: Batch) -> Batch:
        """The batch on the device of this model, and not in half precision, which only autocast would take."""
        makes_float = self.is_copy or any(parameter.dtype == torch.float32 for parameter in self.parameters)
        home = self.precision.device if self.is_copy else None
        makes_double = self.is_copy and self.is_double

        def suit(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if makes_double and leaf.is_floating_point():
                return leaf.to(home, torch.float64)
            is_short = leaf.is_floating_point() and leaf.element_size() < 4
            return (leaf.float() if makes_float and is_short else leaf).to(home or leaf.device)

        return map_leaves(suit, batch)

    @contextmanager
    def _in_full_precision(self) -> Iterator[None]:
        kind = self.precision.device.type
        autocast = torch.autocast(kind, enabled=False) if kind in ("cpu", "cuda") else nullcontext()
        with float32_products(False), autocast:
            yield


@contextmanager
def _without_special_rules(model: nn.Module | None) -> Iterator[None]:
    """Without what has rules of its own or hides from a look: norms' statistics, recomputed blocks, gradient hooks."""
    modules: list[Any] = [] if model is None else list(model.modules())
    norms = [m for m in modules if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training]
    recomputing = [m for m in modules if vars(m).get("gradient_checkpointing") is True]
    hooks = [h for m in modules for p in m._parameters.values() if p is not None and (h := p._backward_hooks)]
    kept = [dict(hook) for hook in hooks]
    changes = [(norm, "training", False) for norm in norms]
    with replaced(*changes, *[(module, "gradient_checkpointing", False) for module in recomputing]):
        try:
            for hook in hooks:
                hook.clear()
            yield
        finally:
            for hook, content in zip(hooks, kept, strict=True):
                hook.update(content)


def _moving_states(whole: dict[str, Tensor], halves: list[dict[str, Tensor]]) -> list[MovingState]:
    found: dict[str, bool] = {}
    for name, state in whole.items():
        others = [half.get(name) for half in halves]
        alike = all(other is not None and other.shape == state.shape and _close(other, state) for other in others)
        module = name.rpartition(".")[0] or name
        found[module] = found.get(module, False) or not alike
    return [MovingState(name, follows) for name, follows in found.items()]


def _close(one: Tensor, other: Tensor) -> bool:
    if not one.is_floating_point():
        return torch.equal(one, other)
    return bool((one.double() - other.double()).norm() <= 1e-6 * other.double().norm())


def _dense(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def sketch_of(gradients: Sequence[Tensor | None], parameters: Sequence[nn.Parameter]) -> Tensor:
    """Numbers of all gradients, on the host; where they lie together a GPU is waited for once, not for each of them."""
    found = [_sketch(gradient, parameter) for gradient, parameter in zip(gradients, parameters, strict=True)]
    if len({(one.device, one.dtype) for one in found}) == 1:
        return torch.cat(found).cpu().double()
    return torch.cat([one.cpu().double() for one in found])


def _sketch(gradient: Tensor | None, parameter: nn.Parameter) -> Tensor:
    """Numbers of a gradient, evenly from all over it."""
    size = parameter.numel()
    stride = max(1, -(-size // SKETCH)) | 1  # odd: else the same columns of every row would be taken
    if gradient is None:
        kind = torch.view_as_real(parameter.detach()).dtype if parameter.is_complex() else parameter.dtype
        return torch.zeros(len(range(0, size, stride)), dtype=kind, device=parameter.device)
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    real = torch.view_as_real(dense).sum(-1) if dense.is_complex() else dense
    return real.detach().reshape(-1)[::stride]
