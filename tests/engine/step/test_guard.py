"""The step as a transaction: whatever fails and wherever, the step is the one that was asked for."""

import gc
import traceback
import weakref

import pytest
import torch
from helpers.faults import Above, At, Gate, failing, ran_out
from helpers.weights import weights
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from brim.engine.components.loss import Loss, loss_of
from brim.engine.components.precision import Precision
from brim.engine.oom.out_of_memory import PHRASES
from brim.engine.step import transaction as room
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.step.transaction import OptimizerRanOut
from brim.errors import CannotFit

CPU = torch.device("cpu")


def net(gate=None, dropout=0.3, norm=False):
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(6) if norm else nn.Identity()
    return nn.Sequential(nn.Linear(4, 6), gate or Gate(), nn.Tanh(), middle, nn.Dropout(dropout), nn.Linear(6, 1))


def window(step, sizes=(8,)):
    generator = torch.Generator().manual_seed(step)
    return [(torch.randn(n, 4, generator=generator), torch.randn(n, 1, generator=generator)) for n in sizes]


def eager(model, micro_batch=None, clip_norm=None, loss_fn=None, optimizer=torch.optim.AdamW, precision=None):
    step = loss_of(model, loss_fn or nn.MSELoss()), optimizer(model.parameters(), lr=0.01)
    return EagerStep(*step, precision or Precision("32", CPU), micro_batch, clip_norm)


def guarded(model, told=None, sliceable=None, checkpointing=None, **settings):
    def tell(sentence, **facts):
        if told is not None:
            told.append((sentence, facts))

    return GuardedStep(eager(model, **settings), model, tell, sliceable, checkpointing)


def plain(micro_batches, model=None, sizes=(8,), **settings):
    """The weights of a run whose steps have these slices from the start."""
    model = model or net()
    step = eager(model, **settings)
    torch.manual_seed(1)
    for number, step.micro_batch in enumerate(micro_batches):
        step(window(number, sizes))
    return weights(model)


def train(guard, steps, sizes=(8,)):
    torch.manual_seed(1)
    for number in range(steps):
        guard(window(number, sizes))
    return weights(guard.model)


def difference(a, b):
    return float((a - b).norm() / b.norm())


def fail_in(stage, at, monkeypatch):
    """A gate for the model; stages that are not the model's are made to fail where they are."""
    if stage in ("forward", "backward"):
        return Gate(at, stage)

    if stage == "clipping":
        clip = failing(torch.nn.utils.clip_grad_norm_, at)

        def clip_grad_norm_(*args, **settings):  # the stage is told by the name of the function
            return clip(*args, **settings)

        monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clip_grad_norm_)
    else:
        allocate = failing(room.allocate_state, at)

        def allocate_state(optimizer):
            return allocate(optimizer)

        monkeypatch.setattr(room, "allocate_state", allocate_state)
    return Gate()


# Every stage, every position

SLICED = [("forward", n) for n in range(1, 9)] + [("backward", n) for n in range(1, 9)]
SLICED += [("clipping", 1), ("clipping", 2), ("state", 1)]


@pytest.mark.matrix(7)
@pytest.mark.parametrize(("stage", "at"), SLICED)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_failure_at_any_slice_leaves_the_bits_of_a_run_with_smaller_slices(stage, at, dropout, monkeypatch):
    first_step_fails = at <= 4 if stage in ("forward", "backward") else at == 1
    with monkeypatch.context() as patch:
        guard = guarded(net(fail_in(stage, At(at), patch), dropout), micro_batch=2, clip_norm=0.5)
        trained = train(guard, 2)
    assert guard.failures == 1
    micro_batches = [1, 1] if first_step_fails else [2, 1]
    assert torch.equal(trained, plain(micro_batches, net(dropout=dropout), clip_norm=0.5))
    if dropout == 0:
        assert difference(trained, plain([None, None], net(dropout=0.0), clip_norm=0.5)) <= 1e-5


def test_steps_are_counted_once_however_often_they_are_tried():
    guard = guarded(net(Gate(At(2))))
    train(guard, 3)
    assert guard.transaction.made == 3 and guard.failures == 1


WHOLE = [(stage, at) for stage in ("forward", "backward", "clipping") for at in (1, 2, 3)] + [("state", 1)]


