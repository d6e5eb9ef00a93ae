"""A snapshot brings back what a failed try has spoilt, and costs nothing where nothing moves."""

import math
import random

import numpy
import pytest
import torch
from torch import nn

from brim.engine.components.precision import Precision
from brim.engine.oom import snapshot as room
from brim.engine.oom.snapshot import Snapshot

CPU = torch.device("cpu")


def snapshot_of(model=None, precision=None, loss_fn=None):
    return Snapshot(model, precision or Precision("32", CPU), loss_fn)


class Buffered(nn.Module):
    def __init__(self, **buffers):
        super().__init__()
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)


@pytest.fixture
def copied(monkeypatch):
    """Sizes of buffers that were copied, first copies included."""
    sizes, clone, copy = [], torch.Tensor.clone, torch._foreach_copy_
    monkeypatch.setattr(torch.Tensor, "clone", lambda tensor: sizes.append(tensor.numel()) or clone(tensor))
    monkeypatch.setattr(torch, "_foreach_copy_", lambda a, b: sizes.extend(t.numel() for t in a) or copy(a, b))
    return sizes


def test_random_numbers_come_again_as_often_as_needed():
    snapshot = snapshot_of()
    snapshot.take()
    first = torch.rand(3)
    for _ in range(2):
        snapshot.restore()
        assert torch.equal(torch.rand(3), first)


@pytest.mark.parametrize("draw", [random.random, numpy.random.rand], ids=["python", "numpy"])
def test_the_other_generators_a_step_may_draw_from_come_again_too(draw):
    snapshot = snapshot_of()
    snapshot.take()
    first = draw()
    snapshot.restore()
    assert draw() == first


def test_buffers_are_as_they_were_whatever_their_type():
    model = Buffered(a=torch.zeros(3), b=torch.zeros(2, dtype=torch.long), c=torch.ones(()), still=torch.ones(2))
    snapshot = snapshot_of(model)
    for value in (0, 1):
        snapshot.take()
        for _ in range(2):
            model.a.add_(1), model.b.add_(1), model.c.mul_(2)
            snapshot.restore()
            assert (model.a.tolist(), model.b.tolist(), float(model.c)) == ([value] * 3, [value] * 2, 1.0)
        model.a.add_(1), model.b.add_(1)


def test_the_statistics_of_batch_norm_are_as_they_were():
    model = nn.BatchNorm1d(3)
    snapshot = snapshot_of(model)
    for _ in range(2):
        snapshot.take()
        before = [buffer.clone() for buffer in model.buffers()]
        model(torch.randn(4, 3))
        snapshot.restore()
        assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))
        model(torch.randn(4, 3))


@pytest.mark.parametrize(
    ("norm", "shape"),
    [(nn.InstanceNorm1d(3, track_running_stats=True), (4, 3, 5)), (nn.utils.spectral_norm(nn.Linear(3, 3)), (4, 3))],
    ids=["instance norm", "spectral norm"],
)
def test_the_statistics_of_other_norms_are_as_they_were(norm, shape):
    snapshot = snapshot_of(norm)
    snapshot.take()
    before = [buffer.clone() for buffer in norm.buffers()]
    norm(torch.randn(shape))
    assert not all(torch.equal(a, b) for a, b in zip(before, norm.buffers(), strict=True))
    snapshot.restore()
    assert all(torch.equal(a, b) for a, b in zip(before, norm.buffers(), strict=True))


def test_a_buffer_that_first_moves_later_is_brought_back_too():
    model = Buffered(a=torch.zeros(3))
    snapshot = snapshot_of(model)
    for _ in range(3):
        snapshot.take()
    model.a.add_(1)
    snapshot.restore()
    assert model.a.tolist() == [0, 0, 0]


def test_a_step_that_worked_is_not_undone_by_the_next_failure():
    model = Buffered(a=torch.zeros(1))
    snapshot = snapshot_of(model)
    for step in range(4):
        snapshot.take()
        model.a.add_(10)
        snapshot.restore()
        assert float(model.a) == step
        model.a.add_(1)


def test_buffers_that_do_not_move_are_copied_once(copied):
    snapshot = snapshot_of(Buffered(a=torch.zeros(5), b=torch.zeros(7)))
    snapshot.take()
    assert copied == [5, 7]
    for _ in range(3):
        snapshot.take()
        snapshot.restore()
    assert copied == [5, 7]


def test_only_the_buffers_that_moved_are_copied_again(copied):
    model = Buffered(a=torch.zeros(5), b=torch.zeros(7))
    snapshot = snapshot_of(model)
    snapshot.take()
    model.b.add_(1)
    snapshot.take()
    assert copied == [5, 7, 7]


