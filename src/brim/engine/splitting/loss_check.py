"""The decision what a loss is a mean over, from gradients of a few samples and of parts of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch, batch_length
from brim.data.batches.batch import select_rows, tensor_at
from brim.engine.components.loss import CountedLoss, Loss, counted
from brim.engine.components.loss_count import IGNORED, SAMPLES, CountRule, is_named_label, label_tensors, possible_rules
from brim.engine.components.precision import Precision
from brim.engine.oom.out_of_memory import is_out_of_memory, release_memory
from brim.engine.sandbox.python_state import CannotPutBack
from brim.engine.sandbox.trial_call import StepsOptimizer, WritesFiles
from brim.engine.splitting.few_samples import (
    LEAST_SAMPLES,
    TRIED_SAMPLES,
    clone,
    labelled_from_the_start,
    other_samples,
    telling_samples,
    with_fewer_labels,
)
from brim.engine.splitting.loss_bench import Bench, Passes, misfit
from brim.engine.splitting.loss_verdict import (
    ACROSS,
    IN_PYTHON,
    LABEL_MEAN,
    OWN_COUNT,
    SAMPLE_MEAN,
    UNKNOWN,
    LossVerdict,
    MovingState,
)
from brim.engine.splitting.same_draws import CannotSplit
from brim.errors import BrimError

MOST_VARIANTS = 12
MOST_TRIES = 4  # with other samples, where some tell too little
TOLERANCE = 1e-5  # of the gradient's norm: single precision rounds less
NOISE = 10  # times what another order of the same samples changes
MOST_NOISE = 1e-3
HALF_NOISE = 2e-2  # where weights have 8 or 11 bits and there is no room for a longer copy
NUDGE = 0.02
NEARLY = 0.05  # what a count may miss by and still be right, where a model enlarges what single precision rounds


def judge_loss(
    loss: CountedLoss, batch: Batch, precision: Precision, parameters: Sequence[nn.Parameter] = ()
) -> LossVerdict:
    """Find out from a few samples of ``batch`` what ``loss`` counts; whatever that takes is put back afterwards.

    ``parameters``: what is trained, where that is more than the model has.
    """
    if not batch_length(batch):
        return LossVerdict(UNKNOWN, reason="there is no sample to tell by")
    samples, tries = max(LEAST_SAMPLES, min(TRIED_SAMPLES, batch_length(batch))), 0
    while samples >= 2:
        try:
            return _judged(loss, batch, samples, precision, parameters, skip=tries * samples)
        except _TellsTooLittle as few:
            tries += 1
            if tries == MOST_TRIES or tries * samples >= batch_length(batch):
                return few.verdict
            continue
        except WritesFiles:
            return LossVerdict(UNKNOWN, reason="the loss writes files, so it is not called on trial")
        except (BrimError, CannotSplit, CannotPutBack, StepsOptimizer) as error:
            return LossVerdict(UNKNOWN, reason=str(error))
        except Exception as error:
            if not is_out_of_memory(error):
                why = f"for a few samples it fails: {type(error).__name__}: {_line(error)}"
                return LossVerdict(UNKNOWN, reason=why)
        release_memory(precision.device)
        samples //= 2
    says_count = _says_count(loss, batch, precision)
    return LossVerdict(UNKNOWN, reason="there is no memory for two samples", lacks_memory=True, says_count=says_count)


def _judged(
    loss: CountedLoss,
    batch: Batch,
    samples: int,
    precision: Precision,
    parameters: Sequence[nn.Parameter],
    skip: int,
) -> LossVerdict:
    bench = Bench.of(loss, precision, parameters)
    if bench.is_half:
        bench = bench.copied() or bench
    roots = [part for part in (loss.model, loss.loss_fn) if isinstance(part, nn.Module)]
    found = [getattr(module, "ignore_index", None) for root in roots for module in root.modules()]
    ignored = [value for value in found if isinstance(value, int)]
    few = telling_samples(batch, samples, ignored, skip)
    return _Question(bench, bench.suited(few), other_samples(batch, samples), ignored).verdict()


class _TellsTooLittle(Exception):
    """These samples do not tell enough: all of their labels are ignored, say. What is known if others do not either."""

    def __init__(self, verdict: LossVerdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


@dataclass
class _Question:
    """What a loss counts, asked on one bench with a few samples."""

    bench: Bench
    few: Batch  # ordered so that the first half counts more than the second, where samples differ
    others: Batch | None
    ignored: list[int]  # values that criteria are known to leave out

    def verdict(self) -> LossVerdict:
        with self.bench.at_work():
            passes = self.bench.passes(self.few)
            if passes.is_flat:
                return self._of_flat_gradient()
            if not passes.is_finite:
                return LossVerdict(UNKNOWN, reason="the gradient of a few samples is not finite")
            minds = self.bench.minds_its_state(self.few, passes)
            counter = (MovingState(IN_PYTHON, follows_data=True),) if minds else ()
            try:
                found = self._by_counts(passes)
            except _TellsTooLittle as few:
                few.verdict = replace(few.verdict, moving=passes.moving + counter)
                raise
        if found.kind == ACROSS and found.missed <= NEARLY:
            found = self._in_double_precision() or found
        return replace(found, moving=passes.moving + counter)

    def _in_double_precision(self) -> LossVerdict | None:
        """Rounding or another count? A GPU rounds parts of a batch otherwise than the whole, and deep models without
        scaled weights (T5 at its start) make a thousand times more of it; 53 bits tell. None: they cannot be had.
        """
        bench = None if self.bench.is_double else self.bench.copied(dtype=torch.float64)
        try:
            return None if bench is None else self._on(bench)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return None

    def _of_flat_gradient(self) -> LossVerdict:
        """At a symmetric start nothing may move; elsewhere it does. An evaluation adds up losses, not gradients."""
        model = self.bench.model
        if not self.bench.is_copy and (nudged := self.bench.copied(NUDGE)) is not None:
            return self._on(nudged)
        if not self.bench.by_value and model is not None and not model.training:
            return self._on(replace(self.bench, by_value=True))
        raise _TellsTooLittle(LossVerdict(UNKNOWN, reason="the gradient of a few samples is zero"))

    def _on(self, bench: Bench) -> LossVerdict:
        others = None if self.others is None else bench.suited(self.others)
        return _Question(bench, bench.suited(self.few), others, self.ignored).verdict()

    def _by_counts(self, passes: Passes) -> LossVerdict:
        noise = self._noise(passes)
        if noise > (HALF_NOISE if self.bench.is_half else MOST_NOISE):
            return LossVerdict(ACROSS, reason="its gradient depends on the order of the samples", missed=noise)
        self._tolerance = max(TOLERANCE, (3 if self.bench.is_half else NOISE) * noise)
        if passes.counts is not None:
            missed = passes.misfit(passes.counts[1:])
            return LossVerdict(OWN_COUNT) if missed <= self._tolerance else _across(missed)
        if passes.draws.weighs_classes:
            return LossVerdict(ACROSS, reason="its mean is over the weights of classes")
        self.ignored = list(dict.fromkeys([*self.ignored, *passes.draws.ignored]))
        self._rules = possible_rules(self.few, self.ignored)
        return self._confirmed(self._by_rules(passes), passes)

    def _noise(self, passes: Passes) -> float:
        """What rounding does: how far the gradient of the same samples in another order is."""
        backwards = torch.arange(batch_length(self.few)).flip(0)
        other, size = self.bench.of_rows(self.few, backwards, passes), float(passes.whole.norm())
        return float((other - passes.whole).norm()) / size if size else 0.0

    def _by_rules(self, passes: Passes) -> LossVerdict:
        """Which counts the samples as they are allow, and which of them is left when labels are taken out of them."""
        fitting = self._fitting(self.few, passes)
        if not fitting:
            return _across(self._least_missed(self.few, passes))
        if SAMPLES not in fitting:
            return self._label_mean(self._narrowed(fitting))
        for changed, rule in self._variants():
            found = self._passes_of(changed)
            left = [] if found is None else self._fitting(changed, found)
            if found is not None and not left and self._holds(rule):
                what = f"it counts neither samples nor labels once some of {_place(rule)} are {rule.ignored}"
                return LossVerdict(ACROSS, reason=what, missed=self._least_missed(changed, found))
            if left and SAMPLES not in left:
                return self._label_mean(self._narrowed(left))
        return self._samples_or_unknown()

    def _holds(self, rule: CountRule) -> bool:
        """Whether the ignored value is there in earnest: one that never comes decides nothing."""
        tensor = tensor_at(self.few, rule.path or ())
        return tensor is not None and not rule.sums and not bool(rule.counted(tensor).all())

    def _passes_of(self, changed: Batch) -> Passes | None:
        """The gradients of samples that were changed; None where what was put there cannot stand there."""
        try:
            passes = self.bench.passes(changed)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return None
        return passes if passes.is_finite else None

    def _confirmed(self, verdict: LossVerdict, passes: Passes) -> LossVerdict:
        """A count that two halves allow by chance does not hold for other parts, nor for other samples."""
        if not verdict.gives_count:
            return verdict
        rows = torch.arange(batch_length(self.few))
        for first in (rows[:1], rows[::2]):
            rest = rows[[row not in first for row in rows]]
            parts = [self.bench.of_rows(self.few, part, passes) for part in (first, rest)]
            counts = [_sum(verdict.rule, select_rows(self.few, part)) for part in (first, rest)]
            missed = misfit(passes.whole, parts, counts)
            if all(counts) and missed > self._tolerance:
                return _across(missed)
        found = None if self.others is None else self._passes_of(self.bench.suited(self.others))
        if self.others is None or found is None or found.is_flat:
            return verdict
        both = _counts_of_halves(verdict.rule, self.others)
        missed = found.misfit(both)
        return verdict if not all(both) or missed <= self._tolerance else _across(missed)

    def _narrowed(self, fitting: list[CountRule]) -> CountRule:
        """The one of several counts that still fits when the samples are changed so that they differ."""
        for changed in chain(labelled_from_the_start(self.few, fitting), (batch for batch, _ in self._variants())):
            if len(fitting) == 1:
                break
            found = self._passes_of(changed)
            left = [] if found is None else self._fitting(changed, found)
            fitting = [rule for rule in fitting if rule in left] or fitting
        return fitting[0]

    def _label_mean(self, rule: CountRule) -> LossVerdict:
        """A mean over labels; where there are none its value is 0 / 0, and of some losses the gradient too."""
        empty = clone(self.few)
        tensor = tensor_at(empty, rule.path or ())
        assert tensor is not None
        tensor.fill_(0 if rule.sums else rule.ignored)

        def total(loss: Tensor | Loss) -> Tensor:
            found = counted(loss, rule.count(empty))
            assert isinstance(found, Loss)
            return found.total

        try:
            is_finite = self.bench.is_finite_for(empty, total)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            is_finite = False
        return LossVerdict(LABEL_MEAN, replace(rule, skips_empty=not is_finite))

    def _samples_or_unknown(self) -> LossVerdict:
        """Nothing speaks against samples; on a GPU a label that was never there is tried on a copy on the CPU."""
        if not any(tensor.dim() > 1 or is_named_label(path) for path, tensor in self._unsafe()):
            return LossVerdict(SAMPLE_MEAN)
        on_cpu = None if self.bench.is_copy else self.bench.copied(device=torch.device("cpu"))
        if on_cpu is None:
            return LossVerdict(UNKNOWN, reason="its mean may be over labels: the first batch has none that is ignored")
        return self._on(on_cpu)

    def _unsafe(self) -> list[tuple[tuple[Any, ...], Tensor]]:
        """Tensors that may hold labels, in which an ignored one could end a GPU's process instead of raising."""
        return [
            (path, tensor)
            for path, tensor in label_tensors(self.few)
            if _takes(tensor, IGNORED) and not self._may_hold(path, tensor, IGNORED)
        ]

    def _may_hold(self, path: tuple[Any, ...], tensor: Tensor, value: float) -> bool:
        """Whether this value is no danger there: an index that is out of bounds ends a GPU's process."""
        known = value in self.ignored or bool((tensor == value).any()) or (value == 0 and _takes_zero(tensor))
        known = known or tensor.is_floating_point()  # no index
        is_label = _is_transformers(self.bench.model) and path[-1:] == ("labels",)
        return tensor.device.type == "cpu" or known or is_label

    def _variants(self) -> Iterator[tuple[Batch, CountRule]]:
        """The same samples with fewer labels, by the rules that are possible: each tensor and value once."""
        seen: set[tuple[Any, ...]] = set()
        for rule in sorted(self._rules[1:], key=lambda rule: not is_named_label(rule.path or ())):
            tensor, key = tensor_at(self.few, rule.path or ()), (rule.path, str(rule.ignored), rule.sums)
            if key in seen or tensor is None or not _takes(tensor, rule.ignored):
                continue
            if len(seen) < MOST_VARIANTS and self._may_hold(rule.path or (), tensor, rule.ignored):
                seen.add(key)
                changed = with_fewer_labels(self.few, rule)
                if changed is not None:
                    yield changed, rule

    def _fitting(self, batch: Batch, passes: Passes) -> list[CountRule]:
        """The counts that hold. One that is zero for a half cannot be tested: it would hold for too much."""
        tested = [(rule, *_counts_of_halves(rule, batch)) for rule in self._rules]
        found = [rule for rule, *counts in tested if all(counts) and passes.misfit(counts) <= self._tolerance]
        if not found and not all(all(counts) for _, *counts in tested):
            raise _TellsTooLittle(_across(passes.misfit([1, 1])))
        return found

    def _least_missed(self, batch: Batch, passes: Passes) -> float:
        """By how much the count misses that comes nearest."""
        tested = [_counts_of_halves(rule, batch) for rule in self._rules]
        return min(passes.misfit(counts) for counts in tested if all(counts))


