"""Scripts that end in every way. Each that is slow starts an interpreter and imports torch; for others a shell does."""

import json
import sys
import textwrap
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from helpers.clock import Clock
from helpers.observations import observed

from brim.doctor import child_process
from brim.doctor.child_process import ScriptFailed, marked_processes, watch_script
from brim.doctor.diagnosis import checked
from brim.doctor.order import OWN_FAULT, Order

TRAIN = """
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    model(torch.ones(4, 8)).pow(2).mean().backward()
    optimizer.step()
"""


def watched(tmp_path, source, *arguments, patience=600.0):
    file = tmp_path / "train.py"
    file.write_text("import os, sys, time, torch\n" + textwrap.dedent(source))
    return watch_script(Order(str(file), arguments, pace=0.0), patience, lambda _: None)


def refusal(ended):
    with pytest.raises(ScriptFailed) as failed:
        checked(ended)
    return str(failed.value), failed.value.exit_code


@pytest.mark.slow
def test_a_script_that_fails_is_told_with_its_line_and_exit_code(tmp_path):
    assert refusal(watched(tmp_path, "raise ValueError('no data')")) == (
        "the script failed before it could be measured: train.py:2: ValueError: no data", 1
    )  # fmt: skip
    assert refusal(watched(tmp_path, "sys.exit(7)"))[1] == 7


@pytest.mark.slow
def test_what_fails_before_the_script_begins_is_the_doctors_own_fault(tmp_path):
    gone = Order(str(tmp_path / "gone.py"))
    assert watch_script(gone, 600.0, lambda _: None).exit_code == OWN_FAULT


@pytest.mark.slow
def test_a_script_that_is_killed_is_told_with_the_signal(tmp_path):
    said, code = refusal(watched(tmp_path, "print('working', flush=True); os.kill(os.getpid(), 11)"))
    assert "signal 11" in said and "working" in said and code == 139


@pytest.mark.slow
def test_a_script_that_does_not_train_or_hardly_does_is_told_so(tmp_path):
    assert "without a step of a torch optimizer" in refusal(watched(tmp_path, "torch.ones(2)"))[0]
    assert "only 2 optimizer steps" in refusal(watched(tmp_path, TRAIN + "for _ in range(2): step()"))[0]


@pytest.mark.slow
def test_a_script_that_reads_its_input_is_told_so_even_if_it_catches_an_end(tmp_path):
    source = """
    try:
        input("name? ")
    except EOFError:
        pass
    """
    assert "it asks for input (stdin)" in refusal(watched(tmp_path, source))[0]


@pytest.mark.slow
def test_a_script_that_trains_in_other_processes_is_told_so_and_none_is_left(tmp_path):
    source = """
    import torch.multiprocessing as mp
    def work(rank): time.sleep(3600)
    if __name__ == "__main__":
        mp.spawn(work, nprocs=1, join=False)
    """
    assert "started others" in refusal(watched(tmp_path, source))[0]


@pytest.mark.slow
def test_a_script_that_hangs_is_ended_with_the_line_it_hangs_at(tmp_path):
    # So long that torch is imported by then; if it is not, the script hangs all the same, with no line to show.
    with pytest.raises(ScriptFailed, match="no progress for 45 s, before its first optimizer step"):
        watched(tmp_path, "def wait():\n    time.sleep(3600)\nwait()", patience=45.0)


@pytest.mark.slow
def test_the_script_runs_as_it_would_by_itself(tmp_path):
    (tmp_path / "own_module.py").write_text("value = 3")
    source = """
    import own_module
    assert __name__ == "__main__" and sys.argv[1:] == ["--lr", "0.1"] and sys.path[0] == os.path.dirname(__file__)
    print("fine", own_module.value, os.getcwd(), flush=True)
    """
    ended = watched(tmp_path, source, "--lr", "0.1")
    assert (ended.exit_code, ended.seen.ended) == (0, "finished")
    assert ended.output.splitlines()[-1] == f"fine 3 {Path.cwd()}"


@pytest.mark.slow
def test_a_script_cannot_keep_itself_from_being_ended_nor_leave_anything(tmp_path):
    kept = Path(__file__).parent / "must_not_be_there.txt"
    source = f"""
    import subprocess
    {TRAIN.replace(chr(10), chr(10) + "    ")}
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(3600)
    sleeper = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    print(pid, sleeper.pid, os.environ["BRIM_DOCTOR_CHILD"], flush=True)
    open({str(kept)!r}, "w").write("x")
    while True:
        try:
            step()
        except:
            continue
        finally:
            open({str(kept)!r}, "a").write("y")
    """
    ended = watched(tmp_path, source)
    assert ended.seen.ended == "measured" and ended.exit_code == 0
    assert not kept.exists()
    forked, slept, token = next(line for line in ended.output.splitlines() if line[:1].isdigit()).split()
    assert marked_processes(token) == []
    assert int(forked) > 0 and int(slept) > 0


# A shell in the place of the child: what the doctor's side does with what is written, printed and left.