@pytest.mark.matrix(4)
@pytest.mark.parametrize(("stage", "at"), WHOLE)
def test_a_failure_of_a_whole_batch_in_any_step_is_a_run_with_halves_from_there_on(stage, at, monkeypatch):
    with monkeypatch.context() as patch:
        guard = guarded(net(fail_in(stage, At(at), patch)), clip_norm=0.5)
        trained = train(guard, 5)
    assert (guard.failures, guard.micro_batch) == (1, 4)
    micro_batches = [None] * (at - 1) + [4] * (6 - at)
    assert torch.equal(trained, plain(micro_batches, clip_norm=0.5))


@pytest.mark.matrix(2)
@pytest.mark.parametrize("stage", ["forward", "backward"])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7])
def test_any_limit_is_found_and_the_weights_are_those_of_whole_batches(stage, limit):
    trained = train(guarded(net(Gate(Above(limit), stage), dropout=0.0)), 12)
    assert difference(trained, plain([None] * 12, net(dropout=0.0))) <= 1e-5


@pytest.mark.parametrize("stage", ["forward", "backward", "clipping", "state"])
def test_several_failures_in_one_step_are_survived(stage, monkeypatch):
    with monkeypatch.context() as patch:
        guard = guarded(net(fail_in(stage, At(1, 2), patch)), clip_norm=0.5)
        trained = train(guard, 2)
    assert guard.failures == 2
    assert torch.equal(trained, plain([2, 2], clip_norm=0.5))


ERRORS = [*(RuntimeError(phrase) for phrase in PHRASES), MemoryError(), torch.OutOfMemoryError("no")]


@pytest.mark.matrix(4)
@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_every_way_to_say_it_is_survived(error, where):
    guard = guarded(net(Gate(At(1), where, lambda: error)))
    assert torch.equal(train(guard, 2), plain([4, 4]))


def test_the_cause_of_another_error_counts():
    def wrapped():
        error = ValueError("the block failed")
        error.__cause__ = ran_out()
        return error

    assert torch.equal(train(guarded(net(Gate(At(1), error=wrapped))), 2), plain([4, 4]))


