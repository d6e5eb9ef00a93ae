"""What is loaded beside eager steps; nothing here compiles."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from helpers.compiled_training import Net, batches, decision
from torch import nn

import brim
from brim.engine.calling.compiler import Compiler
from brim.engine.compiled import compile_report, compiled_step, compiler_loading
from brim.engine.compiled.compiler_loading import MODULES, CompilerLoading
from brim.engine.run import step_choice

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def waits_for_the_compiler():
    """Not here."""


@pytest.fixture(autouse=True)
def nothing_is_looked_up(monkeypatch):
    monkeypatch.setattr(compiler_loading, "look_up", lambda device: None)


@pytest.fixture
def gate(monkeypatch):
    """Importing waits until this is set."""
    opened = threading.Event()
    monkeypatch.setattr(compiler_loading, "import_module", lambda name: opened.wait())
    yield opened
    opened.set()


def test_it_is_over_when_the_modules_are_there(gate):
    loading = CompilerLoading(CPU)
    assert not loading.is_over
    loading.begin()
    thread = loading._thread
    loading.begin()
    assert loading._thread is thread and not loading.is_over
    gate.set()
    thread.join()
    assert loading.is_over


def test_it_is_over_when_it_takes_too_long(gate, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(compiler_loading.time, "monotonic", lambda: now[0])
    loading = CompilerLoading(CPU)
    loading.begin()
    now[0] = compiler_loading.MOST_SECONDS
    assert not loading.is_over
    now[0] += 1
    assert loading.is_over


def test_what_cannot_be_loaded_is_left_to_the_step_that_needs_it(monkeypatch):
    def fail(name):
        raise ImportError(name)

    monkeypatch.setattr(compiler_loading, "import_module", fail)
    loading = CompilerLoading(CPU)
    loading.begin()
    loading._thread.join()
    assert loading.is_over


def test_processes_are_waited_for_on_a_gpu_alone(monkeypatch):
    class Future:
        is_done = False

        def done(self):
            return self.is_done

    future, named = Future(), []
    monkeypatch.setattr(compiler_loading, "import_module", named.append)
    monkeypatch.setattr(compiler_loading, "started_workers", lambda: future)
    there, here = CompilerLoading(torch.device("cuda")), CompilerLoading(CPU)
    for loading in (there, here):
        loading.begin()
        loading._thread.join()
    assert here.is_over and not there.is_over
    assert len(named) > 2 * len(MODULES)
    future.is_done = True
    assert there.is_over


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_for_modules_that_are_half_loaded(gate, monkeypatch):
    hooks = []
    monkeypatch.setattr(compiler_loading.os, "register_at_fork", lambda before: hooks.append(before))
    monkeypatch.setattr(compiler_loading, "INDUCTOR", "a module that nobody has loaded")
    loading = CompilerLoading(CPU)
    loading.begin()
    assert not loading._imported.is_set()
    threading.Timer(0.05, gate.set).start()
    hooks[0]()
    assert gate.is_set() and loading._imported.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_does_not_wait_for_what_is_looked_up(monkeypatch):
    looked, hooks = threading.Event(), []
    monkeypatch.setattr(compiler_loading, "import_module", lambda name: None)
    monkeypatch.setattr(compiler_loading, "look_up", lambda device: looked.wait())
    monkeypatch.setattr(compiler_loading.os, "register_at_fork", lambda before: hooks.append(before))
    monkeypatch.setattr(compiler_loading, "INDUCTOR", "a module that nobody has loaded")
    loading = CompilerLoading(CPU)
    loading.begin()
    hooks[0]()
    assert loading._thread.is_alive() and not loading.is_over
    looked.set()
    loading._thread.join()
    assert loading.is_over


def test_steps_are_eager_until_it_is_loaded(tmp_path, gate, monkeypatch):
    monkeypatch.setattr(compile_report, "LEAST_SECONDS", 0.0)
    auto = Compiler(is_auto=True, per="block")
    monkeypatch.setattr(step_choice.Compiler, "of", classmethod(lambda cls, value: auto))
    brim.Trainer(
        Net(), batches(), loss_fn=nn.MSELoss(), device="cpu", threads=1, epochs=3, optimizer="SGD", compile="auto",
        run_dir=tmp_path / "run",
    ).fit()  # fmt: skip
    assert decision(tmp_path / "run")["reason"] == compiled_step.UNDECIDED


@pytest.mark.slow
def test_everything_that_it_names_exists_and_a_fork_meanwhile_ends():
    script = """if True:
        import os, torch
        from brim.engine.compiled.compiler_loading import MODULES, OF_CUDA, CompilerLoading
        loading = CompilerLoading(torch.device("cpu"))
        loading.begin()
        child = os.fork()
        import torch._inductor.compile_fx
        if not child:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        loading._thread.join()
        from importlib import import_module
        for name in MODULES:
            import_module(name)
        from torch._inductor import codecache, cpu_vec_isa
        codecache.build_code_hash = cpu_vec_isa.x86_isa_checker = None  # what was looked up is remembered
        assert codecache.torch_key() and cpu_vec_isa.pick_vec_isa()
        print("all there")
    """
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.stdout.strip() == "all there", ended.stderr
