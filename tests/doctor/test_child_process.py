"""Scripts that end in every way. Each starts an interpreter and imports torch."""

import textwrap
from pathlib import Path

import pytest

from brim.doctor.child_process import ScriptFailed, marked_processes, watch_script
from brim.doctor.diagnosis import checked
from brim.doctor.order import Order

pytestmark = pytest.mark.slow

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


def test_a_script_that_fails_is_told_with_its_line_and_exit_code(tmp_path):
    assert refusal(watched(tmp_path, "raise ValueError('no data')")) == (
        "the script failed before it could be measured: train.py:2: ValueError: no data", 1
    )  # fmt: skip
    assert refusal(watched(tmp_path, "sys.exit(7)"))[1] == 7


def test_a_script_that_is_killed_is_told_with_the_signal(tmp_path):
    said, code = refusal(watched(tmp_path, "print('working', flush=True); os.kill(os.getpid(), 11)"))
    assert "signal 11" in said and "working" in said and code == 139


def test_a_script_that_does_not_train_or_hardly_does_is_told_so(tmp_path):
    assert "without a step of a torch optimizer" in refusal(watched(tmp_path, "torch.ones(2)"))[0]
    assert "only 2 optimizer steps" in refusal(watched(tmp_path, TRAIN + "for _ in range(2): step()"))[0]


def test_a_script_that_reads_its_input_is_told_so_even_if_it_catches_an_end(tmp_path):
    source = """
    try:
        input("name? ")
    except EOFError:
        pass
    """
    assert "it asks for input (stdin)" in refusal(watched(tmp_path, source))[0]


def test_a_script_that_trains_in_other_processes_is_told_so_and_none_is_left(tmp_path):
    source = """
    import torch.multiprocessing as mp
    def work(rank): time.sleep(3600)
    if __name__ == "__main__":
        mp.spawn(work, nprocs=1, join=False)
    """
    assert "started others" in refusal(watched(tmp_path, source))[0]


def test_a_script_that_hangs_is_ended_with_the_line_it_hangs_at(tmp_path):
    # So long that torch is imported by then; if it is not, the script hangs all the same, with no line to show.
    with pytest.raises(ScriptFailed, match="no progress for 45 s, before its first optimizer step"):
        watched(tmp_path, "def wait():\n    time.sleep(3600)\nwait()", patience=45.0)


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


def test_marks_are_found_in_this_process_only_if_they_are_there():
    assert marked_processes("a mark that nobody has") == []