@pytest.mark.matrix(3)
@pytest.mark.parametrize("sizes", [(8, 8), (8, 3), (3, 8), (1, 5, 2)])
@pytest.mark.parametrize("at", [1, 2])
def test_a_window_of_several_batches_is_one_step(sizes, at):
    guard = guarded(net(Gate(At(at))))
    trained = train(guard, 2, sizes)
    half = -(-max(sizes) // 2)
    assert torch.equal(trained, plain([half, half], sizes=sizes))


def test_a_larger_batch_later_than_the_first_is_sliced_when_it_comes():
    guard = guarded(net(Gate(Above(6)), dropout=0.0))
    reference, model = eager(net(dropout=0.0)), guard.model
    for step, size in enumerate((4, 4, 8, 20, 4, 20)):
        guard(window(step, (size,)))
        reference(window(step, (size,)))
    assert guard.micro_batch <= 6
    assert difference(weights(model), torch.cat([p.detach().flatten() for p in reference.parameters])) <= 1e-5


def test_a_batch_of_one_that_fails_once_goes_down_the_ladder():
    with pytest.raises(CannotFit, match="one sample already"):
        guarded(net(Gate(At(1))))(window(0, (1,)))


def test_larger_slices_are_tried_again_and_the_largest_that_fits_stays():
    guard = guarded(net(Gate(Above(11)), dropout=0.0))
    trained = train(guard, 30, (32,))
    assert guard.micro_batch == 11
    assert difference(trained, plain([None] * 30, net(dropout=0.0), (32,))) <= 1e-5


def test_batches_of_all_lengths_come_to_rest():
    guard = guarded(net(Gate(Above(9)), dropout=0.0))
    sizes = [32, 5, 17, 32, 2, 31, 12, 32, 9, 1] * 8
    for step, size in enumerate(sizes):
        guard(window(step, (size,)))
        if step == len(sizes) // 2:
            before = guard.failures
    assert guard.failures == before
    assert 7 <= guard.micro_batch <= 9


# What a failed try must not leave behind


class Remembering(nn.Module):
    """Fails at first, holding an activation; at the next try it looks whether that one is gone."""

    def __init__(self, where):
        super().__init__()
        self.where, self.seen, self.was_gone = where, None, None

    def forward(self, x):
        if not self.training:
            return x
        if self.seen is not None and self.was_gone is None:
            self.was_gone = self.seen() is None
        kept = x * 2
        square = kept.square()  # saves what it squares for the backward pass
        if self.seen is None:
            self.seen = weakref.ref(kept)
            if self.where == "forward":
                raise ran_out()
            square.register_hook(self._fail)
        return square

    def _fail(self, gradient):
        raise ran_out()


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_failed_computation_is_gone_before_the_next_try_begins(where):
    gate = Remembering(where)
    gc.disable()  # not by luck
    try:
        guarded(net(gate))(window(0))
    finally:
        gc.enable()
    assert gate.was_gone


def test_gradients_of_the_failed_try_are_gone_before_the_next(monkeypatch):
    seen = []

    class Looking(Gate):
        def forward(self, x):
            if self.training:
                seen.append([p.grad is None for p in model.parameters()])
            return super().forward(x)

    model = net(Looking(At(3)))
    guarded(model, micro_batch=2)(window(0))
    assert all(seen[3])  # the first slice of the second try


def test_batch_norm_has_seen_the_step_once():
    def statistics(model):
        return [model[3].running_mean, model[3].running_var, model[3].num_batches_tracked]

    told = []
    guard, reference = guarded(net(Gate(At(2, 4)), norm=True), told, micro_batch=8), net(norm=True)
    trained = train(guard, 2, (16,))  # step 1: a good slice of 8, one that fails; a good one of 4, one that fails
    assert guard.failures == 2
    assert torch.equal(trained, plain([2, 2], reference, (16,)))
    assert all(torch.equal(a, b) for a, b in zip(statistics(guard.model), statistics(reference), strict=True))
    assert int(guard.model[3].num_batches_tracked) == 16
    assert sum("BatchNorm" in sentence for sentence, _ in told) == 1


@pytest.mark.parametrize(("batch", "limit"), [(10, 3), (8, 1)])
def test_batch_norm_never_meets_a_slice_of_one_sample(batch, limit):
    try:
        train(guarded(net(Gate(Above(limit)), norm=True)), 3, (batch,))
    except CannotFit:
        assert limit == 1


@pytest.mark.parametrize("stage", ["forward", "backward", "clipping", "state"])
def test_a_loss_scale_is_taken_out_of_gradients_once(stage, monkeypatch):
    def scaled():
        precision = Precision("32", CPU)
        precision.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        return precision

    with monkeypatch.context() as patch:
        guard = guarded(net(fail_in(stage, At(1), patch)), clip_norm=0.5, precision=scaled())
        trained = train(guard, 3)
    assert guard.step.precision.scaler.get_scale() == 1024.0
    assert torch.equal(trained, plain([4, 4, 4], clip_norm=0.5, precision=scaled()))


def test_a_failure_moves_neither_generators_nor_modes():
    gate = Gate(At(1))
    model = net(gate)
    model[4].eval()
    torch.manual_seed(1)
    guarded(model)(window(0))
    after = torch.rand(3)
    other = net()
    other[4].eval()
    step = eager(other, micro_batch=4)
    torch.manual_seed(1)
    step(window(0))
    assert torch.equal(after, torch.rand(3))
    assert [module.training for module in model.modules()] == [module.training for module in other.modules()]


class Counting(nn.Module):
    """Counts in a buffer how many samples it saw, in whichever mode."""

    def __init__(self):
        super().__init__()
        self.register_buffer("samples", torch.zeros(()))

    def forward(self, x):
        self.samples += len(x)
        return x


def test_finding_out_whether_the_loss_can_be_sliced_moves_no_buffer():
    model = nn.Sequential(Counting(), net(Gate(At(1))))
    guarded(model)(window(0))
    assert float(model[0].samples) == 8


def test_running_out_while_the_snapshot_is_taken_is_survived(monkeypatch):
    guard = guarded(net())
    snapshot = guard.transaction.snapshot
    monkeypatch.setattr(snapshot, "take", failing(snapshot.take, At(2)))
    assert difference(train(guard, 3), plain([None, 4, 4])) < 1e-6


def test_half_made_optimizer_state_is_no_obstacle(monkeypatch):
    """At the first tensor of a parameter; the others are in test_optimizer_state."""
    at, zeros_like = At(1), torch.zeros_like

    def failing(*args, **settings):
        if at():
            raise ran_out()
        return zeros_like(*args, **settings)

    told = []
    guard = guarded(net(), told, optimizer=torch.optim.SGD)
    for group in guard.step.optimizer.param_groups:
        group["momentum"] = 0.9
    with monkeypatch.context() as patch:
        patch.setattr(torch, "zeros_like", failing)
        guard(window(0))
    assert told[0][1]["stage"] == "optimizer's state"


def test_half_made_state_of_a_parameter_is_no_obstacle(monkeypatch):
    at, zeros_like = At(2), torch.zeros_like

    def failing(*args, **settings):
        if at():
            raise ran_out()
        return zeros_like(*args, **settings)

    guard = guarded(net())
    with monkeypatch.context() as patch:
        patch.setattr(torch, "zeros_like", failing)
        trained = train(guard, 2)
    assert torch.equal(trained, plain([4, 4]))


# The optimizer's step


def test_the_optimizers_step_is_never_tried_again():
    guard, calls = guarded(net()), []

    def step():
        calls.append(1)
        raise ran_out()

    guard.step.optimizer.step = step
    with pytest.raises(OptimizerRanOut, match=r"optimizer's step.*2\.00 GiB.*last checkpoint") as error:
        guard(window(0))
    assert (len(calls), error.value.exit_code) == (1, 3)
    assert error.value.__context__ is None  # nothing keeps the failed step alive


def test_an_optimizer_that_fails_otherwise_says_so_itself():
    guard = guarded(net())

    def step():
        raise KeyError("exp_avg")

    guard.step.optimizer.step = step
    with pytest.raises(KeyError, match="exp_avg"):
        guard(window(0))


# What is not running out of memory


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize(
    "error",
    [ValueError("odd shape"), RuntimeError("CUDA error: device-side assert"), KeyboardInterrupt(), SystemExit(1)],
    ids=repr,
)
def test_anything_else_passes_as_it_is_and_leaves_the_step_usable(error, where):
    guard = guarded(net(Gate(At(1), where, lambda: error), dropout=0.0))
    with pytest.raises(type(error)) as caught:
        guard(window(9))
    assert caught.value is error
    assert any(frame.name in ("forward", "_fail") for frame in traceback.extract_tb(error.__traceback__))
    assert guard.failures == 0
    assert torch.equal(train(guard, 2), plain([None, None], net(dropout=0.0)))


# What may not be sliced


def contrastive(model, batch):
    """Every sample's own target against those of the others in the batch."""
    x, y = batch
    return nn.functional.cross_entropy(model(x) @ y.T, torch.arange(len(x)))


def test_sliceable_false_is_kept_to():
    guard = guarded(net(Gate(Above(4))), sliceable=False)
    with pytest.raises(CannotFit, match="must not be split"):
        guard(window(0))
    assert guard.micro_batch is None


def test_a_loss_across_the_batch_is_found_out_and_refused_with_the_reason():
    guard = guarded(net(Gate(Above(4))), loss_fn=contrastive)
    with pytest.raises(CannotFit, match=r"looks across the batch.*sliceable=True"):
        guard(window(0))


def test_sliceable_true_slices_it_all_the_same():
    guard = guarded(net(Gate(Above(4))), loss_fn=contrastive, sliceable=True)
    guard(window(0))
    assert guard.micro_batch == 4


def test_after_a_rung_of_the_ladder_the_reason_is_still_given():
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2)))
    model = nn.Sequential(layers, net(Gate(Above(0))))
    with pytest.raises(CannotFit, match=r"no memory for two samples"):
        guarded(model, loss_fn=contrastive)(window(0))


