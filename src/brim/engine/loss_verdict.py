"""What a loss is a mean over, found out by gradients: those of a few samples and of their two halves.

A batch may be split (into micro-batches, over ranks, over an accumulation window) only where the gradients of its parts
add up to its own. With g the gradient of the mean over some samples, and g1, g2 those of their halves, a mean over
something that is counted C = c1 + c2 obeys  g C = g1 c1 + g2 c2.  Each count that the batch offers is a hypothesis, and
is tested so; where none holds, the loss looks across the batch or counts something else.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch, batch_length
from brim.data.batch import map_leaves, named_tensors, select_rows, slice_batch, tensor_at
from brim.engine.loss import CountedLoss, Loss, LossOf, counted, loss_of
from brim.engine.loss_count import IGNORED, SAMPLES, CountRule, label_tensors, masked_like, possible_rules
from brim.engine.out_of_memory import is_out_of_memory
from brim.engine.precision import Precision
from brim.engine.release import release_memory
from brim.engine.same_draws import CannotSplit, SameDraws
from brim.engine.snapshot import Snapshot
from brim.engine.trial_call import WritesFiles, trial_call
from brim.errors import BrimError

TRIED_SAMPLES = 8
HEAD = 256  # samples among which those to try are chosen
MOST_VARIANTS = 4
MOST_TRIES = 4  # with other samples, where some tell too little
TOLERANCE = 1e-5  # of the gradient's norm: single precision rounds less
NOISE = 10  # times what another order of the same samples changes
MOST_NOISE = 1e-3
HALF_NOISE = 2e-2  # where weights have 8 or 11 bits and there is no room for a longer copy
SKETCH = 1 << 16  # numbers of each gradient that are compared
NUDGE = 0.02
LARGEST_COPY = 1 << 30  # bytes of a model that is copied to try something on the copy

SAMPLE_MEAN, LABEL_MEAN, OWN_COUNT = "mean over samples", "mean over labels", "brim.Loss"
ACROSS, UNKNOWN = "looks across the batch, or counts otherwise", "cannot be told"


@dataclass(frozen=True)
class MovingState:
    """What a module changes in its forward pass without a gradient; ``follows_data``: it becomes another for others."""

    name: str
    follows_data: bool


@dataclass(frozen=True)
class LossVerdict:
    """What is known of a loss. ``reason`` says why its parts do not add up, where they do not."""

    kind: str
    rule: CountRule = SAMPLES
    reason: str = ""
    moving: tuple[MovingState, ...] = ()
    lacks_memory: bool = False  # it could be told with more of it
    says_count: bool = False  # it returns brim.Loss, so whoever wrote it has thought of parts

    @property
    def gives_count(self) -> bool:
        """Whether parts of a batch add up to the batch, weighted by what they count."""
        return self.kind in (SAMPLE_MEAN, LABEL_MEAN, OWN_COUNT)


def judge_loss(
    loss: CountedLoss, batch: Batch, precision: Precision, parameters: Sequence[nn.Parameter] = ()
) -> LossVerdict:
    """Find out from a few samples of ``batch`` what ``loss`` counts; whatever that takes is put back afterwards.

    ``parameters``: what is trained, where that is more than the model has.
    """
    samples = min(TRIED_SAMPLES, batch_length(batch))
    if not samples:
        return LossVerdict(UNKNOWN, reason="there is no sample to tell by")
    tries = 0
    while samples >= 2:
        try:
            return _Bench.of(loss, batch, samples, precision, parameters, skip=tries * samples).verdict()
        except _TellsTooLittle as few:
            tries += 1
            if tries == MOST_TRIES or tries * samples >= batch_length(batch):
                return few.verdict
            continue
        except WritesFiles:
            return LossVerdict(UNKNOWN, reason="the loss writes files, so it is not called on trial")
        except (BrimError, CannotSplit) as error:
            return LossVerdict(UNKNOWN, reason=str(error))
        except Exception as error:
            if not is_out_of_memory(error):
                return LossVerdict(
                    UNKNOWN, reason=f"for a few samples it fails: {type(error).__name__}: {_line(error)}"
                )
        release_memory(precision.device)
        samples //= 2
    says_count = _says_count(loss, batch, precision)
    return LossVerdict(UNKNOWN, reason="there is no memory for two samples", lacks_memory=True, says_count=says_count)


def enough_samples(batches: Sequence[Batch]) -> Batch:
    """The longest of some batches; where they have a sample each, several of these, or of what one can be made into.

    Samples of other lengths are cut to the shortest, from their ends, where labels are. One alone is put beside itself,
    moved on by a position: that is another sample of the same kind, with the same values.
    """
    longest = max(batches, key=batch_length)
    if batch_length(longest) >= 2:
        return longest
    single = [batch for batch in batches if batch_length(batch) == 1][:TRIED_SAMPLES]
    try:
        if len(single) > 1:
            return _joined(single)
    except (RuntimeError, ValueError, TypeError):  # not of one kind
        pass
    tensors = [tensor for _, tensor in named_tensors(longest)]
    if any(tensor.dim() and len(tensor) != 1 for tensor in tensors):
        return longest
    return map_leaves(lambda leaf: _with_neighbours(leaf) if isinstance(leaf, Tensor) else leaf, longest)


def _joined(batches: Sequence[Batch]) -> Batch:
    columns = iter(list(zip(*[[t for _, t in named_tensors(batch)] for batch in batches], strict=True)))

    def join(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        column = next(columns)
        if leaf.dim() == 0:
            return leaf
        if leaf.dim() > 1:
            shortest = min(tensor.shape[1] for tensor in column)
            column = tuple(tensor[:, tensor.shape[1] - shortest :] for tensor in column)
        return torch.cat(column)

    return map_leaves(join, batches[0])


def _with_neighbours(tensor: Tensor) -> Tensor:
    if tensor.dim() == 0:
        return tensor
    return torch.cat([tensor.roll(step, -1) if tensor.dim() > 1 else tensor for step in range(4)])


def _says_count(loss: CountedLoss, batch: Batch, precision: Precision) -> bool:
    """Whether it returns brim.Loss, seen from a single sample."""
    try:
        with trial_call(loss.model, loss.loss_fn, device=precision.device), torch.no_grad(), precision.autocast():
            snapshot = Snapshot(loss.model, precision, loss.loss_fn)
            snapshot.take()
            try:
                return isinstance(loss.plain(select_rows(batch, torch.tensor([0]))), Loss)
            finally:
                snapshot.find_moves()
                snapshot.restore()
    except Exception:  # not even that: then nothing is known
        return False


class _TellsTooLittle(Exception):
    """These samples do not tell enough: all of their labels are ignored, say. What is known if others do not either."""

    def __init__(self, verdict: LossVerdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


@dataclass(frozen=True)
class _Start:
    """The moment that every pass begins at."""

    snapshot: Snapshot
    over: Callable[[], None]  # go back to it


@dataclass
class _Passes:
    """Gradients (as samples of their numbers) and own counts: of the whole, of its halves, and of another order."""

    whole: Tensor
    halves: list[Tensor]
    noise: float
    counts: list[float] | None  # what brim.Loss says: of the whole, and of each half
    moving: tuple[MovingState, ...] = ()

    def misfit(self, counts: Sequence[float]) -> float:
        """How far the halves, weighted by these counts, are from the whole, relative to its gradient."""
        total = sum(counts)
        if not total:
            return float("inf")
        parts = sum(half * (count / total) for half, count in zip(self.halves, counts, strict=True))
        size = max(float(self.whole.norm()), float(torch.as_tensor(parts).norm()))
        return float((self.whole - parts).norm()) / size if size else 0.0

    @property
    def is_finite(self) -> bool:
        return all(bool(gradient.isfinite().all()) for gradient in (self.whole, *self.halves))

    @property
    def is_flat(self) -> bool:
        return not any(bool(gradient.any()) for gradient in (self.whole, *self.halves))


@dataclass
class _Bench:
    """A model, or a copy of it, and a few samples to try it on."""

    compute: LossOf
    model: nn.Module | None
    loss_fn: Any
    parameters: list[nn.Parameter]
    few: Batch  # ordered so that the first half counts more than the second, where samples differ
    rules: list[CountRule]
    precision: Precision
    ignored: tuple[int, ...]
    is_half: bool = False
    is_copy: bool = False
    by_value: bool = False

    @classmethod
    def of(
        cls,
        loss: CountedLoss,
        batch: Batch,
        samples: int,
        precision: Precision,
        parameters: Sequence[nn.Parameter],
        skip: int = 0,
    ) -> "_Bench":
        model, loss_fn = loss.model, loss.loss_fn
        modules = [part for part in (model, loss_fn) if isinstance(part, nn.Module)]
        trained = dict.fromkeys([p for m in modules for p in m.parameters() if p.requires_grad])
        trained.update(dict.fromkeys(p for p in parameters if p.requires_grad))
        found = [getattr(module, "ignore_index", None) for part in modules for module in part.modules()]
        ignored = tuple(dict.fromkeys(value for value in found if isinstance(value, int)))
        few, rules = _telling_samples(batch, samples, ignored, skip)
        if any(parameter.dtype == torch.float32 for parameter in trained):
            few = map_leaves(lambda leaf: _float(leaf) if isinstance(leaf, Tensor) else leaf, few)  # made for autocast
        bench = cls(loss.plain, model, loss_fn, list(trained), few, rules, precision, ignored)
        if any(parameter.element_size() < 4 for parameter in trained):
            return bench.copied() or replace(bench, is_half=True)
        return bench

    def verdict(self) -> LossVerdict:
        with (
            _plainly(self.model),
            torch.enable_grad(),
            self._in_full_precision(),
            trial_call(self.model, self.loss_fn, device=self.precision.device) as rewind,
        ):
            snapshot = Snapshot(self.model, self.precision, self.loss_fn)
            snapshot.take()

            def start_over() -> None:
                snapshot.find_moves()
                rewind()
                snapshot.restore()

            try:
                return self._verdict(_Start(snapshot, start_over))
            finally:
                start_over()

    def _verdict(self, start: _Start) -> LossVerdict:
        passes = self._passes(self.few, start, with_noise=True)
        if passes.is_flat and not self.is_copy and (nudged := self.copied(NUDGE)) is not None:
            return nudged.verdict()
        if passes.is_flat and not self.by_value and self.model is not None and not self.model.training:
            self.by_value = True  # an evaluation adds up losses, not gradients
            return self._verdict(start)
        if passes.is_flat:
            raise _TellsTooLittle(LossVerdict(UNKNOWN, reason="the gradient of a few samples is zero"))
        if not passes.is_finite:
            return LossVerdict(UNKNOWN, reason="the gradient of a few samples is not finite")
        moving = passes.moving
        if passes.noise > (HALF_NOISE if self.is_half else MOST_NOISE):
            return LossVerdict(ACROSS, reason="its gradient depends on the order of the samples", moving=moving)
        tolerance = max(TOLERANCE, (3 if self.is_half else NOISE) * passes.noise)
        if passes.counts is not None:
            if passes.misfit(passes.counts[1:]) <= tolerance:
                return LossVerdict(OWN_COUNT, moving=moving)
            return LossVerdict(ACROSS, reason=_across(passes.misfit(passes.counts[1:])), moving=moving)
        return replace(self._by_rules(passes, start, tolerance), moving=moving)

    def _by_rules(self, passes: _Passes, start: _Start, tolerance: float) -> LossVerdict:
        """Which counts the batch as it is allows, and which of them is left when labels are taken out of it."""
        fitting = self._fitting(self.few, passes, tolerance)
        if not fitting:
            return LossVerdict(ACROSS, reason=_across(passes.misfit([1, 1])))
        if SAMPLES not in fitting:
            return self._label_mean(self._narrowed(fitting, start, tolerance), start)
        for masked, path, value in self._variants():
            try:
                changed = self._passes(masked, start)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                continue  # this value cannot stand there, so no loss leaves it out
            if not changed.is_finite:
                continue
            left = self._fitting(masked, changed, tolerance)
            if not left:
                return LossVerdict(
                    ACROSS, reason=f"it counts neither samples nor labels once some of {_place(path)} are {value}"
                )
            if SAMPLES not in left:
                return self._label_mean(self._narrowed(left, start, tolerance), start)
        return self._samples_or_unknown()

    def _narrowed(self, fitting: list[CountRule], start: "_Start", tolerance: float) -> CountRule:
        """The one of several counts that still fits when the samples are changed so that they differ."""
        for changed in chain(self._labelled_from_the_start(fitting), (batch for batch, _, _ in self._variants())):
            if len(fitting) == 1:
                break
            try:
                passes = self._passes(changed, start)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                continue
            left = self._fitting(changed, passes, tolerance) if passes.is_finite else []
            fitting = [rule for rule in fitting if rule in left] or fitting
        return fitting[0]

    def _labelled_from_the_start(self, fitting: list[CountRule]) -> Iterator[Batch]:
        """The same samples, the first half of them with a label that counts at the very start: is it counted?"""
        for path, ignored in dict.fromkeys((rule.path, rule.ignored) for rule in fitting if rule.shift):
            batch = _clone(self.few)
            tensor = None if path is None else tensor_at(batch, path)
            if tensor is not None:
                for row in tensor[: len(tensor) // 2]:
                    counting = row[row != ignored]
                    row[:1] = counting[0] if len(counting) else row[:1]
                yield batch

    def _label_mean(self, rule: CountRule, start: "_Start") -> LossVerdict:
        """A mean over labels; where there are none its value is 0 / 0, and of some losses the gradient too."""
        assert rule.path is not None
        empty = _clone(self.few)
        tensor = tensor_at(empty, rule.path)
        assert tensor is not None
        tensor.fill_(rule.ignored)
        start.over()
        try:
            loss = counted(self.compute(empty), rule.count(empty))
            assert isinstance(loss, Loss)
            found = torch.autograd.grad(loss.total, self.parameters, allow_unused=True) if self.parameters else ()
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return LossVerdict(LABEL_MEAN, replace(rule, skips_empty=True))
        is_finite = all(bool(gradient.isfinite().all()) for gradient in found if gradient is not None)
        return LossVerdict(LABEL_MEAN, replace(rule, skips_empty=not is_finite))

    def _samples_or_unknown(self) -> LossVerdict:
        """Nothing speaks against samples; on a GPU a label that was never there is tried on a copy on the CPU."""
        if self.few_device.type == "cpu" or not any(t.dim() > 1 or _named(p) for p, t in self._unsafe()):
            return LossVerdict(SAMPLE_MEAN)
        on_cpu = self.copied(device=torch.device("cpu"))
        if on_cpu is None:
            return LossVerdict(
                UNKNOWN, reason="no label of the first batch is ignored, and its mean may be over labels"
            )
        return on_cpu.verdict()

    @property
    def few_device(self) -> torch.device:
        return next((t.device for _, t in label_tensors(self.few)), self.precision.device)

    def _unsafe(self) -> list[tuple[tuple[Any, ...], Tensor]]:
        """Tensors that may hold labels, in which an ignored one could end a GPU's process instead of raising."""
        return [
            (path, tensor)
            for path, tensor in label_tensors(self.few)
            if _takes(tensor, IGNORED) and not self._may_hold(path, tensor, IGNORED)
        ]

    def _may_hold(self, path: tuple[Any, ...], tensor: Tensor, value: int) -> bool:
        """Whether this value is no danger there: an index that is out of bounds ends a GPU's process."""
        known = value in self.ignored or bool((tensor == value).any())
        return tensor.device.type == "cpu" or known or (_is_transformers(self.model) and path[-1:] == ("labels",))

    def _variants(self) -> Iterator[tuple[Batch, tuple[Any, ...], int]]:
        """The same samples with fewer labels, by the rules that are possible: each tensor and value once."""
        seen: set[tuple[Any, ...]] = set()
        for rule in self.rules:
            if rule.path is None or (rule.path, rule.ignored) in seen or len(seen) >= MOST_VARIANTS:
                continue
            tensor = tensor_at(self.few, rule.path)
            if (
                tensor is None
                or not _takes(tensor, rule.ignored)
                or not self._may_hold(rule.path, tensor, rule.ignored)
            ):
                continue
            seen.add((rule.path, rule.ignored))
            yield masked_like(_clone(self.few), rule.path, rule.ignored), rule.path, rule.ignored

    def _fitting(self, batch: Batch, passes: _Passes, tolerance: float) -> list[CountRule]:
        """The counts that hold. One that is zero for a half cannot be tested: it would hold for too much."""
        middle = batch_length(batch) // 2
        found, tested = [], []
        for rule in self.rules:
            by_sample = rule.by_sample(batch)
            counts = [sum(by_sample[:middle]), sum(by_sample[middle:])]
            tested.append(all(counts))
            if all(counts) and passes.misfit(counts) <= tolerance:
                found.append(rule)
        if not found and not all(tested):
            raise _TellsTooLittle(LossVerdict(ACROSS, reason=_across(passes.misfit([1, 1]))))
        return found

    def _passes(self, batch: Batch, start: _Start, with_noise: bool = False) -> _Passes:
        samples = batch_length(batch)
        draws = SameDraws(self.model, samples)
        rows = torch.arange(samples)
        parts = [rows[: samples // 2], rows[samples // 2 :]]
        whole, own = self._gradient(select_rows(batch, rows), draws.recording(), start)
        after = start.snapshot.find_moves()
        halves, counts, states = [], [own], []
        for part in parts:
            half, own = self._gradient(select_rows(batch, part), draws.replaying(part), start)
            states.append(start.snapshot.find_moves())
            halves.append(half)
            counts.append(own)
        noise = 0.0
        if with_noise:
            other, _ = self._gradient(select_rows(batch, rows.flip(0)), draws.replaying(rows.flip(0)), start)
            size = float(whole.norm())
            noise = float((other - whole).norm()) / size if size else 0.0
        known = [count for count in counts if count is not None]
        own_counts = known if len(known) == len(counts) else None
        return _Passes(whole, halves, noise, own_counts, tuple(_moving_states(after, states)))

    def _gradient(
        self, batch: Batch, drawing: AbstractContextManager[None], start: "_Start"
    ) -> tuple[Tensor, float | None]:
        """Some numbers of the gradient of the mean loss (where nothing is trained, the loss), and its own count."""
        start.over()
        with drawing:
            loss = self.compute(batch)
            count = float(loss.count) if isinstance(loss, Loss) else None
            mean = loss.mean if isinstance(loss, Loss) else loss
            if not isinstance(mean, Tensor) or mean.dim():
                raise CannotSplit("it is not a single number")
            if not mean.requires_grad or self.by_value:
                return mean.detach().double().cpu().reshape(1), count
            gradients = torch.autograd.grad(mean.float(), self.parameters, allow_unused=True)
        sketches = [_sketch(g, p) for g, p in zip(gradients, self.parameters, strict=True)]
        return torch.cat(sketches), count

    def copied(self, nudge: float = 0.0, device: torch.device | None = None) -> "_Bench | None":
        """The same on a copy in single precision, its weights a little elsewhere; None where that cannot be."""
        model, home = self.model, device or self.precision.device
        if model is None or self.is_copy or sum(4 * p.numel() for p in model.parameters()) > LARGEST_COPY:
            return None
        try:
            twin, loss_fn = copy.deepcopy((model, self.loss_fn if isinstance(self.loss_fn, nn.Module) else None))
            twin = twin.to(home).float()
            loss_fn = self.loss_fn if loss_fn is None else loss_fn.to(home).float()
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return None
        generator = torch.Generator("cpu").manual_seed(0)
        with torch.no_grad():
            for parameter in twin.parameters() if nudge else ():
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.device), alpha=nudge)
        modules = [part for part in (twin, loss_fn) if isinstance(part, nn.Module)]
        few = map_leaves(lambda leaf: _float(leaf).to(home) if isinstance(leaf, Tensor) else leaf, self.few)
        return replace(
            self, compute=loss_of(twin, loss_fn).plain, model=twin, loss_fn=loss_fn, few=few, is_copy=True,
            parameters=[p for m in modules for p in m.parameters() if p.requires_grad],
            precision=Precision("32", home),
        )  # fmt: skip

    @contextmanager
    def _in_full_precision(self) -> Iterator[None]:
        kind = self.precision.device.type
        convolutions, products = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        autocast = torch.autocast(kind, enabled=False) if kind in ("cpu", "cuda") else nullcontext()
        try:
            with autocast:
                yield
        finally:
            torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = convolutions, products


