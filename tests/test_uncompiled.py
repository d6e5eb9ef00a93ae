"""What the user has compiled is left as it was by everything that watches the operators of a model."""

import _thread
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import brim
from brim.hardware.cards import H200
from brim.memory.forecast import make_job
from brim.memory.trace.steps import trace_steps
from brim.uncompiled import uncompiled


@pytest.fixture
def compiles():
    """A model that a function is compiled in, and the list that grows whenever it is compiled."""
    torch._dynamo.reset()
    compiled = []

    def backend(module, inputs):
        compiled.append(module)
        return module.forward

    @torch.compile(backend=backend)
    def waves(x):
        return x.sin() + 1

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 1)

        def forward(self, x):
            return self.head(waves(x))

    yield Model, compiled
    torch._dynamo.reset()


def test_within_it_runs_eagerly_and_afterwards_it_is_compiled(compiles):
    made, compiled = compiles
    model = made()
    with uncompiled():
        model(torch.zeros(4, 8))
    assert not compiled
    model(torch.zeros(4, 8))
    assert compiled


def test_a_model_whose_batch_is_split_is_still_compiled(compiles, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made, compiled = compiles
    loader = brim.Loader((torch.randn(32, 8), torch.randn(32, 1)), batch_size=16)
    brim.Trainer(made(), loader, loss_fn=nn.functional.mse_loss, epochs=1, micro_batch=4, capture="off").fit()
    assert compiled


def test_a_model_whose_memory_was_forecast_is_still_compiled(compiles):
    made, compiled = compiles
    model = made()
    job = make_job(model, lambda n: ((torch.zeros(n, 8),), {}), lambda out: out.sum(), None)
    trace_steps(job, 8, H200, (2, 11), 2)
    model(torch.zeros(4, 8))
    assert compiled


def test_two_threads_that_overlap_leave_the_compiler_as_it_was(compiles):
    made, compiled = compiles
    model, found = made(), {}
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first():
        with uncompiled():
            first_in.set()
            second_in.wait()
        first_out.set()

    def second():
        first_in.wait()
        with uncompiled():
            second_in.set()
            first_out.wait()
            model(torch.zeros(4, 8))
            found["within"] = len(compiled)

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["within"] == 0
    model(torch.zeros(4, 8))
    assert compiled


def test_other_threads_are_compiled_meanwhile_but_for_those_that_are_not_pythons(compiles):
    made, compiled = compiles
    found = {}

    def look(key, done):
        made()(torch.zeros(4, 8))
        found[key] = len(compiled)
        done.set()

    with uncompiled():
        for key, start in (("of autograd", _thread.start_new_thread), ("another", in_a_thread)):
            done = threading.Event()
            start(look, (key, done))
            done.wait()
    assert found == {"of autograd": 0, "another": 1}


def in_a_thread(function, arguments):
    threading.Thread(target=function, args=arguments).start()


def test_a_stance_that_the_user_takes_or_leaves_meanwhile_stays(compiles):
    made, compiled = compiles
    taken = torch.compiler.set_stance("default")
    with uncompiled():
        taken = torch.compiler.set_stance("force_eager")  # for good, and puts back what it found in here
    made()(torch.zeros(4, 8))
    assert not compiled
    taken.__exit__(None, None, None)
    made()(torch.zeros(4, 8))
    assert compiled
    torch.compiler.set_stance("default")


IMPORTING = """
import sys, threading
from brim.uncompiled import uncompiled

assert "torch._dynamo" not in sys.modules, "the check below shows nothing"
importing = threading.Thread(target=lambda: __import__("torch._dynamo"))
importing.start()
while "torch._dynamo" not in sys.modules:
    pass
with uncompiled():
    importing.join()
"""


@pytest.mark.slow
def test_another_thread_may_be_importing_the_compiler():
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
