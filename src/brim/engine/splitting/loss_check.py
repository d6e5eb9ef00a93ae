"""The decision what a loss is a mean over, from gradients of a few samples and of parts of them."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from brim.data import Batch, batch_length
from brim.data.batches.batch import select_rows, tensor_at
from brim.engine.components.loss import CountedLoss, Loss
from brim.engine.components.loss_count import (
    IGNORED,
    SAMPLES,
    CountRule,
    is_mask,
    is_named_label,
    label_tensors,
    possible_rules,
)
from brim.engine.components.precision import Precision
from brim.engine.numbers.gather_scope import Alone
from brim.engine.numbers.summed_loss import counted
from brim.engine.oom.out_of_memory import is_out_of_memory, release_memory
from brim.engine.sandbox.python_state import CannotPutBack
from brim.engine.sandbox.trial_call import StepsOptimizer, WritesFiles
from brim.engine.splitting import few_samples
from brim.engine.splitting.gradient_trial import Gradients, GradientTrial, residual_of
from brim.engine.splitting.loss_verdict import (
    ACROSS,
    LABEL_MEAN,
    OWN_COUNT,
    SAMPLE_MEAN,
    UNKNOWN,
    LossVerdict,
    MovingState,
)
from brim.engine.splitting.same_draws import CannotSplit
from brim.errors import BrimError, said

MOST_VARIANTS = 16
MOST_TRIES = 4  # with other samples, where some tell too little
TOLERANCE = 1e-5  # of the gradient's norm: single precision rounds less
NOISE = 10  # times what another order of the same samples changes
MOST_NOISE = 1e-3
HALF_NOISE = 2e-2  # where weights have 8 or 11 bits and there is no room for a longer copy
NUDGE = 0.02
SMALL_RESIDUAL = 0.05  # of a count that may be right all the same, where a model enlarges what single precision rounds

Result = TypeVar("Result")


def judge_loss(
    loss: CountedLoss, batch: Batch, precision: Precision, parameters: Sequence[nn.Parameter] = ()
) -> LossVerdict:
    """Find out from a few samples of ``batch`` what ``loss`` counts; whatever that takes is put back afterwards.

    ``parameters``: what is trained, where that is more than the model has.
    """
    if not batch_length(batch):
        return LossVerdict(UNKNOWN, reason="there is no sample to tell by")
    alone = Alone()  # also where nothing else can be told of it, a loss was seen to gather
    found = _judged_by_some(loss, batch, precision, parameters, alone)
    return replace(found, gathers=alone.calls > 0)


def _judged_by_some(
    loss: CountedLoss, batch: Batch, precision: Precision, parameters: Sequence[nn.Parameter], alone: Alone
) -> LossVerdict:
    """By as many samples as there is memory for, and others where some tell too little."""
    samples, tries = max(few_samples.LEAST_SAMPLES, min(few_samples.TRIED_SAMPLES, batch_length(batch))), 0
    while samples >= 2:
        try:
            return _judged(loss, batch, samples, precision, parameters, tries * samples, alone)
        except _Inconclusive as few:
            tries += 1
            if tries == MOST_TRIES or tries * samples >= batch_length(batch):
                return replace(few.verdict, is_conclusive=False)
            continue
        except WritesFiles:
            return LossVerdict(UNKNOWN, reason="the loss writes files, so it is not called on trial")
        except (BrimError, CannotSplit, CannotPutBack, StepsOptimizer) as error:
            return LossVerdict(UNKNOWN, reason=str(error))
        except Exception as error:
            if not is_out_of_memory(error):
                why = f"for a few samples it fails: {said(error)}"
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
    alone: Alone,
) -> LossVerdict:
    trial = GradientTrial.of(loss, precision, parameters, alone)
    if trial.is_half:
        trial = trial.on_copy() or trial
    roots = [part for part in (loss.model, loss.loss_fn) if isinstance(part, nn.Module)]
    found = [getattr(module, "ignore_index", None) for root in roots for module in root.modules()]
    ignored = [value for value in found if isinstance(value, int)]
    few = few_samples.informative_samples(batch, samples, ignored, skip)
    return _LossTest(trial, trial.adapted(few), few_samples.random_samples(batch, samples), ignored).verdict()


class _Inconclusive(Exception):
    """These samples decide nothing: all of their labels are ignored, say. ``verdict`` holds if others do not either."""

    def __init__(self, verdict: LossVerdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


@dataclass
class _LossTest:
    """Tests on a few samples what a loss counts: each count that they offer is a hypothesis."""

    trial: GradientTrial
    few: Batch  # ordered so that the first half counts more than the second, where samples differ
    others: Batch | None
    ignored: list[int]  # values that criteria are known to leave out
    _tolerance: float = TOLERANCE
    _rules: list[CountRule] = field(default_factory=list)
    _as_they_are: Gradients | None = None  # of the samples without a change

    def verdict(self) -> LossVerdict:
        with self.trial.running():
            gradients = self._as_they_are = self.trial.gradients(self.few)
            if gradients.is_zero:
                return self._of_zero_gradient()
            if not gradients.is_finite:
                return LossVerdict(UNKNOWN, reason="the gradient of a few samples is not finite")
            kept = self.trial.kept_in_python(self.few, gradients)
            counter = () if kept is None else (kept,)
            try:
                found = self._test_counts(gradients, depends_on_calls=kept is not None)
            except _Inconclusive as few:
                few.verdict = self._with_others(few.verdict, gradients, counter)
                raise
            seen = self._with_others(found, gradients, counter)
        if found.kind == ACROSS and found.residual <= SMALL_RESIDUAL:
            found = self._in_double_precision() or found
        return replace(found, moving=seen.moving, joins_ranks=seen.joins_ranks, rewrites=seen.rewrites)

    def _with_others(self, found: LossVerdict, gradients: Gradients, counter: tuple[MovingState, ...]) -> LossVerdict:
        """With what these passes have told beside the count."""
        joins_ranks, moving = self._joins_ranks(gradients), gradients.moving + counter
        return replace(found, moving=moving, joins_ranks=joins_ranks, rewrites=self.trial.rewrites())

    def _joins_ranks(self, gradients: Gradients) -> bool:
        """Whether what it gathers makes the losses of ranks add up to that of their joined batch."""
        if not self.trial.alone.calls or batch_length(self.few) < few_samples.LEAST_SAMPLES:
            return False
        residual = _unless_it_fails(lambda: self.trial.residual_over_ranks(self.few, gradients))
        return residual is not None and residual <= max(self._tolerance, MOST_NOISE)

    def _in_double_precision(self) -> LossVerdict | None:
        """Rounding or another count? A GPU rounds parts of a batch otherwise than the whole, and deep models without
        scaled weights (T5 at its start) make a thousand times more of it; 53 bits tell. None: they cannot be had.
        """
        trial = None if self.trial.is_double else self.trial.on_copy(dtype=torch.float64)
        return None if trial is None else _unless_it_fails(lambda: self._on(trial))

    def _of_zero_gradient(self) -> LossVerdict:
        """At a symmetric start nothing may move; elsewhere it does. An evaluation adds up losses, not gradients."""
        model = self.trial.model
        if not self.trial.is_copy and (nudged := self.trial.on_copy(NUDGE)) is not None:
            return self._on(nudged)
        if not self.trial.by_value and model is not None and not model.training:
            return self._on(replace(self.trial, by_value=True))
        raise _Inconclusive(LossVerdict(UNKNOWN, reason="the gradient of a few samples is zero"))

    def _on(self, trial: GradientTrial) -> LossVerdict:
        others = None if self.others is None else trial.adapted(self.others)
        return _LossTest(trial, trial.adapted(self.few), others, self.ignored).verdict()

    def _test_counts(self, gradients: Gradients, depends_on_calls: bool) -> LossVerdict:
        noise = self._noise(gradients)
        if noise > (HALF_NOISE if self.trial.is_half else MOST_NOISE):
            if depends_on_calls or self.trial.draws_outside_torch(self.few):  # in the same order for any samples
                return LossVerdict(UNKNOWN, reason="it draws random numbers outside of torch, or counts its calls")
            return LossVerdict(ACROSS, reason="its gradient depends on the order of the samples", residual=noise)
        self._tolerance = max(TOLERANCE, (3 if self.trial.is_half else NOISE) * noise)
        if gradients.counts is not None:
            residual = gradients.residual(gradients.counts[1:])
            return LossVerdict(OWN_COUNT) if residual <= self._tolerance else _across(residual)
        if gradients.draws.weighs_classes:
            return LossVerdict(ACROSS, reason="its mean is over the weights of classes")
        self.ignored = list(dict.fromkeys([*self.ignored, *gradients.draws.ignored]))
        self._rules = possible_rules(self.few, self.ignored)
        return self._confirmed(self._test_rules(gradients), gradients)

    def _noise(self, gradients: Gradients) -> float:
        """The relative difference that rounding makes: of the gradient of the same samples in another order."""
        backwards = torch.arange(batch_length(self.few)).flip(0)
        other, size = self.trial.gradient_of_rows(self.few, backwards, gradients), float(gradients.whole.norm())
        return float((other - gradients.whole).norm()) / size if size else 0.0

    def _test_rules(self, gradients: Gradients) -> LossVerdict:
        """Which counts the samples as they are allow, and which of them is left when labels are taken out of them."""
        consistent = self._consistent_rules(self.few, gradients)
        if not consistent:
            return _across(self._smallest_residual(self.few, gradients))
        if SAMPLES not in consistent:
            return self._label_mean(self._single_rule(consistent))
        for changed, rule in self._variants():
            found = self._gradients_of(changed)
            left = [] if found is None else self._consistent_rules(changed, found)
            if found is not None and not left and self._occurs(rule):
                became = "smaller" if rule.sums else rule.ignored
                what = f"it counts neither samples nor labels once some of {rule.place} are {became}"
                return LossVerdict(ACROSS, reason=what, residual=self._smallest_residual(changed, found))
            if left and SAMPLES not in left:
                return self._label_mean(self._single_rule(left))
        return self._samples_or_unknown()

    def _occurs(self, rule: CountRule) -> bool:
        """Whether what was put there occurs: in these samples, or sooner or later, as other lengths and False do.

        NaN does as well, for a loss that it leaves finite was written for it.
        """
        tensor = tensor_at(self.few, rule.path or ())
        if tensor is None:
            return False
        may_occur = rule.sums or tensor.dtype == torch.bool or math.isnan(rule.ignored)
        return may_occur or not bool(rule.counted(tensor).all())

    def _gradients_of(self, changed: Batch) -> Gradients | None:
        """The gradients of samples that were changed; None where what was put there cannot stand there."""
        gradients = _unless_it_fails(lambda: self.trial.gradients(changed))
        return gradients if gradients is not None and gradients.is_finite else None

    def _confirmed(self, verdict: LossVerdict, gradients: Gradients) -> LossVerdict:
        """A count that two halves allow by chance does not hold for other parts, nor for other samples."""
        if not verdict.gives_count:
            return verdict
        rows = torch.arange(batch_length(self.few))
        for first in (rows[:1], rows[::2]):
            rest = rows[[row not in first for row in rows]]
            parts = [self.trial.gradient_of_rows(self.few, part, gradients) for part in (first, rest)]
            counts = [float(sum(verdict.rule.by_sample(select_rows(self.few, part)))) for part in (first, rest)]
            residual = residual_of(gradients.whole, parts, counts)
            if all(counts) and residual > self._tolerance:
                return _across(residual)
        found = None if self.others is None else self._gradients_of(self.trial.adapted(self.others))
        if self.others is None or found is None or found.is_zero:
            return verdict
        both = verdict.rule.by_halves(self.others)
        residual = found.residual(both)
        return verdict if not all(both) or residual <= self._tolerance else _across(residual)

    def _single_rule(self, consistent: list[CountRule]) -> CountRule:
        """The one of several counts that is still consistent when the samples are changed so that they differ."""
        for changed in chain(
            few_samples.with_first_label(self.few, consistent), (batch for batch, _ in self._variants())
        ):
            if len(consistent) == 1:
                break
            found = self._gradients_of(changed)
            left = [] if found is None else self._consistent_rules(changed, found)
            consistent = [rule for rule in consistent if rule in left] or consistent
        return consistent[0]

    def _label_mean(self, rule: CountRule) -> LossVerdict:
        """A mean over labels; where there are none its value is 0 / 0, and of some losses the gradient too."""
        empty = few_samples.clone(self.few)
        tensor = tensor_at(empty, rule.path or ())
        assert tensor is not None
        if rule.sums and not tensor.is_floating_point():  # a length of 0 may be an index before the first place
            return LossVerdict(LABEL_MEAN, rule)
        value = rule.uncounted
        if not self._may_hold(rule.path or (), tensor, value):
            return LossVerdict(LABEL_MEAN, replace(rule, skips_empty=True))
        tensor.fill_(value)

        def total(loss: Tensor | Loss) -> Tensor:
            found = counted(loss, rule.count(empty))
            assert isinstance(found, Loss)
            return found.total

        is_finite = _unless_it_fails(lambda: self.trial.has_finite_gradient(empty, total))
        return LossVerdict(LABEL_MEAN, replace(rule, skips_empty=not is_finite))

    def _samples_or_unknown(self) -> LossVerdict:
        """Nothing speaks against samples; on a GPU a label that was never there is tried on a copy on the CPU."""
        if not any(tensor.dim() > 1 or is_named_label(path) for path, tensor in self._unsafe()):
            return LossVerdict(SAMPLE_MEAN)
        on_cpu = None if self.trial.is_copy else self.trial.on_copy(device=torch.device("cpu"))
        if on_cpu is None:
            return LossVerdict(UNKNOWN, reason="its mean may be over labels: the first batch has none that is ignored")
        return self._on(on_cpu)

    def _unsafe(self) -> list[tuple[tuple[Any, ...], Tensor]]:
        """Tensors that may hold labels, in which an ignored one could end a GPU's process instead of raising."""
        return [
            (path, tensor)
            for path, tensor in label_tensors(self.few)
            if _takes(tensor, IGNORED) and not self._may_hold(path, tensor, IGNORED) and not self._fails(path, IGNORED)
        ]

    def _may_hold(self, path: tuple[Any, ...], tensor: Tensor, value: float) -> bool:
        """Whether this value is no danger there: an index that is out of bounds ends a GPU's process, or any."""
        known = self._as_they_are
        if known is not None and path in known.unchecked:
            return bool((tensor == value).any())
        if tensor.device.type == "cpu" or tensor.is_floating_point() or bool((tensor == value).any()):
            return True
        if value == 0 and (is_mask(tensor) or (known is not None and path in known.never_negative)):
            return True  # elsewhere 0 may be one too low: the loss may take 1 from classes that are counted from 1 on
        is_index = known is None or path in known.indices
        is_label = _is_transformers(self.trial.model) and path[-1:] == ("labels",)
        return is_label or (value in self.ignored and not is_index)

    def _may_vary(self, rule: CountRule, tensor: Tensor) -> bool:
        """Whether fewer labels are no danger there; smaller weights and lengths are none where kernels look."""
        path = rule.path or ()
        if not rule.sums:
            return self._may_hold(path, tensor, rule.ignored)
        return self._as_they_are is None or path not in self._as_they_are.unchecked

    def _fails(self, path: tuple[Any, ...], value: float) -> bool:
        """Whether no batch can have this value there: it would be an index out of bounds."""
        known = self._as_they_are
        return known is not None and (path in known.unchecked or (value < 0 and path in known.never_negative))

    def _variants(self) -> Iterator[tuple[Batch, CountRule]]:
        """The same samples with fewer labels, by the rules that are possible: each tensor and value once.

        Labels come first, and what any tensor may ignore before what stands at the ends of this one's rows.
        """
        seen: set[tuple[Any, ...]] = set()
        may_be_chance = {one: one.ignored > 0 and one.ignored not in self.ignored for one in self._rules}
        for rule in sorted(self._rules[1:], key=lambda one: (not is_named_label(one.path or ()), may_be_chance[one])):
            tensor, key = tensor_at(self.few, rule.path or ()), (rule.path, str(rule.ignored), rule.sums)
            if key in seen or tensor is None or not (rule.sums or _takes(tensor, rule.ignored)):
                continue
            if len(seen) < MOST_VARIANTS and self._may_vary(rule, tensor):
                seen.add(key)
                changed = few_samples.with_fewer_labels(self.few, rule)
                if changed is not None:
                    yield changed, rule

    def _consistent_rules(self, batch: Batch, gradients: Gradients) -> list[CountRule]:
        """The counts whose residual is within tolerance. One that is zero for a half cannot be tested."""
        tested = [(rule, *rule.by_halves(batch)) for rule in self._rules]
        found = [rule for rule, *counts in tested if all(counts) and gradients.residual(counts) <= self._tolerance]
        if not found and not all(all(counts) for _, *counts in tested):
            raise _Inconclusive(_across(gradients.residual([1, 1])))
        return found

    def _smallest_residual(self, batch: Batch, gradients: Gradients) -> float:
        """The residual of the count that comes nearest."""
        tested = [rule.by_halves(batch) for rule in self._rules]
        return min(gradients.residual(counts) for counts in tested if all(counts))


