import sys
import threading

import torch

from brim.doctor.watching.line_sampler import LineSampler


def kind_of(sampler, call):
    """What the sampler says of the moment at which ``call`` is called."""
    found = []
    call(lambda *_: found.append(sampler.classify(sys._getframe(1))[0]))
    return found[0]


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
