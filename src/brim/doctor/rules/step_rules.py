"""The step itself: its optimizer, what is done beside it, and too little work in it."""

from brim.doctor.observation import LineTime, LiveTrial, Observation, OptimizerSeen
from brim.doctor.order import Cures
from brim.doctor.rules.finding import WORTH_TELLING, Finding, gain_of, milliseconds, named, percent, those_found
from brim.doctor.shares import Shares

LAUNCH_BOUND = 0.5
ZEROING = 0.03
CLEARLY = 0.95  # of the time without a setting
SLOW_CALL = 250e-6  # seconds of the host an operator: more is not calling it, but something else
EVALUATION = 0.25
MANY_SHAPES = 4  # of batches
AGAIN_AND_AGAIN = 3  # graphs; one may be due to the doctor's own hooks
BESIDE = {
    "logging": ("logging-every-step", "logging, metrics or a progress bar take time in every step",
                "log every 50 steps, keep sums as tensors on the device, and read them then"),
    "checkpoint": ("checkpoint-in-the-loop", "saving takes time between steps", "save less often, or in the"
    " background"),
    "python": ("host-work-in-the-loop", "the loop does work beside the training between steps",
               "what is no part of the training can be moved out of the loop, or done every 50 steps"),
    "profiler": ("profiler-in-the-loop", "torch's profiler was left on, and writes down every step",
                 "profile some steps only (torch.profiler.schedule(..., repeat=1)), or take it out"),
}  # fmt: skip


def step_findings(seen: Observation, shares: Shares) -> list[Finding]:
    """What makes the step slower than its mathematics."""
    if seen.timed is None:
        return []
    explained = _optimizers(seen) + those_found(*(_besides_training(seen, kind) for kind in BESIDE))
    last = _recompiled(seen, shares) or _too_small(seen, shares, explained)
    return explained + those_found(_evaluation(seen), _anomalies(seen), last)


def _optimizers(seen: Observation) -> list[Finding]:
    assert seen.timed is not None
    step = seen.timed.step
    found = []
    dropped = _saved(seen, "drop-gradients")
    for optimizer in seen.optimizers:
        share = max(optimizer.zero_grad_seconds / step, dropped)
        if optimizer.zeroes_gradients and share >= ZEROING:
            found.append(_zeroing(optimizer, step, share))
    largest = max(seen.optimizers, key=lambda optimizer: optimizer.seconds, default=None)
    trial = next((trial for trial in seen.trials if trial.name == "fused" and trial.step > 0), None)
    if largest is None or trial is None:
        return found
    # Not more than the updates take: the rest of the difference is noise.
    updates = sum(optimizer.seconds for optimizer in seen.optimizers)
    share = min(trial.saved_of(seen.timed), updates / step)
    if share >= WORTH_TELLING and trial.step < CLEARLY * trial.before:
        found.append(_not_fused(largest, trial, updates, share, step))
    return found


def _not_fused(optimizer: OptimizerSeen, trial: LiveTrial, updates: float, share: float, step: float) -> Finding:
    return Finding(
        cause="optimizer-not-fused",
        what=f"{optimizer.name} updates {optimizer.tensors} tensors with many small operators",
        evidence=f"updates take {milliseconds(updates)} a step, {percent(updates / step)} of it; in a trial the step"
        f" took {milliseconds(trial.before)}, and fused {milliseconds(trial.step)}",
        cure=f"{optimizer.name}(..., fused=True)",
        share=share,
        gain=gain_of(share),
        cures=Cures(fused_optimizer=True),
    )


def _saved(seen: Observation, setting: str) -> float:
    """The part of the step that a setting clearly saved while the script went on."""
    assert seen.timed is not None
    trials = (trial for trial in seen.trials if trial.name == setting and 0 < trial.step < CLEARLY * trial.before)
    return max((trial.saved_of(seen.timed) for trial in trials), default=0.0)


def _anomalies(seen: Observation) -> Finding | None:
    """Autograd looks for NaN. What that takes is measured where there was a trial of it."""
    was_tried = any(trial.name == "no-anomaly-detection" for trial in seen.trials)
    share = _saved(seen, "no-anomaly-detection")
    if not seen.host.finds_anomalies or (was_tried and share < WORTH_TELLING):
        return None
    less = f"takes {percent(share)} less, tried in turns" if was_tried else "is faster, but it was not tried"
    return Finding(
        cause="anomaly-detection",
        what="autograd's anomaly detection is on: it keeps a traceback of every operator, and seeks NaN in gradients",
        evidence=f"without it the step {less}",
        cure="switch it on to find a NaN, and off again: no detect_anomaly() in a training that works",
        share=share,
        gain=gain_of(share) if was_tried else None,
        cures=Cures(no_anomaly_detection=True),
    )


def _zeroing(optimizer: OptimizerSeen, step: float, share: float) -> Finding:
    return Finding(
        cause="zero-grad-fills",
        what="zero_grad(set_to_none=False) fills every gradient with zeros, and backward adds to them",
        evidence=f"zero_grad takes {milliseconds(optimizer.zero_grad_seconds)} a step for {optimizer.tensors} tensors;"
        f" with what backward takes to add, {percent(share)} of it",
        cure="zero_grad(): gradients are dropped, and backward writes new ones",
        share=share,
        gain=gain_of(share),
    )


