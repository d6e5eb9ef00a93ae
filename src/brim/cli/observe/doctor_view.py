"""How a diagnosis is shown."""

from collections import Counter

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from brim.doctor.diagnosis import Diagnosis
from brim.doctor.edits.suggestion import Suggestion
from brim.doctor.rules.finding import milliseconds, percent
from brim.doctor.treatment import Treatment

NAMES = {
    "data": "waiting for data",
    "copy": "copies to the GPU",
    "compute": "computing",
    "sync": "waiting for the GPU",
    "launch": "Python, launching",
}
BAR = 20
EXPECTED_COPY = 10e-3  # seconds: what users expect a copy to stay below
LINES = 2


def show_diagnosis(found: Diagnosis) -> None:
    """Speed, shares, findings and notes."""
    console = Console(highlight=False)
    for line in speed_lines(found):
        console.print(line, soft_wrap=True)
    console.print(shares_table(found))
    console.print(Text(found.verdict, style="bold"), soft_wrap=True)
    for number, finding in enumerate(found.findings, start=1):
        gain = "try it" if finding.gain is None else f"up to {finding.gain:.2f} x"
        console.print()
        console.print(
            Text.assemble((f"{number}. {finding.cause}", "bold"), f"  {percent(finding.share)} of the step, {gain}")
        )
        for label, text in (("", finding.what), ("evidence: ", finding.evidence), ("cure: ", finding.cure)):
            console.print(Text.assemble("   ", (label, "dim"), text), soft_wrap=True)
        for suggestion in found.suggestions:
            if suggestion.cause == finding.cause:
                _show_diff(console, suggestion)
    if found.notes:
        console.print()
    for note in found.notes:
        console.print(Text(f"note: {note}", style="dim"), soft_wrap=True)


def _show_diff(console: Console, suggestion: Suggestion) -> None:
    """A diff with nothing before its lines, so that it can be copied as it is."""
    note = f" ({suggestion.note})" if suggestion.note else ""
    console.print(Text.assemble("   ", ("as a diff, nothing is written:", "dim"), note), soft_wrap=True)
    for line in suggestion.diff.splitlines():
        style = {"+": "green", "-": "red"}.get(line[:1], "")
        console.print(Text(line, style=style), soft_wrap=True)


def show_treatments(treatments: list[Treatment]) -> None:
    """What was tried, and what came of it."""
    console = Console(highlight=False)
    console.print()
    if not treatments:
        console.print("none of the cures can be applied without a change of the script")
    for treatment in treatments:
        gain = treatment.gain
        ratio = "" if gain is None else f"{gain.ratio:.2f} x ({gain.low:.2f} to {gain.high:.2f}), "
        console.print(Text.assemble((treatment.name, "bold"), f": {ratio}{treatment.said}"), soft_wrap=True)


def speed_lines(found: Diagnosis) -> list[str]:
    """The speed now, the reachable one, and the copies."""
    window, profile = found.seen.timed, found.seen.profile
    assert window is not None
    rate = window.samples_per_second
    speed = f"{rate:,.0f} samples/s, " if rate else ""
    how = "estimated" if found.is_estimated else "measured on batches that are there"
    reachable = rate / found.of_reachable if found.of_reachable else 0.0
    lines = [
        f"{speed}{milliseconds(found.step)} a step over {window.steps} steps",
        f"{percent(found.of_reachable)} of the reachable speed"
        + (f" ({reachable:,.0f} samples/s)" if rate else f" ({milliseconds(found.ceiling)} a step)")
        + f", {how}",
    ]
    if profile is not None and found.seen.host.device == "cuda":
        verdict = "as expected, below 10 ms" if profile.copy_all < EXPECTED_COPY else "10 ms are expected"
        hidden = max(0.0, 1.0 - profile.copy / profile.copy_all) if profile.copy_all else 1.0
        overlap = f", {percent(hidden)} of it while kernels run" if profile.copy_all else ""
        lines.append(f"copies to the GPU: {milliseconds(profile.copy_all)} a step ({verdict}){overlap}")
    return lines


def shares_table(found: Diagnosis) -> Table:
    """The five shares, with the lines that most of each comes from."""
    table = Table(
        Column("share of the step"), Column("", justify="right"), "", Column("lines", overflow="fold"), box=None
    )
    for name, share in found.shares.as_dict().items():
        table.add_row(NAMES[name], f"{100 * share:.1f} %", "█" * round(BAR * share), Text(_lines(found, name)))
    return table


def _lines(found: Diagnosis, name: str) -> str:
    kinds = {
        "data": ("loader", "data"),
        "compute": ("forward", "backward", "optimizer"),
        "launch": ("logging", "checkpoint", "python", "evaluation"),
    }
    if name in ("copy", "sync"):
        direction = "to device" if name == "copy" else "to host"
        return ", ".join(call.line for call in found.seen.calls if call.direction == direction and call.line)[:60]
    shares: Counter[str] = Counter()  # a line may be of several kinds
    for line in found.seen.lines:
        if line.kind in kinds[name] and line.line:
            shares[line.line] += line.share  # type: ignore[assignment]
    return ", ".join(f"{line} {percent(share)}" for line, share in shares.most_common(LINES) if share >= 0.01)
