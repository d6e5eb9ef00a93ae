"""Whether the batches of a run may be split, asked once before anything relies on it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import nn

from brim.data import Batch
from brim.engine.calling.criterion import is_torchs_criterion
from brim.engine.components.loss import CountedLoss, loss_of
from brim.engine.components.loss_count import SAMPLES, Kind, kind_of
from brim.engine.components.precision import Precision
from brim.engine.components.two_pass import probed
from brim.engine.distributed.ranks import Ranks
from brim.engine.oom.snapshot import named_modules_of
from brim.engine.splitting.batch_norms import batch_norms, follows_batch
from brim.engine.splitting.few_samples import enough_samples
from brim.engine.splitting.loss_check import judge_loss
from brim.engine.splitting.loss_verdict import ACROSS, IN_PYTHON, UNKNOWN, LossVerdict, MovingState
from brim.engine.splitting.steady_state import SteadyState
from brim.errors import some_of

ADVICE = (
    "if it is a mean over something that brim does not see, return brim.Loss(total, count), which is exact; "
    "sliceable=True silences this"
)
SILENCE = "sliceable=True silences this"
MOST_NAMES = 3


@dataclass(eq=False)
class Splitting:
    """What is known of a loss and its model: may a batch be computed in parts, and what differs if it is.

    ``on_verdict`` hears what the loss is a mean over, once that is known.
    """

    loss: CountedLoss | None
    model: nn.Module | None
    precision: Precision
    sliceable: bool | None = None
    is_of_encode: bool = False  # of a loss in two passes, whose micro-batches are only encoded
    on_verdict: Callable[[LossVerdict], None] = lambda verdict: None
    verdict: LossVerdict | None = None  # the worst of all kinds of batches
    _verdicts: dict[Kind | None, LossVerdict] = field(default_factory=dict)

    def judge(
        self,
        batches: Sequence[Batch],
        parameters: Sequence[nn.Parameter] = (),
        ranks: Ranks | None = None,
        again: bool = False,
    ) -> LossVerdict:
        """What the loss counts: found out at the first call for batches of a kind.

        Where there are several ``ranks``, all of them ask first, and again, at the same step, and agree. A kind that
        comes later may come to one of them alone, so that one judges it by itself. ``again``: later batches may show
        what the first did not.
        """
        kinds: list[Kind | None] = [*dict.fromkeys(map(kind_of, batches))] or [None]

        def own(kind: Kind | None) -> LossVerdict:
            alike = [batch for batch in batches if kind_of(batch) == kind]
            return self._own(alike, parameters if ranks is None else ())

        if ranks is not None and not self._verdicts:
            for kind, found in agreed_by_kind(ranks.all_gather_object({kind: own(kind) for kind in kinds})).items():
                self.settle(found, kind)
        else:
            if ranks is not None and again:  # another part may show another count, but trouble is everybody's
                found_now = {kind: own(kind) for kind in kinds}
                troubles = {kind: one for kind, one in found_now.items() if one.kind == ACROSS and one.is_conclusive}
                told = ranks.all_gather_object(troubles)
                for kind, found in agreed_by_kind(told).items() if any(told) else ():
                    self.settle(found, kind)
            for kind in kinds if batches or not self._verdicts else ():
                known = self._verdicts.get(kind)
                if known is None or (ranks is None and (again or known.lacks_memory)):
                    found = own(kind) if ranks is None else replace(own(kind), gathers=False)  # nobody else would
                    if known is None or (found.kind != UNKNOWN and found.is_conclusive):
                        self.settle(found, kind)
        assert self.verdict is not None
        return self.verdict

    def of_whole_loss(self) -> "Splitting":
        """The same for whole losses, which know nothing of how their samples are encoded; nothing is judged yet."""
        return replace(self, is_of_encode=False, verdict=None, _verdicts={})

    @property
    def gathers(self) -> bool:
        """Whether the loss of any kind of batch was seen to call brim.gather."""
        return any(verdict.gathers for verdict in self._verdicts.values())

    def knows(self, batches: Sequence[Batch]) -> bool:
        """Whether batches of these kinds were asked about."""
        return all(kind_of(batch) in self._verdicts for batch in batches)

    def settle(self, verdict: LossVerdict, kind: Kind | None = None) -> None:
        """Take a verdict for known, and weigh by what it counts."""
        is_news = self._verdicts.get(kind) != verdict
        self._verdicts[kind] = verdict
        self.verdict = next((one for one in self._verdicts.values() if not one.gives_count), verdict)
        if verdict.gives_count and self.loss is not None and not self.is_of_encode:
            self.loss.count_by(verdict.rule, kind)  # where it is None, somebody else weighs: that of a sharded model
        if is_news:
            self.on_verdict(verdict)

    def _own(self, batches: Sequence[Batch], parameters: Sequence[nn.Parameter]) -> LossVerdict:
        if self.loss is None:
            return LossVerdict(UNKNOWN, reason="it is not one of brim's")
        if not batches:
            return LossVerdict(UNKNOWN, reason="there is no sample here")
        judged = self.loss
        if self.is_of_encode and self.model is not None and (two_pass := self.loss.two_pass) is not None:
            judged = loss_of(self.model, partial(probed, two_pass))
        return judge_loss(judged, enough_samples(batches), self.precision, parameters)

    @property
    def is_last_resort(self) -> bool:
        """Whether parts add up but for statistics within the model, as BatchNorm's: better than no training.

        The loss itself is known to: one of torch's, or one that says its count.
        """
        if self.verdict is None or self.loss is None:
            return False
        if self.verdict.gives_count:
            return self.has_batch_norm
        is_known = is_torchs_criterion(self.loss.loss_fn) or self.verdict.says_count
        return is_known and (self.verdict.kind == ACROSS or self.verdict.lacks_memory)

    @property
    def has_batch_norm(self) -> bool:
        """Whether the model has one that computes with the statistics of the batch."""
        return self.model is not None and any(follows_batch(norm) for norm in batch_norms(self.model))

    def steady_state(self) -> SteadyState | None:
        """What is to be moved once for a batch, however it is split."""
        models = [] if self.model is None else [self.model]
        named = named_modules_of(models, None if self.loss is None else self.loss.loss_fn)
        moving = () if self.verdict is None else self.verdict.moving
        steady = [named[state.name] for state in moving if not state.follows_data and state.name in named]
        return SteadyState(steady) if steady else None

    def differences(self, parts: str, only_hooks: bool = False, called_once: bool = False) -> list[str]:
        """Sentences about what is not that of the whole batch where ``parts`` of it are computed ("micro-batches").

        ``called_once``: each process calls the loss once for a batch.
        """
        found = []
        following = [s.name for s in (self.verdict.moving if self.verdict else ()) if s.follows_data]
        if following and not only_hooks:
            found.append(
                f"{some_of(following, MOST_NAMES)} moves with the data in every forward pass, so with {parts} it "
                "becomes something else than with the whole batch"
            )
        counts = self.verdict is not None and MovingState(IN_PYTHON, follows_data=False) in self.verdict.moving
        if counts and not only_hooks and not called_once:
            found.append(
                f"the loss counts its calls in Python and computes with the count, and with {parts} it is called more "
                "often than with the whole batch, so this is another training; keep the count in a buffer"
            )
        hooked = self.hooked()
        if hooked:
            found.append(
                f"the gradient hook of {some_of(hooked, MOST_NAMES)} sees the gradients of {parts}, not that of the "
                "whole batch, so this is another training wherever it is not linear"
            )
        return [] if self.sliceable else found

    def drift(self) -> str | None:
        """A sentence where ranks, each with a part of the batch, may come to have different weights."""
        names = () if self.verdict is None or self.sliceable else self.verdict.rewrites
        if not names:
            return None
        return (
            f"the forward pass itself writes to {some_of(names, MOST_NAMES)}, as max_norm and constraints do, and each "
            "rank does so by its own part of the batch, so their weights may differ from then on; write to weights in "
            f"a callback after the step, by what all ranks know; {SILENCE}"
        )

    def mixture(self, batches: Sequence[Batch]) -> str | None:
        """A sentence where the batches of one step have losses that count different things: no mean is that of all."""
        rules = set() if self.loss is None else {self.loss.rule_for(batch) for batch in batches}
        if len(rules) < 2 or self.sliceable:
            return None
        counted = " and ".join(sorted(str(rule or SAMPLES) for rule in rules))
        return (
            f"the batches of one step are of different kinds, with means over {counted}: each is weighted by its own "
            "count, so this is another training than a mean of their means; return brim.Loss(total, count) to say which"
        )

    def warning(self, what: str, advice: str = "") -> str | None:
        """A sentence where what the user asked for makes another training, and nobody said that it may.

        ``advice``: what would make it exact.
        """
        verdict = self.verdict
        if verdict is None or verdict.gives_count or self.sliceable:
            return None
        if verdict.kind == UNKNOWN:
            return f"{what}, and {self._unknown(verdict)}; {SILENCE if self.is_of_encode else ADVICE}"
        advice = f"{advice}; {ADVICE}" if advice else SILENCE if self.is_of_encode else ADVICE
        return (
            f"{what}, and {self._mixes(verdict)}, so this is another training than with the whole batch at once; "
            f"{advice}"
        )

    def _mixes(self, verdict: LossVerdict) -> str:
        if self.is_of_encode:
            return f"encode computes the samples of a batch from one another ({verdict.reason})"
        return f"its loss looks across the batch or counts neither samples nor labels ({verdict.reason})"

    def _unknown(self, verdict: LossVerdict) -> str:
        if self.is_of_encode:
            return f"whether encode computes each sample by itself cannot be told ({verdict.reason})"
        return f"what its loss is a mean over cannot be told ({verdict.reason})"

    def why_whole(self) -> str:
        """Why a batch must not be split, for a sentence that goes on."""
        if self.sliceable is False or self.verdict is None:
            return "its loss must not be split (sliceable=False)"
        if self.verdict.kind == UNKNOWN:
            return f"{self._unknown(self.verdict)}, so the batch stays whole"
        advice = "" if self.is_of_encode else "brim.Loss(total, count) says what it counts, brim.TwoPass(encode, loss) "
        advice += "" if self.is_of_encode else "makes a loss across the batch exact; "
        return f"{self._mixes(self.verdict)}, so the batch stays whole ({advice}sliceable=True splits it all the same)"

    def hooked(self) -> list[str]:
        """Parameters and modules whose gradients users' hooks see."""
        if self.model is None:
            return []
        named = [*self.model.named_parameters(), *self.model.named_modules()]
        return [name or type(one).__name__ for name, one in named if any(map(_is_users, _gradient_hooks(one)))]