def _besides_training(seen: Observation, kind: str) -> Finding | None:
    """Lines of the user's that do something else than train, as far as Python and not operators take their time."""
    lines = [line for line in seen.lines if line.kind == kind and line.line]
    share = sum(line.share for line in lines)
    if share < WORTH_TELLING:
        return None
    cause, what, cure = BESIDE[kind]
    first = max(lines, key=lambda line: line.share)
    return Finding(
        cause=cause, what=what, evidence=f"{percent(share)} of the step, most of it on {named(first)}", cure=cure,
        share=share, gain=gain_of(share), line=first.line,
    )  # fmt: skip


def _evaluation(seen: Observation) -> Finding | None:
    window = seen.timed
    assert window is not None
    lines = [line for line in seen.lines if line.kind == "evaluation"]
    # Loaders whose batches are not trained on tell it; without one, lines that call the model without gradients do.
    share = max(window.evaluation / window.seconds, sum(line.share for line in lines))
    if share < EVALUATION:
        return None
    where = f", most of it on {named(max(lines, key=lambda line: line.share))}" if lines else ""
    return Finding(
        cause="evaluation",
        what="evaluation takes a large part of the time",
        evidence=f"{percent(share)} of the measured time{where}{_copied(seen, lines)}",
        cure="evaluate less often, in larger batches, and read results once at the end instead of after every batch",
        share=share,
        gain=gain_of(share),
        line=lines[0].line if lines else "",
    )


def _copied(seen: Observation, lines: list[LineTime]) -> str:
    """How often evaluation brings something to the host."""
    places = {line.line for line in lines}
    count = sum(call.per_step for call in seen.calls if call.direction == "to host" and call.line in places)
    return f"; it waits for the device {count:,.0f} times a step to copy something to the CPU" if count >= 1 else ""


def _recompiled(seen: Observation, shares: Shares) -> Finding | None:
    window = seen.timed
    assert window is not None
    loader = seen.train_loader
    if seen.host.compile_gave_up and shares.launch >= WORTH_TELLING:
        return _gave_up(shares, "" if loader is None else loader.line)
    if seen.host.recompiles < AGAIN_AND_AGAIN:
        return None
    shapes = 1 if loader is None else loader.shapes
    # Steps that compile are far longer than the median one.
    share = max(0.0, 1.0 - window.step_seconds[1] * window.steps / window.seconds)
    return Finding(
        cause="variable-shapes",
        what="torch.compile compiles again and again, because shapes change",
        evidence=f"{seen.host.recompiles} new graphs in {window.steps} steps; batches had {shapes} different shapes",
        cure="pad batches to a few lengths, or torch.compile(..., dynamic=True)",
        share=share,
        gain=gain_of(share),
        line="" if loader is None else loader.line,
    )


def _gave_up(shares: Shares, line: str) -> Finding:
    return Finding(
        cause="variable-shapes",
        what="torch.compile has met so many shapes that it gave up: the model runs uncompiled",
        evidence=f"its limit of graphs for one function is reached; Python and launching are {percent(shares.launch)}"
        " of the step",
        cure="pad batches to a few lengths, or torch.compile(..., dynamic=True)",
        share=shares.launch,
        line=line,
    )


def _too_small(seen: Observation, shares: Shares, explained: list[Finding]) -> Finding | None:
    """Most of the step is Python and calls of operators, more than updates, garbage and what is beside the training
    explain."""
    assert seen.timed is not None
    # Where garbage is collected while batches are made it is among the data, and this is less than it could be.
    garbage = seen.timed.garbage / seen.timed.seconds
    launch = shares.launch - garbage - max(_asleep(seen, shares), sum(found.share for found in explained))
    if launch < LAUNCH_BOUND or seen.profile is None or not seen.profile.operators:
        return None
    each = launch * seen.timed.step / seen.profile.operators
    if each > SLOW_CALL:
        return None
    on_gpu = seen.host.device == "cuda"
    samples = seen.timed.samples / seen.timed.steps
    batch = f" on {samples:,.0f} sample{'s' * (round(samples) != 1)}" if samples else ""
    return Finding(
        cause="too-little-compute",
        what="the step is launch-bound: Python and calling operators take longer than computing",
        evidence=f"{seen.profile.operators:,.0f} operators a step{batch}, {1e6 * each:.0f} us of the host each;"
        f" computing is {percent(shares.compute)} of the step",
        cure="let brim.Step capture the step as a CUDA graph, or torch.compile it: same training, no Python in"
        f" the way{_of_shapes(seen)}; more work a step (larger batches, longer sequences) changes the training"
        if on_gpu
        else "torch.compile the model; a larger batch (which changes the training) has the same overhead for"
        " more samples",
        share=launch,
        # Capture takes it all away; what compiling for a CPU leaves of it, only a trial can tell.
        gain=gain_of(launch) if on_gpu else None,
        cures=Cures() if seen.host.compiled else Cures(compile=True),
    )


def _asleep(seen: Observation, shares: Shares) -> float:
    """The share in which the host neither had nor wanted a core, beside its waiting for batches: it slept."""
    window = seen.timed
    assert window is not None
    if seen.host.device != "cpu" or not (window.cpu and window.in_line):  # not every kernel counts both
        return 0.0
    return max(0.0, 1.0 - (window.cpu + window.in_line) / window.seconds - shares.data)


def _of_shapes(seen: Observation) -> str:
    loader = seen.train_loader
    if loader is None or loader.shapes < MANY_SHAPES:
        return ""
    return f" (batches have {loader.shapes} shapes, each of which is captured or compiled anew: pad them to a few)"