def test_caches_are_not_copied_and_whatever_else_is_large_comes_back(copied, monkeypatch):
    monkeypatch.setattr(room, "LARGE", 40)
    model = Buffered(cache=torch.zeros(11), queue=torch.zeros(12), small=torch.zeros(10))
    model.cache_buffers = ("cache",)
    snapshot = snapshot_of(model)
    snapshot.take()
    assert sorted(copied) == [10, 12]
    model.queue.add_(1)
    snapshot.restore()
    assert model.queue.tolist() == [0.0] * 12
    assert 11 not in copied


def test_restoring_before_taking_and_models_without_buffers_are_fine():
    snapshot_of().restore()
    snapshot = snapshot_of(nn.Linear(2, 2))
    snapshot.take()
    expected = torch.rand(3)
    snapshot.restore()
    assert torch.equal(torch.rand(3), expected)


def test_buffers_without_memory_are_left_alone():
    model = Buffered(a=torch.zeros(3, device="meta"))
    snapshot = snapshot_of(model)
    snapshot.take()
    snapshot.restore()
    assert model.a.is_meta


def test_a_buffer_that_the_module_replaced_is_brought_back():
    model = Buffered(average=torch.zeros(3))
    snapshot = snapshot_of(model)
    snapshot.take()
    model.average = 0.9 * model.average + 0.1  # as many moving averages are written
    snapshot.restore()
    assert model.average.tolist() == [0, 0, 0]


def test_a_buffer_made_in_inference_mode_ends_no_run():
    with torch.inference_mode():
        encodings = torch.ones(3)
    model = Buffered(encodings=encodings)
    snapshot = snapshot_of(model)
    snapshot.take()
    snapshot.restore()
    assert model.encodings is encodings


def test_gradients_computed_anew_can_be_unscaled_again():
    model, precision = nn.Linear(2, 1), Precision("32", CPU)
    precision.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    snapshot = snapshot_of(model, precision)
    snapshot.take()
    for again in (False, True):
        optimizer.zero_grad()
        precision.backward(model(torch.ones(1, 2)).sum())
        precision.unscale(optimizer)
        assert model.weight.grad.tolist() == [[1.0, 1.0]]
        if not again:
            snapshot.restore()
    precision.step(optimizer)
    assert precision.scaler.get_scale() == 8.0


# Parameters that move without a gradient, and criteria


def in_place(parameter):
    with torch.no_grad():
        parameter.lerp_(torch.ones(()), 0.5)


def by_data(parameter):
    parameter.data.mul_(0.5).add_(0.5)


def by_new_data(parameter):
    parameter.data = parameter.data * 0.5 + 0.5


MOVES = (in_place, by_data, by_new_data)


def frozen(size=3):
    model = nn.Linear(2, 2)
    model.slow = nn.Parameter(torch.zeros(size), requires_grad=False)
    return model


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("size", [3, 20_000])
def test_a_frozen_parameter_that_moves_is_as_it_was_from_the_second_step_on(move, size):
    model = frozen(size)
    snapshot = snapshot_of(model)
    snapshot.take()
    move(model.slow)
    for _ in range(6):
        snapshot.take()
        before = model.slow.detach().clone()
        for _ in range(2):
            move(model.slow)
            snapshot.restore()
            assert torch.equal(model.slow, before)
        move(model.slow)


@pytest.mark.parametrize(
    "move",
    MOVES,
)
def test_a_frozen_parameter_that_moves_in_the_first_try_is_as_it_was(move):
    model = frozen()
    snapshot = snapshot_of(model)
    snapshot.take()
    move(model.slow)
    snapshot.restore()
    assert model.slow.tolist() == [0, 0, 0]


@pytest.mark.parametrize("move", MOVES)
def test_moves_that_are_looked_for_are_found_by_name_and_undone(move):
    model = frozen()
    snapshot = snapshot_of(model)
    snapshot.take()
    assert snapshot.find_moves() == {}
    move(model.slow)
    assert {name: state.tolist() for name, state in snapshot.find_moves().items()} == {"Linear.slow": [0.5] * 3}
    snapshot.restore()
    assert model.slow.tolist() == [0, 0, 0] and snapshot.find_moves() == {}


def test_a_replaced_parameter_is_put_back():
    model = frozen()
    snapshot, own = snapshot_of(model), model.slow
    snapshot.take()
    model.slow = nn.Parameter(torch.ones(3), requires_grad=False)
    assert list(snapshot.find_moves()) == ["Linear.slow"]
    snapshot.restore()
    assert model.slow is own


