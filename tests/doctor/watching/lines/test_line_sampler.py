import ctypes
import gc
import inspect
import os
import pickle
import sys
import threading
import time

import numpy as np
import pytest
import torch

from brim.doctor.watching.lines.line_sampler import LineSampler
from brim.doctor.watching.lines.source_lines import loop_lines


def kind_of(sampler, call):
    """What the sampler says of the moment at which ``call`` is called."""
    found = []
    call(lambda *_: found.append(sampler.classify(sys._getframe(1))[0]))
    return found[0]


def texts_of(function):
    return [line.strip() for line in inspect.getsource(function).splitlines()]


class Module(torch.nn.Module):
    def forward(self, call):
        call()


def test_a_call_of_a_module_is_forward_and_one_of_an_optimizer_is_its_own():
    sampler = LineSampler(lambda: False)
    assert kind_of(sampler, lambda call: Module()(call)) == "forward"
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    assert kind_of(sampler, lambda call: optimizer.step(lambda: call() or weight.sum())) == "optimizer"


def test_a_data_set_is_the_loaders():
    class Data(list):
        def __getitem__(self, index):
            self.call()
            return index

    def iterate(call):
        data = Data([1])
        data.call = call
        list(torch.utils.data.DataLoader(data))

    assert kind_of(LineSampler(lambda: False), iterate) == "loader"


def test_evaluation_is_what_the_loaders_say_it_is():
    assert kind_of(LineSampler(lambda: True), lambda call: Module()(call)) == "evaluation"


def test_a_function_of_the_users_that_logs_is_told_as_that():
    def log_metrics(call):
        call()

    assert kind_of(LineSampler(lambda: False), log_metrics) == "logging"
    assert kind_of(LineSampler(lambda: False), lambda call: call()) == "forward"


TRAINER = """
def fit(function, call):
    function(call)
"""


def test_a_callback_that_a_trainer_calls_is_beside_the_training():
    library = {}
    exec(compile(TRAINER, "/python/site-packages/trainer.py", "exec"), library)

    def on_step_end(call):
        call()

    def on_after_batch_transfer(call):
        call()

    def loss_of_batch(call):
        call()

    sampler = LineSampler(lambda: False)
    kinds = [
        kind_of(sampler, lambda call, function=function: library["fit"](function, call))
        for function in (on_step_end, on_after_batch_transfer, loss_of_batch)
    ]
    assert kinds == ["python", "data", "forward"]


def test_a_hook_in_which_the_model_is_called_or_the_optimizer_steps_is_training():
    library = {}
    exec(compile(TRAINER, "/python/site-packages/trainer.py", "exec"), library)
    sampler = LineSampler(lambda: False)
    notes = {}

    def on_batch(call):
        notes.pop("first")(sys._getframe()) if notes else call()

    for note in (sampler.note_step, sampler.note_forward):
        notes["first"] = note
        on_batch(None)
        assert kind_of(sampler, lambda call: library["fit"](on_batch, call)) == "forward"
        sampler._step_places.clear()


class Writer:
    """A file, or what writes to one."""

    def __init__(self, call):
        self.add = self.flush = call


def test_any_method_of_a_logger_is_logging_and_so_is_writing_to_the_disk():
    def add(call):
        metric_logger = Writer(call)
        metric_logger.add(1)

    def flush(call):
        Writer(call).flush()

    sampler = LineSampler(lambda: False)
    assert kind_of(sampler, add) == kind_of(sampler, flush) == "logging"


def test_a_generator_of_batches_is_no_logging_though_it_is_called_log_every():
    sampler, kinds = LineSampler(lambda: False), []

    class MetricLogger:
        def log_every(self, batches):
            for batch in batches:
                kinds.append(sampler.classify(sys._getframe())[0])
                yield batch

    def train(step):
        metric_logger = MetricLogger()
        for batch in metric_logger.log_every([1, 2]):
            step(batch)

    def step(_):
        code, line = sys._getframe(1).f_code, sys._getframe(1).f_lineno
        sampler._loops = {code: loop_lines(code, line, line)}

    train(step)
    assert kinds[-1] == "data"  # the loop is known from the first step on


def test_a_batch_that_a_generator_makes_on_the_line_of_the_model_is_data():
    sampler, kinds = LineSampler(lambda: False), []

    def batches():
        while True:
            kinds.append(sampler.classify(sys._getframe())[0])
            yield torch.ones(1)

    def cost(answer):
        kinds.append(sampler.classify(sys._getframe())[0])
        return answer

    def train():
        made, model = batches(), torch.nn.Identity()
        for _ in range(2):
            step(cost(model(next(made))))

    def step(_):
        code, line = sys._getframe(1).f_code, sys._getframe(1).f_lineno
        sampler._loops = {code: loop_lines(code, line, line)}

    train()
    assert kinds[-2:] == ["data", "forward"]  # the loop is known from the first step on


def test_a_batch_that_is_made_on_the_line_of_the_whole_step_is_data():
    sampler, kinds = LineSampler(lambda: False), {}

    def look():
        kinds[sys._getframe(1).f_code.co_name] = sampler.classify(sys._getframe(1))[0]

    def collect():
        look()

    def shown(loss):
        look()

    def train_step(batch):
        look()
        sampler.note_forward(sys._getframe())
        code, line = sys._getframe(1).f_code, sys._getframe(1).f_lineno
        sampler._loops = {code: loop_lines(code, line, line)}

    def train():
        for _ in range(2):
            shown(train_step(collect()))

    train()
    assert kinds == {"collect": "data", "train_step": "forward", "shown": "forward"}


