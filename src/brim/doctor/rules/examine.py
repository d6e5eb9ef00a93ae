"""All rules together: findings with the worst first, and a verdict."""

from brim.doctor.observation import Observation
from brim.doctor.rules.cuda_rules import cuda_findings
from brim.doctor.rules.data_rules import data_findings, own_data_findings
from brim.doctor.rules.finding import Finding, gain_of, percent
from brim.doctor.rules.host_rules import host_findings
from brim.doctor.rules.step_rules import step_findings
from brim.doctor.rules.worker_rules import worker_findings
from brim.doctor.shares import Shares

RULES = (data_findings, own_data_findings, worker_findings, host_findings, step_findings, cuda_findings)
COMPUTE_BOUND = 0.7
SPECIFIC = 0.2  # of the step, lost to a cause that has a line or a setting of its own
LITTLE = 0.1
BF16_SPEED = 2.0  # times TF32's, of matrix products: the hardware's ratio
# Causes that go away with another, which comes first: samples that are Python objects are the collector's work, and who
# begins an epoch for every batch gives it up in the loop.
PARTS = (("per-sample-access", "garbage-collection"), ("epoch-every-step", "data-made-in-the-loop"))
LEAST_GAIN = 1.1  # below, a cause is no fault: every training has some of it
# Of what nobody has who did not write it; and of what every DataLoader of tensors has, and every optimizer as it comes.
LEAST_GAIN_OF = {"zero-grad-fills": 1.03, "per-sample-access": 1.2, "optimizer-not-fused": 1.2}


def examine(seen: Observation, shares: Shares) -> list[Finding]:
    """Every cause that was found, by the time that is lost to it; those that say how a training is come after those
    that say what is wrong with it, where there is such a one."""
    found = [finding for rule in RULES for finding in rule(seen, shares) if is_worth_it(finding)]
    general = {finding.cause for finding in found if _is_general(finding, seen)}
    if not any(finding.share >= SPECIFIC and finding.cause not in general for finding in found):
        general = set()
    ordered = sorted(found, key=lambda finding: (finding.cause in general, -finding.share, finding.cause))
    return [finding for finding in ordered if not _is_part_of(finding, ordered[0])]


def _is_general(finding: Finding, seen: Observation) -> bool:
    """Whether a cause may be found in a sound script too: a small model, or other processes on the same cores."""
    loader, host = seen.train_loader, seen.host
    alone = host.threads <= host.cores and (loader is None or loader.num_workers == 0)
    return finding.cause in ("too-little-compute", "not-compiled") or (finding.cause == "too-many-threads" and alone)


def _is_part_of(finding: Finding, worst: Finding) -> bool:
    """Whether a cause goes away with another."""
    return (worst.cause, finding.cause) in PARTS


def is_worth_it(finding: Finding) -> bool:
    """Whether its cure would bring something, as far as that was predicted."""
    return finding.gain is None or finding.gain >= LEAST_GAIN_OF.get(finding.cause, LEAST_GAIN)


def verdict(seen: Observation, shares: Shares, findings: list[Finding]) -> str:
    """What the training is bound by, in a sentence."""
    worst = findings[0] if findings else None
    if worst is not None and worst.share >= LITTLE:
        gain = "" if worst.gain is None else f"; without it up to {worst.gain:.1f} times as fast"
        return f"bound by {worst.cause}: {percent(worst.share)} of the step is lost to it{gain}"
    if shares.compute >= COMPUTE_BOUND:
        return (
            f"compute-bound: {percent(shares.compute)} of the step is computing; changing the loader cannot help"
            f" (at most {percent(shares.data + shares.copy)}). {_what_would(seen)}"
        )
    parts = shares.as_dict()
    name = max(parts, key=lambda part: parts[part])
    return f"nothing stands out: the largest share is {name}, {percent(parts[name])} of the step"


def _of_precision(seen: Observation) -> str:
    """What lower precision would bring at most: it is matrix products that it makes faster."""
    if seen.profile is None or seen.timed is None or not seen.timed.step:
        return ""
    share = min(1.0, seen.profile.matmul_seconds / seen.timed.step)
    return f"up to {gain_of(share * (1 - 1 / BF16_SPEED)):.1f} times as fast, " if share >= LITTLE else ""


def _what_would(seen: Observation) -> str:
    if seen.host.device == "cuda":
        ways = [] if seen.host.autocast else [f"autocast to bf16 ({_of_precision(seen)}changes the numbers)"]
        ways += [] if seen.host.compiled else ["torch.compile"]
        return f"What would: {', '.join([*ways, 'a faster card'])}; brim doctor --apply --allow-changes measures it."
    compiled = "" if seen.host.compiled else "torch.compile (brim doctor --apply measures it), "
    return f"What would: {compiled}more cores, or a GPU."
