import pytest
from helpers.clock import Clock

from brim.engine.shares.alerts import Alerts, MemoryUse, RollingMean

GIB = 2**30


class Machine:
    """Says what a test has set; lines come every so many seconds."""

    def __init__(self, has_gpu=True):
        self.clock, self.told, self.closed = Clock(), [], False
        self.memory, self.duty, self.asked = MemoryUse(1, 100, "on cuda:0", "brim plan a.yaml", "says more"), 100.0, 0
        self.alerts = Alerts(
            lambda line, **facts: self.told.append((line, facts)), "brim doctor train.py", lambda: self.memory,
            self if has_gpu else None, self.clock.monotonic,
        )  # fmt: skip

    def read(self):
        self.asked += 1
        return self.duty

    def close(self):
        self.closed = True

    def train(self, seconds, line=1.0, **shares):
        for _ in range(round(seconds / line)):
            self.clock.sleep(line)
            self.alerts.look({f"share/{name}": value for name, value in shares.items()}, line)

    @property
    def kinds(self):
        return [facts["alert"] for _, facts in self.told]


def test_data_wait_is_told_once_for_a_stretch_with_the_command_that_would_help():
    machine = Machine()
    machine.train(29, data_wait=0.5)
    assert machine.told == []
    machine.train(300, data_wait=0.5)
    ((line, facts),) = machine.told
    assert line == (
        "data wait: 50 % of the last 30 s of steps went to waiting for batches; `brim doctor train.py` says why"
    )
    assert facts == {"alert": "data_wait", "share": 0.5, "command": "brim doctor train.py"}


def test_data_wait_is_told_again_only_after_it_was_clearly_over():
    machine = Machine()
    machine.train(60, data_wait=0.25)
    machine.train(60, data_wait=0.18)  # not above the limit, and not clearly below
    machine.train(60, data_wait=0.25)
    assert machine.kinds == ["data_wait"]
    machine.train(60, data_wait=0.05)
    machine.train(60, data_wait=0.25)
    assert machine.kinds == ["data_wait", "data_wait"]


def test_a_slow_beginning_and_single_slow_lines_are_no_alert():
    machine = Machine()
    machine.train(5, data_wait=1.0)
    machine.train(300, data_wait=0.0)
    for _ in range(20):
        machine.train(1, data_wait=1.0)
        machine.train(9, data_wait=0.05)
    assert machine.told == []


def test_a_mean_over_thousands_of_short_lines_costs_no_more_than_over_a_few():
    multiplied = []

    class Share(float):
        def __mul__(self, other):
            multiplied.append(other)
            return float(self) * other

    mean = RollingMean(1.0)
    means = [mean.add(Share(number % 2), 1 / 1024) for number in range(4096)]
    assert means[:1023] == [None] * 1023 and means[1023:] == [0.5] * 3073
    assert len(multiplied) <= 2 * 4096


def test_lines_without_shares_are_passed_over():
    machine = Machine()
    machine.train(60)
    assert machine.told == []


def test_a_low_duty_cycle_is_told_after_a_minute_and_again_after_it_was_high():
    machine = Machine()
    machine.duty = 30.0
    machine.train(59)
    assert machine.told == []
    machine.train(100)
    ((line, facts),) = machine.told
    assert line == "low duty cycle: in the last 60 s the GPU computed 30 % of the time; `brim doctor train.py` says why"
    assert facts["percent"] == 30.0
    machine.duty = 95.0
    machine.train(120)
    machine.duty = 10.0
    machine.train(120)
    assert machine.kinds == ["duty_cycle", "duty_cycle"]


def test_the_card_is_asked_at_most_every_five_seconds_however_many_lines_there_are():
    machine = Machine()
    machine.train(50, line=0.1)
    assert 9 <= machine.asked <= 10


def test_one_look_after_hours_says_nothing_of_the_hours():
    machine = Machine()
    machine.duty = 10.0
    machine.train(7200, line=3600.0)
    assert machine.told == []
    machine.train(3600, line=3600.0)
    assert machine.kinds == ["duty_cycle"]


def test_without_nvml_the_share_of_computing_is_the_duty_cycle():
    machine = Machine()
    machine.duty = None
    machine.train(70, compute=0.9)
    assert machine.told == []
    machine.train(120, compute=0.2)
    assert machine.kinds == ["duty_cycle"]
    slow = Machine()
    slow.duty = None
    slow.train(70, compute=0.2)
    assert slow.told[0][1]["percent"] == 20


def test_on_a_cpu_there_is_no_duty_cycle():
    machine = Machine(has_gpu=False)
    machine.train(200, compute=0.1)
    assert machine.told == []


def test_memory_that_is_nearly_full_is_told_with_what_is_used_and_once():
    machine = Machine()
    machine.memory = MemoryUse(78 * GIB, 80 * GIB, "on cuda:0", "brim plan a.yaml", "says what takes it")
    machine.train(60)
    ((line, facts),) = machine.told
    assert line == ("memory: 78.00 GiB of 80.00 GiB on cuda:0 are in use (98 %); `brim plan a.yaml` says what takes it")
    assert facts == {"alert": "memory", "used": 78 * GIB, "limit": 80 * GIB, "command": "brim plan a.yaml"}
    machine.memory = MemoryUse(76 * GIB, 80 * GIB, "", "", "")
    machine.train(20)
    machine.memory = MemoryUse(78 * GIB, 80 * GIB, "", "", "")
    machine.train(20)
    assert machine.kinds == ["memory"]
    machine.memory = MemoryUse(60 * GIB, 80 * GIB, "", "", "")
    machine.train(20)
    machine.memory = MemoryUse(79 * GIB, 80 * GIB, "", "", "")
    machine.train(20)
    assert machine.kinds == ["memory", "memory"]


@pytest.mark.parametrize("memory", [None, MemoryUse(5, 0, "", "", "")])
def test_memory_that_is_not_known_is_no_alert(memory):
    machine = Machine()
    machine.memory = memory
    machine.train(60)
    assert machine.told == []


def test_who_is_asked_is_let_go():
    machine = Machine()
    machine.alerts.close()
    assert machine.closed