def test_buffers_of_the_criterion_are_as_they_were():
    criterion = Buffered(centre=torch.zeros(2))
    snapshot = snapshot_of(nn.Linear(2, 2), loss_fn=criterion)
    snapshot.take()
    criterion.centre.add_(1)
    assert list(snapshot.find_moves()) == ["Buffered.centre"]
    snapshot.restore()
    assert criterion.centre.tolist() == [0, 0]


def test_a_criterion_within_the_model_is_kept_once(copied):
    model = nn.Sequential(nn.Linear(2, 2), Buffered(centre=torch.zeros(5)))
    snapshot_of(model, loss_fn=model[1]).take()
    assert copied == [5]


def test_a_loss_that_is_a_function_has_no_buffers():
    snapshot = snapshot_of(nn.Linear(2, 2), loss_fn=lambda model, batch: 0)
    snapshot.take()
    assert snapshot.find_moves() == {} and snapshot.beyond_repair() == []


def test_trained_parameters_are_not_copied_and_a_change_of_them_is_known(copied):
    model = nn.Linear(7, 7)
    snapshot = snapshot_of(model)
    snapshot.take()
    assert not copied and snapshot.beyond_repair() == []
    in_place(model.weight)
    assert snapshot.beyond_repair() == ["a trained parameter"]


def test_frozen_parameters_that_stay_are_watched_without_a_copy_after_the_first_steps():
    model = frozen()
    snapshot = snapshot_of(model)
    for _ in range(room.WATCHED_STEPS + 1):
        snapshot.take()
    in_place(model.slow)
    assert snapshot.beyond_repair() == ["Linear.slow"]


def test_too_many_frozen_parameters_are_watched_by_their_versions_alone(copied, monkeypatch):
    monkeypatch.setattr(room, "MOST_FROZEN", 8)
    model = frozen()
    snapshot = snapshot_of(model)
    snapshot.take()
    assert not copied and snapshot.beyond_repair() == []
    in_place(model.slow)
    assert snapshot.beyond_repair() == ["Linear.slow"]
    snapshot.take()  # now it is known to move
    in_place(model.slow)
    snapshot.restore()
    assert snapshot.beyond_repair() == [] and model.slow.tolist() == [0.5] * 3


def test_caches_that_were_filled_are_not_beyond_repair():
    model = Buffered(cache=torch.zeros(3))
    model.cache_buffers = ("cache",)
    snapshot = snapshot_of(model)
    snapshot.take()
    model.cache.add_(1)
    assert snapshot.beyond_repair() == []


def test_lazy_parameters_are_nobodys_state_yet():
    model = nn.LazyLinear(3)
    snapshot = snapshot_of(model)
    snapshot.take()
    snapshot.restore()
    assert model.has_uninitialized_params() and snapshot.beyond_repair() == []


def test_a_buffer_that_a_failed_try_has_filled_is_empty_again():
    model = Buffered(average=None)
    snapshot = snapshot_of(model)
    for value in (1.0, 2.0):
        snapshot.take()
        model.average = torch.full((2,), value)
        assert set(snapshot.find_moves()) == {"Buffered.average"}
        snapshot.restore()
        assert model.average is None


def test_a_buffer_that_a_forward_pass_has_registered_is_put_back_from_the_next_step_on():
    model = Buffered()
    snapshot = snapshot_of(model)
    snapshot.take()
    model.register_buffer("scale", torch.ones(2))
    assert snapshot.registered_since() == ["Buffered.scale"]
    snapshot.restore()
    snapshot.take()
    model.scale.mul_(3)
    assert not snapshot.registered_since()
    snapshot.restore()
    assert model.scale.eq(1).all()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_step_that_is_left_out_leaves_nothing_in_buffers_however_they_are_written(value):
    model = Buffered(average=torch.zeros(2), filled=None)
    snapshot = snapshot_of(model)
    snapshot.take()
    model.average = 0.9 * model.average + value  # as many moving averages are written
    model.filled = torch.full((2,), value)
    snapshot.restore_buffers_if_nonfinite(torch.tensor(value))
    assert model.average.tolist() == [0, 0] and model.filled is None


def test_a_step_with_finite_numbers_keeps_its_buffers():
    model = Buffered(average=torch.zeros(2), filled=None)
    snapshot = snapshot_of(model)
    snapshot.take()
    model.average = model.average + 1
    model.filled = torch.ones(2)
    snapshot.restore_buffers_if_nonfinite(torch.tensor(0.5))
    assert model.average.tolist() == model.filled.tolist() == [1, 1]