def _telling_samples(batch: Batch, samples: int, ignored: Sequence[int], skip: int) -> tuple[Batch, list[CountRule]]:
    """Samples whose counts differ most, those that count much first, and what they may be counted by.

    ``skip``: how many were tried before, and told nothing.
    """
    start = min(skip, batch_length(batch) - samples)
    head = slice_batch(batch, start, min(start + HEAD, batch_length(batch)))
    rules = possible_rules(head, ignored)
    order = list(range(batch_length(head)))
    for rule in rules[1:]:
        counts = rule.by_sample(head)
        if len(set(counts)) > 1:
            telling = [row for row in order if counts[row]]
            order = telling if len(telling) >= samples else order
            order.sort(key=lambda row: -counts[row])
            break
    chosen = order[: samples // 2] + order[len(order) - (samples - samples // 2) :]
    return select_rows(head, torch.tensor(chosen)), rules


@contextmanager
def _plainly(model: nn.Module | None) -> Iterator[None]:
    """Without what has rules of its own or hides from a look: norms' statistics, recomputed blocks, gradient hooks."""
    modules: list[Any] = [] if model is None else list(model.modules())
    norms = [m for m in modules if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training]
    recomputing = [m for m in modules if vars(m).get("gradient_checkpointing") is True]
    hooks = [h for m in modules for p in m._parameters.values() if p is not None and (h := p._backward_hooks)]
    kept = [dict(hook) for hook in hooks]
    try:
        for norm in norms:
            norm.training = False
        for module in recomputing:
            module.gradient_checkpointing = False
        for hook in hooks:
            hook.clear()
        yield
    finally:
        for norm in norms:
            norm.training = True
        for module in recomputing:
            module.gradient_checkpointing = True
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


def _sketch(gradient: Tensor | None, parameter: nn.Parameter) -> Tensor:
    """Numbers of a gradient, evenly from all over it."""
    size = parameter.numel()
    stride = max(1, -(-size // SKETCH)) | 1  # odd: else the same columns of every row would be taken
    if gradient is None:
        return torch.zeros(len(range(0, size, stride)), dtype=torch.float64)
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    real = torch.view_as_real(dense).sum(-1) if dense.is_complex() else dense
    return real.detach().reshape(-1)[::stride].double().cpu()


def _across(misfit: float) -> str:
    return f"the gradients of two halves miss that of the whole by {misfit:.2g} of it"


def _takes(tensor: Tensor, value: int) -> bool:
    """Whether a tensor of this type can hold the value."""
    if tensor.dtype == torch.bool or tensor.is_floating_point():
        return value in (0, 1)
    return value >= torch.iinfo(tensor.dtype).min


def _clone(batch: Batch) -> Batch:
    return map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)


def _float(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor


def _named(path: tuple[Any, ...]) -> bool:
    return any("label" in str(key).lower() for key in path)


def _is_transformers(model: nn.Module | None) -> bool:
    return model is not None and any(
        base.__module__.startswith("transformers.") for m in _outer(model) for base in type(m).__mro__
    )


def _outer(model: nn.Module) -> list[nn.Module]:
    """The model and what adapters wrap around: theirs is the outermost module."""
    inner = [getattr(model, name, None) for name in ("base_model", "model")]
    return [model, *[part for part in inner if isinstance(part, nn.Module)]]


def _place(path: tuple[Any, ...]) -> str:
    return "batch" + "".join(f"[{key!r}]" for key in path)


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:160]