def tokens(model, batch):
    """A mean over tokens of which samples have different numbers."""
    x, y = batch
    counts = torch.arange(len(x)).float().exp2().unsqueeze(1)
    return ((model(x) - y).square() * counts).sum() / counts.sum()


def test_a_mean_over_something_else_is_refused_and_its_sum_and_count_are_not():
    with pytest.raises(CannotFit, match=r"brim\.Loss"):
        guarded(net(Gate(Above(4))), loss_fn=tokens)(window(0))

    def counted(model, batch):
        weight = (batch[0][:, :1] > 0).float() * 3 + 1
        return Loss(((model(batch[0]) - batch[1]).square() * weight).sum(), weight.sum())

    guard = guarded(net(Gate(Above(4)), dropout=0.0), loss_fn=counted)
    assert difference(train(guard, 3), plain([None] * 3, net(dropout=0.0), loss_fn=counted)) <= 1e-5


def test_a_loss_that_exists_in_training_mode_only_is_sliced_all_the_same():
    def detection(model, batch):
        if not model.training:
            raise AttributeError("a list of boxes has no loss")
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    assert torch.equal(train(guarded(net(Gate(At(1))), loss_fn=detection), 2), plain([4, 4]))


def test_data_that_needs_autocast_is_sliced_as_well():
    model = net(Gate(At(1)), dropout=0.0)
    step = guarded(model, precision=Precision("bf16", CPU))
    step([tuple(part.bfloat16() for part in window(0)[0])])
    assert step.micro_batch == 4


