"""What a forecast of the speed-up says about itself."""

from dataclasses import replace

import pytest

from brim.hardware.links import LINKS, Link
from brim.speed_up.scaled import Scaled, SpeedUp

ALONE = Scaled(1, "single", 8, 8, 1, True, 100, 1.0, 0.0, 8.0, 1.0, False)
TWO = Scaled(2, "dp", 4, 4, 1, True, 100, 0.8, 0.1, 10.0, 1.25, True)
MADE = SpeedUp("NVIDIA H200", 8, 1, "32", LINKS["nvlink4"], "forecast", 0.5, (ALONE, TWO))


def said(made: SpeedUp, *words: str) -> bool:
    return any(all(word in note for word in words) for note in made.notes)


@pytest.mark.parametrize(
    ("source", "words"),
    [("forecast", ["rough forecast"]), ("given", ["as given"]), ("measured", ["measured here", "NVIDIA H200"])],
)
def test_where_the_step_is_from_is_said_first(source: str, words: list[str]) -> None:
    assert all(word in replace(MADE, source=source).notes[0] for word in words)


def test_the_link_is_assumed_unless_it_was_measured() -> None:
    assert said(MADE, "link: nvlink4, 360 GB/s", "3 us", "assumed, not measured")
    assert said(
        replace(MADE, link=Link("gloo", 1e9, 1e-4, measured=True)), "link: gloo, 1 GB/s", "100 us", ": measured"
    )


def test_only_the_ways_that_are_shown_are_explained() -> None:
    assert said(MADE, "DP: ")
    assert not said(MADE, "FSDP2")
    assert not said(MADE, "DDP")


def test_launching_is_told_where_it_decides() -> None:
    assert said(MADE, "from 2 GPUs on the host's launching decides")
    assert said(replace(MADE, rows=(replace(ALONE, launch_bound=True), TWO)), "launch-bound", "500 ms")
    assert not said(replace(MADE, rows=(ALONE,)), "launch")


def test_every_note_fits_on_one_line_of_a_terminal() -> None:
    rows = (
        replace(ALONE, launch_bound=True, fits=False),
        TWO,
        replace(TWO, strategy="ddp"),
        replace(TWO, strategy="fsdp"),
    )
    for source in ("forecast", "given", "measured"):
        assert all(len(note) <= 98 for note in replace(MADE, rows=rows, source=source, host_seconds=1.23456).notes)


def test_efficiency_and_expectation() -> None:
    assert (TWO.efficiency, TWO.expected) == (0.625, (1.8, 1.9))
    assert ALONE.expected is None
    assert TWO.as_json()["expected"] == [1.8, 1.9]
