import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brim.data.reading import workers
from brim.data.reading.shared_room import SharedRoom
from brim.data.reading.workers import (
    TUNING_SECONDS,
    WITHIN,
    BatchCost,
    Budget,
    RememberedChoice,
    WorkerChoice,
    choose_workers,
    machine_budget,
    search_rates,
    shared_room,
    smallest_near_best,
)
from brim.errors import DataError

SLOW = BatchCost(seconds=0.1, slowest=0.12, bytes=1_000_000, tensors=2)
MB = 1_000_000


class Machine:
    """A rate for each count, and a clock that goes on by ``seconds`` for each measurement."""

    def __init__(self, curve, seconds=1.0):
        self.curve, self.seconds = curve, seconds
        self.now, self.asked = 100.0, []

    def clock(self):
        return self.now

    def rate(self, count, prefetch=2):
        self.asked.append(count)
        self.now += self.seconds
        return self.curve(count)


def chosen(curve, cores=16, cost=SLOW, **budget):
    machine = Machine(curve)
    return choose_workers(cost, Budget(cores, **budget), machine.rate, machine.clock)


def test_no_worker_is_the_answer_where_one_process_is_best():
    assert chosen(lambda count: 9.9).workers == 0  # 10 batches/s alone


def test_no_worker_is_the_answer_where_workers_gain_less_than_noise():
    assert chosen(lambda count: 10.2).workers == 0


def test_nothing_is_measured_where_handing_over_costs_as_much_as_reading():
    quick = BatchCost(0.001, 0.001, 1000, tensors=2)
    choice = choose_workers(quick, Budget(8), rate=lambda *_: pytest.fail("measured"))
    assert choice.workers == 0
    assert "handing it over" in choice.reason


def test_a_rate_that_grows_up_to_four_workers_gives_four():
    assert chosen(lambda count: 9 * min(count, 4)).workers == 4


def test_the_reason_tells_what_was_measured_and_which_limit_there_was():
    choice = chosen(lambda count: 9.0 * count, cores=3)
    assert choice.workers == 3
    assert "3: 27" in choice.reason
    assert "3 cores" in choice.reason
    assert choice.measured[0] == pytest.approx(10)


def test_workers_that_cannot_do_it_are_not_chosen():
    assert chosen(lambda count: 0.0).workers == 0


@given(
    gains=st.lists(st.floats(0, 50), min_size=1, max_size=24),
    saturated_at=st.integers(1, 24),
    seconds=st.floats(0.001, 1),
)
def test_the_smallest_count_within_three_percent_of_the_best_is_found(gains, saturated_at, seconds):
    curve = [sum(gains[: min(count, saturated_at)]) for count in range(len(gains) + 1)]
    cost = BatchCost(seconds, seconds, 1000, tensors=1)
    best = max([1 / seconds, *curve[1:]])
    near = [c for c in range(1, len(curve)) if curve[c] >= (1 - WITHIN) * best]
    expected = 0 if 1 / seconds >= (1 - WITHIN) * best else near[0]
    assert chosen(curve.__getitem__, cores=len(gains), cost=cost).workers == expected


@given(st.integers(1, 64), st.floats(0.1, 40))
def test_measuring_ends_soon_after_the_deadline(most, seconds):
    machine = Machine(lambda count: float(count), seconds)
    measured = search_rates(machine.rate, 0.5, most, machine.clock)
    assert machine.now - 100 <= TUNING_SECONDS + seconds
    assert set(measured) == {0, *machine.asked}
    assert max(machine.asked) <= most


def test_one_busy_moment_does_not_decide():
    answers = iter([5.0, 1.0, 1.0, 1.0, 0.5, 40.0, 1.0])  # the most, the counts below, none, the best once more
    measured = search_rates(lambda count: next(answers), 0.5, 8, lambda: 0.0)
    assert measured[8] == 40.0
    assert smallest_near_best(measured) == 8


@pytest.mark.parametrize(
    ("limits", "most", "said"),
    [
        ({}, 8, "8 cores"),
        ({"shared_memory": 20 * MB}, 5, "20 MB of /dev/shm"),  # half of it, two batches each
        ({"open_files": 24}, 3, "24 open files"),
        ({"memory": 100 * MB, "memory_per_worker": 8 * MB}, 5, "100 MB of memory"),
        ({"shared_memory": MB}, 0, "/dev/shm"),
        ({"shared_memory": 0, "open_files": 0, "memory": 0}, 0, ""),
    ],
)
def test_every_limit_of_the_machine_counts_and_is_named(limits, most, said):
    found, reason = Budget(8, **limits).most_workers(SLOW, prefetch=2)
    assert found == most
    assert said in reason


@given(
    cores=st.integers(1, 64),
    shared_memory=st.none() | st.integers(0, 1 << 32),
    open_files=st.none() | st.integers(0, 1 << 12),
    memory=st.none() | st.integers(0, 1 << 36),
    size=st.integers(0, 1 << 28),
    tensors=st.integers(0, 50),
    slowest=st.floats(0.1, 1),
)
def test_the_choice_never_takes_more_than_the_machine_has(
    cores, shared_memory, open_files, memory, size, tensors, slowest
):
    cost = BatchCost(0.1, slowest, size, tensors)
    budget = Budget(cores, shared_memory, open_files, memory)
    choice = choose_workers(cost, budget, lambda count, prefetch: 100.0 * count, lambda: 0.0)
    count, ahead = choice.workers, choice.workers * choice.prefetch
    assert max(choice.measured) <= cores  # nor does measuring
    assert count <= cores
    assert shared_memory is None or ahead * size <= shared_memory
    assert open_files is None or ahead * tensors <= open_files
    assert memory is None or count * budget.memory_per_worker + ahead * size <= memory