def _unless_it_fails(run: Callable[[], Result]) -> Result | None:
    """What ``run`` returns; None where it fails for another reason than memory."""
    try:
        return run()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return None


def _says_count(loss: CountedLoss, batch: Batch, precision: Precision) -> bool:
    """Whether it returns brim.Loss, seen from a single sample."""
    trial = GradientTrial.of(loss, precision, ())
    try:
        with trial.running(), torch.no_grad():
            return isinstance(loss.plain(select_rows(batch, torch.tensor([0]))), Loss)
    except Exception:  # not even that: then nothing is known
        return False


def _across(residual: float) -> LossVerdict:
    reason = f"the gradients of two parts miss that of the whole by {residual:.2g} of it"
    return LossVerdict(ACROSS, reason=reason, residual=residual)


def _takes(tensor: Tensor, value: float) -> bool:
    """Whether a tensor of this type can hold the value."""
    if tensor.is_floating_point():
        return True
    if tensor.dtype == torch.bool:
        return value in (0, 1)
    return value >= torch.iinfo(tensor.dtype).min


def _is_transformers(model: nn.Module | None) -> bool:
    """Whether the model is one of transformers', or what adapters wrap around it: theirs is the outermost module."""
    parts = [model, *[getattr(model, name, None) for name in ("base_model", "model")]]
    kinds = [base for part in parts if isinstance(part, nn.Module) for base in type(part).__mro__]
    return any(kind.__module__.startswith("transformers.") for kind in kinds)
