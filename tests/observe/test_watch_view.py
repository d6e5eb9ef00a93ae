import io
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.nvml import Card, NvmlDouble, NVMLError_GpuIsLost, divided_card, h200, old_card
from rich.console import Console

from brim.observe.running_jobs import RunningJob
from brim.observe.snapshot import Snapshot
from brim.observe.watch_view import LEGEND, host_line, job_facts, watch_frame
from brim.sensors.host_reading import HostReading
from brim.sensors.nvml import NvmlGpus

GIB = 2**30
HOST = HostReading(8, 8, 31.0, 2.5, None, 12 * GIB, 64 * GIB)
JOB = RunningJob(
    Path("/data/runs/lstm"), (4242,), "Net", 1200, 6000, 3, 0.4123, 12.5, 1600.0, 50 * GIB, 52 * GIB, 1.0
)  # fmt: skip


def snapshot(*cards, jobs=(), note=""):
    gpus = NvmlGpus(NvmlDouble(list(cards)))
    gpus.read()
    return Snapshot(1_700_000_000.0, "NVML", note, gpus.read(), HOST, jobs)


def shown(now, width, color=False):
    colors = {"force_terminal": True, "color_system": "standard"} if color else {}
    console = Console(file=io.StringIO(), width=width, highlight=False, **colors)
    console.print(watch_frame(now, width))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [46, 80, 200])
def test_it_fits_the_terminal(width):
    now = snapshot(h200(), old_card(), divided_card(), Card({}, lost=NVMLError_GpuIsLost()), jobs=(JOB,), note="a note")
    lines = shown(now, width).splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for words in ("61.0 of 140.0 GiB", "97 %", "4242", "58.0 GiB", "lstm", "step 1,200 of 6,000 (20 %)", "a note",
                  "GPU 0, 2 throttled: power cap", "GPU 3 no answer: GPU is lost", "2:2"):  # fmt: skip
        assert words in text, words


def test_a_wide_terminal_shows_all_that_a_card_tells():
    text = shown(snapshot(h200()), 200)
    for words in ("H200", "duty", "cycle", "71 %", "44 %", "39 %", "512 of 700 W", "1,755 of 1,980 MHz", "66 C",
                  "2,097 / 105 MB/s", "5.0 x16", LEGEND):  # fmt: skip
        assert words in text, words


def test_what_a_card_does_not_tell_is_a_dash():
    rows = shown(snapshot(h200(), old_card()), 200).splitlines()
    row = next(row for row in rows if "Tesla M60" in row)
    assert row.split().count("-") == 8


def test_without_colours_there_are_no_escape_sequences():
    now = snapshot(h200(), jobs=(JOB,), note="a note")
    assert "\x1b" not in shown(now, 80) and "\x1b[" in shown(now, 80, color=True)


def test_processes_stand_beside_their_run_and_a_job_beside_its_gpu():
    text = shown(snapshot(h200(), jobs=(JOB,)), 200)
    row = next(line for line in text.splitlines() if line.split()[1:2] == ["4242"])
    assert row.split()[:5] == ["0", "4242", "58.0", "GiB", "lstm"]
    assert "/data/runs/lstm  Net  (process 4242, GPU 0)" in text


def test_a_job_on_another_machine_says_where():
    assert "/data/runs/lstm  Net  (on node7)" in shown(snapshot(jobs=(replace(JOB, processes=(), host="node7"),)), 80)


def test_without_a_gpu_there_are_cpu_and_ram():
    now = Snapshot(0.0, "", "no GPU is shown: why", (), HOST, ())
    text = shown(now, 80)
    assert "no GPU is shown: why" in text and "CPU 31 % of 8 cores, load 2.5; RAM 12.0 of 64.0 GiB" in text
    assert "no run of brim goes on here" in text and "duty cycle" not in text


def test_what_the_host_does_not_tell_is_a_dash():
    assert host_line(HostReading(2, 2)) == "CPU - of 2 cores; RAM -"


def test_a_job_that_has_gone_quiet_says_for_how_long():
    assert job_facts(RunningJob(Path("a"), (1,), step=5, quiet=200.0)) == ["step 5", "no number for 3 min 20 s"]
    assert job_facts(RunningJob(Path("a"), (1,))) == ["has written no number yet"]
    assert "memory 50.0 GiB, forecast 52.0" in job_facts(JOB) and "6 min 24 s left" in job_facts(JOB)