class ToldClock(Clock):
    """Stands still until the shell is ready, and then goes on by a second with each look."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def sleep(self, seconds):
        time.sleep(0.002)
        if seconds == child_process.PAUSE:  # in which a process writes its stack
            while not (self.folder / "stacked").exists():
                time.sleep(0.002)
        elif (self.folder / "ready").exists():
            self.now += 1.0


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """``shell(commands)`` watches what they do in the folder of the child; ``$order`` is its file."""
    monkeypatch.setattr(child_process, "time", ToldClock(tmp_path))

    def watch(commands, **options):
        program = tmp_path / "child.sh"
        program.write_text(f'#!/bin/sh\norder="$4"; said=0\ncd "$(dirname "$order")"\n{commands}\n')
        program.chmod(0o755)
        monkeypatch.setattr(child_process.sys, "executable", str(program))
        said = []

        def say(sentence):
            said.append(sentence)
            (tmp_path / f"said-{len(said)}").touch()

        order = Order("train.py", ("--lr", "1"), pace=0.5)
        return watch_script(order, 20.0, say, **options), said

    return watch


def progress(tmp_path, stage, steps):
    """The line of a child, which waits until it was read."""
    return f"""
        echo '{{"stage": "{stage}", "steps": {steps}}}' >> progress.jsonl
        said=$((said + 1)); until [ -e {tmp_path}/said-$said ]; do sleep 0.002; done
    """


def test_the_child_has_its_order_and_what_it_saw_comes_back(shell, tmp_path):
    (tmp_path / "seen.json").write_text(json.dumps(asdict(observed())))
    kept = tmp_path / "kept.json"
    ended, _ = shell(
        f"cp {tmp_path}/seen.json observation.json; cp $order {tmp_path}/order.json; echo a trace > trace.json\n"
        "for i in $(seq 30); do echo line $i; done; echo and this >&2; exit 3",
        keep_trace=kept,
    )
    assert ended.seen == observed() and ended.exit_code == 3 and ended.crash == ""
    assert ended.output.splitlines() == [f"line {number}" for number in range(17, 31)] + ["and this"]
    assert kept.read_text() == "a trace\n" and ended.trace == kept
    order = json.loads((tmp_path / "order.json").read_text())
    assert (order["script"], order["arguments"], order["pace"]) == ("train.py", ["--lr", "1"], 0.5)
    assert not Path(order["folder"]).exists()  # nothing is left


def test_how_far_it_is_is_told_in_words(shell, tmp_path):
    stages = ["warm-up", "timed", "sampled", "profiled", "ceiling", "trial fused"]
    _, said = shell("".join(progress(tmp_path, stage, 10 * place) for place, stage in enumerate(stages)))
    assert said == [
        "the script starts", "step 10: timing steps", "step 20: looking at lines", "step 30: profiling some steps",
        "step 40: the same step on batches that are there", "step 50: trying settings",
    ]  # fmt: skip


def test_what_is_told_already_is_not_said_again(shell, tmp_path):
    again = 'echo \'{"stage": "warm-up", "steps": 1}\' >> progress.jsonl; sleep 0.1\n'
    _, said = shell(progress(tmp_path, "warm-up", 0) + again + progress(tmp_path, "timed", 9))
    assert said == ["the script starts", "step 9: timing steps"]


def test_a_signal_that_ends_it_is_told_with_the_stacks(shell):
    ended, _ = shell("echo Thread 1 > crash.txt; kill -SEGV $$")
    assert (ended.seen, ended.exit_code, ended.crash) == (None, -11, "Thread 1\n")


@pytest.mark.parametrize(
    ("steps", "when"),
    [
        (0, "before its first optimizer step (it has started 1 other process, where none is seen)"),
        (4, "after 4 optimizer steps"),
        (40, "after some 40 optimizer steps"),
    ],
)
def test_a_hang_is_told_with_the_users_line(shell, tmp_path, steps, when):
    library, own = json.__file__, tmp_path / "train.py"
    (tmp_path / "stack.txt").write_text(f'  File "{library}", line 3 in loads\n  File "{own}", line 12 in wait\n')
    on_signal = f"trap 'cp {tmp_path}/stack.txt stacks.txt; touch {tmp_path}/stacked' USR1\n"
    hang = f"\nsleep 3600 &\n: > {tmp_path}/ready\nwhile true; do wait; done"
    with pytest.raises(ScriptFailed) as failed:
        shell(on_signal + (progress(tmp_path, "timed", steps) if steps else "") + hang)
    assert str(failed.value) == (
        f"the script showed no progress for 20 s, {when}, at train.py:12; if it only takes long, give it more time with"
        " --patience SECONDS"
    )


def test_what_has_left_the_session_is_ended_by_its_mark(shell, tmp_path):
    shell(f"setsid sleep 3600 & echo $BRIM_DOCTOR_CHILD > {tmp_path}/token")
    token = (tmp_path / "token").read_text().strip()
    assert len(token) == 32
    while marked_processes(token):  # a process that was killed takes a moment to be gone
        time.sleep(0.002)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are adopted on Linux only")
def test_what_has_left_the_session_without_its_mark_is_ended_too(shell, tmp_path):
    shell(f"env -i setsid sh -c 'sleep 3600 & echo $! >> {tmp_path}/pids; echo $$ >> {tmp_path}/pids; wait' &\n"
          f"until [ $(cat {tmp_path}/pids 2>/dev/null | wc -l) = 2 ]; do sleep 0.005; done")  # fmt: skip
    assert not [pid for pid in (tmp_path / "pids").read_text().split() if Path(f"/proc/{pid}").exists()]


def test_marks_are_found_in_this_process_only_if_they_are_there():
    assert marked_processes("a mark that nobody has") == []