def _sum(rule: CountRule, batch: Batch) -> float:
    return float(sum(rule.by_sample(batch)))


def _says_count(loss: CountedLoss, batch: Batch, precision: Precision) -> bool:
    """Whether it returns brim.Loss, seen from a single sample."""
    bench = Bench.of(loss, precision, ())
    try:
        with bench.at_work(), torch.no_grad():
            return isinstance(loss.plain(select_rows(batch, torch.tensor([0]))), Loss)
    except Exception:  # not even that: then nothing is known
        return False


def _counts_of_halves(rule: CountRule, batch: Batch) -> tuple[float, float]:
    middle, by_sample = batch_length(batch) // 2, rule.by_sample(batch)
    return sum(by_sample[:middle]), sum(by_sample[middle:])


def _across(missed: float) -> LossVerdict:
    reason = f"the gradients of two parts miss that of the whole by {missed:.2g} of it"
    return LossVerdict(ACROSS, reason=reason, missed=missed)


def _takes(tensor: Tensor, value: float) -> bool:
    """Whether a tensor of this type can hold the value."""
    if tensor.is_floating_point():
        return True
    if tensor.dtype == torch.bool:
        return value in (0, 1)
    return value >= torch.iinfo(tensor.dtype).min


def _takes_zero(tensor: Tensor) -> bool:
    """Whether zero is a value like those that are there: a class, a token, a mask."""
    return tensor.dtype == torch.bool or tensor.is_floating_point() or int(tensor.min()) >= 0


def _is_transformers(model: nn.Module | None) -> bool:
    kinds = [base for part in _outer(model) for base in type(part).__mro__] if model is not None else []
    return any(kind.__module__.startswith("transformers.") for kind in kinds)


def _outer(model: nn.Module) -> list[nn.Module]:
    """The model and what adapters wrap around: theirs is the outermost module."""
    inner = [getattr(model, name, None) for name in ("base_model", "model")]
    return [model, *[part for part in inner if isinstance(part, nn.Module)]]


def _place(rule: CountRule) -> str:
    return "batch" + "".join(f"[{key!r}]" for key in rule.path or ())


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:160]