def test_no_room_for_a_single_worker_is_said():
    choice = chosen(lambda count: pytest.fail("measured"), shared_memory=MB)
    assert choice.workers == 0
    assert "no room" in choice.reason
    assert "/dev/shm" in choice.reason


@pytest.mark.parametrize(("slowest", "prefetch"), [(0.1, 2), (0.19, 2), (0.21, 4)])
def test_some_slow_batches_among_quick_ones_make_the_queue_deeper(slowest, prefetch):
    assert BatchCost(0.1, slowest, 0, 1).prefetch == prefetch


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setattr(workers, "usable_cores", lambda: 16)
    monkeypatch.setattr(workers, "free_shared_memory", lambda: 800)
    monkeypatch.setattr(workers, "available_memory", lambda: 1600)
    monkeypatch.setattr(workers, "open_file_limit", lambda: 1024)
    monkeypatch.setattr(workers, "process_memory", lambda: 1 << 30)


@pytest.mark.parametrize(
    ("ranks", "computes_here", "cores"), [(1, False, 16), (1, True, 8), (4, False, 4), (4, True, 2), (32, True, 1)]
)
def test_ranks_share_the_machine_and_training_on_the_cpu_takes_half(host, ranks, computes_here, cores):
    budget = machine_budget(ranks, computes_here)
    assert (budget.cores, budget.open_files) == (cores, 1024)
    assert (budget.shared_memory, budget.memory) == (800 // ranks, 1600 // ranks)
    assert budget.memory_per_worker == 1 << 28


def test_where_nobody_says_what_there_is_there_is_no_limit(monkeypatch):
    for name in ("free_shared_memory", "available_memory", "open_file_limit", "process_memory"):
        monkeypatch.setattr(workers, name, lambda: None)
    assert machine_budget(ranks=2) == Budget(max(1, workers.usable_cores() // 2))


def test_workers_that_shared_memory_has_no_room_for_are_refused_with_the_numbers():
    room = SharedRoom(4, 2, 64 * MB)
    room.check(8 * MB)
    with pytest.raises(DataError, match=r"4 workers with 2 batches of 9 MB each need 72 MB of /dev/shm.*64 MB left"):
        room.check(9 * MB)


def test_the_room_in_shared_memory_is_that_of_now_and_none_where_there_is_no_limit(monkeypatch):
    monkeypatch.setattr(workers, "free_shared_memory", lambda: 64 * MB)
    assert shared_room(4, 2) == SharedRoom(4, 2, 64 * MB)
    monkeypatch.setattr(workers, "free_shared_memory", lambda: None)
    assert shared_room(4, 2) is None


CHOICE = WorkerChoice(3, 4, "because", {0: 1.5, 3: 4.25})


@pytest.fixture
def memory(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path))
    return lambda cost=SLOW, samples=100, batch_size=8, cores=4: RememberedChoice([], samples, batch_size, cost, cores)


def test_what_was_chosen_is_remembered(memory, tmp_path):
    assert memory().recall() is None
    memory().keep(CHOICE)
    assert memory().recall() == CHOICE
    assert [file.suffix for file in (tmp_path / "brim").iterdir()] == [".json"]  # and nothing is left beside it


def test_a_cost_that_is_about_the_same_is_the_same_data(memory):
    memory().keep(CHOICE)
    assert memory(BatchCost(0.11, 0.3, 1_010_000, 2)).recall() == CHOICE


@pytest.mark.parametrize(
    "other",
    [
        {"samples": 101},
        {"batch_size": 9},
        {"cores": 5},
        {"cost": BatchCost(0.4, 0.4, MB, 2)},
        {"cost": BatchCost(0.1, 0.1, MB, 3)},
    ],
)
def test_other_data_or_another_machine_is_measured_anew(memory, other):
    memory().keep(CHOICE)
    assert memory(**other).recall() is None


GOOD = {"workers": 3, "prefetch": 4, "reason": "because", "measured": {"0": 1.5, "3": 4.25}}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", "{}", json.dumps(GOOD | {"measured": [1]}), json.dumps(GOOD | {"workers": "x"})],
)
def test_a_damaged_memory_is_no_memory(memory, text):
    memory().keep(CHOICE)
    memory().file.write_text(text)
    assert memory().recall() is None
    memory().keep(CHOICE)
    assert memory().recall() == CHOICE


def test_bytes_that_are_no_text_are_no_memory(memory):
    memory().keep(CHOICE)
    memory().file.write_bytes(b"\xff\xfe\x00")
    assert memory().recall() is None


@pytest.mark.parametrize("damage", [{"workers": -1}, {"workers": 10**6}, {"prefetch": 0}, {"workers": float("inf")}])
def test_a_memory_of_impossible_numbers_is_no_memory(memory, damage):
    memory().keep(CHOICE)
    memory().file.write_text(json.dumps(GOOD | damage))
    assert memory().recall() is None


def test_a_home_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "file"))
    memory = RememberedChoice([], 100, 8, SLOW, 4)
    memory.keep(CHOICE)
    assert memory.recall() is None
