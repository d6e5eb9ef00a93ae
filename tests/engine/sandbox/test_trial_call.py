"""Calls that do not count leave no trace."""

import logging
import random
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from brim.engine.sandbox.trial_call import StepsOptimizer, WritesFiles, trial_call


def test_nothing_of_a_trial_call_is_printed_and_others_go_on_speaking(capsys) -> None:
    def loss():
        print("a step")
        print("trouble", file=sys.stderr)
        logging.getLogger("anybody").warning("careful")
        thread = threading.Thread(target=lambda: print("another thread"))
        thread.start()
        thread.join()

    with trial_call(loss):
        loss()
    print("after")
    said = capsys.readouterr()
    assert said.out == "another thread\nafter\n" and said.err == ""


def test_trials_of_two_threads_leave_what_belongs_to_the_process_as_it_was() -> None:
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first():
        with trial_call():
            first_in.set()
            second_in.wait(0.2)  # which comes only after this one
        first_out.set()

    def second():
        first_in.wait()
        with trial_call():
            second_in.set()
            first_out.wait()

    before = sys.stdout, sys.stderr, warnings.filters, logging.root.manager.disable
    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sys.stdout, sys.stderr, warnings.filters, logging.root.manager.disable) == before


def test_other_threads_step_their_optimizers_and_log_meanwhile(caplog) -> None:
    weight, own = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    weight.grad = own.grad = torch.ones(1)

    def train():
        torch.optim.SGD([weight], lr=0.5).step()
        logging.getLogger("anybody").warning("of another")

    with pytest.raises(StepsOptimizer), trial_call(may_step=False):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        logging.getLogger("anybody").warning("of the trial")
        torch.optim.SGD([own], lr=0.5).step()
    assert (weight.item(), own.item()) == (0.5, 1.0)
    assert "of another" in caplog.text and "of the trial" not in caplog.text


def test_generators_of_the_process_are_put_back() -> None:
    def draw():
        return float(torch.rand(())), random.random(), float(np.random.rand())

    with trial_call(draw):
        drawn = draw()
    assert draw() == drawn


def test_a_file_is_not_written_and_the_call_ends(tmp_path) -> None:
    path, kept = tmp_path / "log.txt", []

    def loss():
        kept.append(1)
        path.write_text("a line")

    with pytest.raises(WritesFiles), trial_call(loss):
        loss()
    assert not path.exists() and kept == []
    loss()
    assert path.read_text() == "a line"


def test_reading_is_allowed_and_so_is_writing_in_other_threads(tmp_path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("hello")

    with trial_call():
        assert path.read_text() == "hello"
        thread = threading.Thread(target=lambda: path.write_text("written"))
        thread.start()
        thread.join()
    assert path.read_text() == "written"


def test_folders_and_processes_count_as_writing(tmp_path) -> None:
    import subprocess

    with pytest.raises(WritesFiles), trial_call():
        (tmp_path / "new").mkdir()
    with pytest.raises(WritesFiles), trial_call():
        subprocess.run([sys.executable, "-c", ""])
    assert not (tmp_path / "new").exists()


def test_an_exception_within_leaves_no_trace_either() -> None:
    kept: list[int] = []

    def loss():
        kept.append(1)
        raise ValueError("bad batch")

    with pytest.raises(ValueError, match="bad batch"), trial_call(loss):
        loss()
    assert kept == []