def test_weights_that_are_listed_are_not_saved():
    sampler, kinds = LineSampler(lambda: False), []

    def _save_to_state_dict():
        kinds.append(sampler.classify(sys._getframe())[0])

    def save_to_disk():
        kinds.append(sampler.classify(sys._getframe())[0])

    _save_to_state_dict()
    save_to_disk()
    assert kinds == ["forward", "checkpoint"]


def test_whatever_is_done_to_save_is_saving(tmp_path):
    def save_checkpoint(call):
        Module()(call)

    def dump(call):
        np.save(tmp_path / "a.npy", np.ones(1) if call() is None else None)

    def dump_as_python_does(call):
        with (tmp_path / "a.pkl").open("wb") as file:
            pickle.dump(call(), file)

    def record_the_best(call):
        os.replace(tmp_path / "a.npy", tmp_path / "best.npy", src_dir_fd=call())

    sampler = LineSampler(lambda: False)
    kinds = [kind_of(sampler, function) for function in (save_checkpoint, dump, dump_as_python_does, record_the_best)]
    assert kinds == ["checkpoint"] * 4


def test_the_main_thread_is_sampled_until_it_is_stopped():
    sampler = LineSampler(lambda: False)
    interval = sys.getswitchinterval()
    sampler.note_step(sys._getframe())
    sampler.start()
    while not sampler.seen():
        pass
    sampler.stop()
    assert sys.getswitchinterval() == interval
    assert all(thread.name != "brim-doctor" for thread in threading.enumerate())
    lines = sampler.seen()
    assert abs(sum(line.share for line in lines) - 1) < 1e-9


@pytest.mark.skipif(sys.platform != "linux", reason="other systems wake threads on time")
def test_the_thread_that_looks_is_woken_on_time():
    slack = []
    sampler = LineSampler(lambda: slack.append(ctypes.CDLL(None).prctl(30)) or False)  # PR_GET_TIMERSLACK
    sampler.start()
    while not slack:
        time.sleep(0.001)
    sampler.stop()
    assert slack[0] == 1 < ctypes.CDLL(None).prctl(30)


def test_a_thread_that_trains_is_sampled_wherever_the_main_one_waits():
    sampler = LineSampler(lambda: False)

    def busy_in_a_thread():
        sampler.start()
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            sum(range(1000))
        sampler.stop()

    thread = threading.Thread(target=busy_in_a_thread)
    thread.start()
    thread.join()
    assert {line.text for line in sampler.seen() if line.line} <= set(texts_of(busy_in_a_thread))


def test_garbage_collection_is_no_lines():
    seconds = iter([0.0, 1e6])
    sampler = LineSampler(lambda: False, lambda: next(seconds, 2e6))
    sampler.start()
    while not sampler.seen():
        pass
    sampler.stop()
    (garbage,) = [line for line in sampler.seen() if line.kind == "garbage"]
    assert garbage.line == "" and garbage.share > 0.99


def sampled(work):
    """The kinds that the sampler counts while ``work`` runs, which is handed what takes a sample."""
    sampler = LineSampler(lambda: False)
    work(lambda *_: sampler.count(sys._getframe(1)))
    return {line.kind for line in sampler.seen()}


def test_a_model_called_without_gradients_and_not_for_the_loss_is_evaluated():
    @torch.no_grad()
    def decorated(sample):
        Module()(sample)
        sample()

    def in_a_block(sample):
        with torch.inference_mode():
            Module()(sample)
            sample()

    assert sampled(decorated) == sampled(in_a_block) == {"evaluation"}


def test_weights_that_are_changed_without_gradients_are_no_evaluation():
    def average(sample):
        with torch.no_grad():
            sample()

    assert "evaluation" not in sampled(average)


def test_a_teacher_whose_answer_goes_into_the_loss_is_no_evaluation():
    sampler = LineSampler(lambda: False)

    class Teacher(torch.nn.Module):
        def forward(self, x):
            sampler.count(sys._getframe())
            return x

    class Student(torch.nn.Module):
        def forward(self, x):
            sampler.note_forward(sys._getframe())
            return x

    def step():
        sampler.note_step(sys._getframe(1))
        sampler._loops = {
            code: loop_lines(code, line, sampler._forward_places.get(code))
            for code, line in sampler._step_places.items()
        }

    def train(teacher, student, x):
        for _ in range(2):
            with torch.no_grad():
                target = teacher(x)
            loss = (student(x) - target).sum()
            loss.backward()
            step()

    train(Teacher(), Student(), torch.ones(2, requires_grad=True))
    # The first look came before the loop was known.
    assert {key[2] is None for key in sampler._seconds} == {True, False}
    assert any(line.kind == "forward" for line in sampler.seen())


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_while_another_threads_frames_are_walked(monkeypatch, enabled):
    """Python 3.11 crashes where that happens: the frame is gone when its object is made."""
    seen, was_enabled = [], gc.isenabled()
    sampler = LineSampler(lambda: False)
    monkeypatch.setattr(sampler, "classify", lambda frame: seen.append(gc.isenabled()) or ("model", None))
    (gc.enable if enabled else gc.disable)()
    try:
        assert sampler._look() == ("model", None, None)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
    assert seen == [False]