def agreed(verdicts: Sequence[LossVerdict]) -> LossVerdict:
    """One verdict of all ranks: some have no sample to tell by, and one that sees trouble is enough."""
    known = [verdict for verdict in verdicts if verdict.kind != UNKNOWN]
    gathers = any(verdict.gathers for verdict in verdicts)
    if not known:
        return replace(verdicts[0], gathers=gathers)
    moving = tuple(dict.fromkeys(state for verdict in known for state in verdict.moving))
    rewrites = tuple(dict.fromkeys(name for verdict in known for name in verdict.rewrites))
    across = next((verdict for verdict in known if not verdict.gives_count), None)
    if across is None and len({(verdict.kind, verdict.rule) for verdict in known}) > 1:
        across = LossVerdict(ACROSS, reason="ranks see different means in their parts of the batch")
    joins_ranks = gathers and all(verdict.joins_ranks for verdict in known)
    return replace(across or known[0], moving=moving, rewrites=rewrites, gathers=gathers, joins_ranks=joins_ranks)


def agreed_by_kind(verdicts: Sequence[Mapping[Kind | None, LossVerdict]]) -> dict[Kind | None, LossVerdict]:
    """One verdict of all ranks for each kind of batches that any of them has; None stands for no batches at all."""
    kinds: list[Kind | None] = [*dict.fromkeys(kind for own in verdicts for kind in own if kind is not None)] or [None]
    return {kind: agreed([own[kind] for own in verdicts if kind in own]) for kind in kinds}


def _gradient_hooks(one: nn.Parameter | nn.Module) -> Iterator[Any]:
    for name in ("_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks"):
        hooks = getattr(one, name, None)
        yield from hooks.values() if isinstance(hooks, dict) else ()


def _is_users(hook: Any) -> bool:
    module = getattr(hook, "__module__", None) or type(hook).__module__
    return not module.startswith(("torch.", "brim.", "peft.", "transformers."))