def test_a_batch_that_cannot_be_sliced_goes_down_the_ladder():
    packed = pack_sequence([torch.ones(3, 4), torch.ones(2, 4)])
    model = net(Gate(Above(0)), dropout=0.0)
    with pytest.raises(CannotFit):
        guarded(model, loss_fn=lambda model, batch: model(batch.data).mean())([packed])


def test_halves_that_do_not_fit_either_cannot_tell_and_are_sliced():
    class Everywhere(Gate):
        def forward(self, x):
            if len(x) > 2:
                raise ran_out()
            return x

    model = net(Everywhere(), dropout=0.0)
    assert difference(train(guarded(model), 3), plain([None] * 3, net(dropout=0.0))) <= 1e-5
    assert model.training


# What is told


def test_the_sentence_names_stage_module_bytes_and_what_is_done():
    told = []
    guarded(net(Gate(At(1))), told)(window(0))
    (sentence, facts), *more = told
    assert not more
    assert sentence.startswith("out of memory in the forward pass, in 1 at faults.py:")
    assert sentence.endswith("(2.00 GiB more were asked for); going on with micro-batches of 4 (the batch stays 8)")
    assert facts == {"micro_batch": 4, "stage": "forward pass"}


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        ("forward", "forward pass"),
        ("backward", "backward pass"),
        ("clipping", "clipping"),
        ("state", "optimizer's state"),
    ],
)
def test_the_stage_is_named(stage, name, monkeypatch):
    told = []
    with monkeypatch.context() as patch:
        guarded(net(fail_in(stage, At(1), patch)), told, clip_norm=1.0)(window(0))
    assert [facts["stage"] for _, facts in told] == [name]
    assert f"out of memory in the {name}" in told[0][0]


def test_without_a_failure_nothing_is_told_and_the_bits_are_the_plain_ones():
    told = []
    assert torch.equal(train(guarded(net(), told, clip_norm=0.5), 4), plain([None] * 4, clip_norm=0.5))
    assert not told


# Starting with what is known


def test_an_explicit_micro_batch_shrinks_too():
    guard = guarded(net(Gate(Above(2)), dropout=0.0), micro_batch=6)
    assert difference(train(guard, 9), plain([None] * 9, net(dropout=0.0))) <= 1e-5
    assert guard.micro_batch == 2


def test_slices_of_a_forecast_are_taken_from_the_first_step_on_and_shrink_too():
    gate = Gate(Above(4))
    guard = guarded(net(gate))
    guard.start_with(4, 8)
    assert torch.equal(train(guard, 4), plain([4] * 4))
    assert guard.failures == 0
    gate.fails = Above(2)
    guard(window(4))
    assert guard.micro_batch <= 2


def test_a_forecast_does_not_overrule_sliceable_false():
    guard = guarded(net(Gate(Above(2))), sliceable=False)
    guard.start_with(4, 8)
    with pytest.raises(CannotFit):
        guard(window(0))


# What the card says between steps, on a watch that can be told


class Watch:
    def __init__(self):
        self.room, self.retries = [], []

    def __getattr__(self, name):
        return lambda *args: None

    def is_due(self):
        return True

    def had_alloc_retries(self):
        return False

    def has_more_memory(self):
        return bool(self.room)

    def note_usable_memory(self):
        self.room.clear()

    def empty_cache_after_retries(self):
        return bool(self.retries) and self.retries.pop(0)


def test_when_there_is_more_room_the_slices_grow_back():
    gate, told = Gate(Above(2)), []
    guard = guarded(net(gate), told)
    guard.watch = Watch()
    train(guard, 4)
    assert guard.micro_batch == 2
    gate.fails = Above(8)
    guard.watch.room = [True]
    train(guard, 12)
    assert guard.micro_batch is None
    assert any("more memory is free" in sentence for sentence, _ in told)


def test_an_allocator_that_keeps_retrying_gets_smaller_micro_batches_and_no_step_is_repeated():
    told = []
    guard = guarded(net(Gate(Above(4)), dropout=0.0), told)
    guard.watch = Watch()
    train(guard, 3)
    guard.watch.retries = [True]
    size = guard.micro_batch
    trained = train(guard, 1)
    assert guard.micro_batch < size
    assert any("keeps retrying" in sentence for sentence, _ in told)
    reference = net(dropout=0.0)
    step = eager(reference)
    for number in (0, 1, 2, 0):
        step(window(number))
    assert difference(trained, weights(reference)) <= 1e-5
