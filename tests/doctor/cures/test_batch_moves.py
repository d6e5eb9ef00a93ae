import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from brim.doctor.cures.batch_moves import BatchMoves, asked_of_cuda, asked_of_to, is_plain

pytestmark = pytest.mark.usefixtures("undone")
META = torch.device("meta")


@pytest.fixture
def moves():
    made = BatchMoves("meta")
    made.install()
    return made


def batches(count=3):
    data = TensorDataset(torch.arange(4.0 * count).reshape(-1, 2), torch.arange(2 * count))
    return DataLoader(data, batch_size=2), id(data)


def test_what_the_script_copies_of_a_batch_is_learnt_by_its_place(moves):
    loader, feed = batches()
    for x, _y in loader:
        assert moves.devices(feed) in ({}, {0: META}) and x.to("meta").device == META
    assert moves.devices(feed) == {0: META} and moves.devices(0) == {}


def test_other_calls_and_other_tensors_are_left_alone(moves):
    asked = []
    moves.answers.append(lambda one: asked.append(one))
    loader, feed = batches()
    for x, y in loader:
        assert x.to(torch.float64).dtype == torch.float64 and x.to("cpu") is x
        assert x[:1].to("meta").device == META and torch.ones(2).to("meta").device == META
        assert y.to(dtype=torch.int32, copy=True).dtype == torch.int32
    assert asked == [] and moves.devices(feed) == {}


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.to("meta"),
        lambda x: x.to(device="meta", non_blocking=False),
        lambda x: x.to(META, torch.float64),
        lambda x: x.to("meta", torch.float64, False),
        lambda x: x.to(torch.empty(1, device="meta")),
    ],
)
def test_every_form_of_a_copy_is_answered_with_what_else_it_asks_for(moves, call):
    plain = call(torch.ones(2, 2))
    moves.answers.append(lambda asked: asked.call(asked.tensor.clone(), non_blocking=True))
    for x, _ in batches()[0]:
        found = call(x)
        assert (found.device, found.dtype, found.shape) == (META, plain.dtype, x.shape)


def test_the_first_answer_counts_and_none_is_a_plain_copy(moves):
    moves.answers[:] = [lambda asked: None, lambda asked: "second", lambda asked: "third"]
    assert [x.to("meta") for x, _ in batches()[0]] == ["second"] * 3
    moves.answers[:] = [lambda asked: None]
    assert {x.to("meta").device for x, _ in batches()[0]} == {META}


def test_whether_the_host_waits_is_told(moves):
    waits = []
    moves.answers.append(lambda asked: waits.append(asked.waits))
    for x, y in batches(1)[0]:
        x.to("meta"), y.to("meta", non_blocking=True), x.to(torch.empty(1, device="meta"), True)
    assert waits == [True, False, False]


def test_tensors_are_not_kept_alive(moves):
    loader, _ = batches()
    for _ in loader:
        pass
    del _
    assert len(moves._handed) == 0


def test_what_cannot_be_told_to_be_unchanged_is_not_a_plain_tensor():
    with torch.inference_mode():
        assert not is_plain(torch.ones(1))
    assert is_plain(torch.ones(1)) and not is_plain(torch.ones(1, requires_grad=True))
    assert not is_plain(torch.nn.Parameter(torch.ones(1), requires_grad=False))
    assert not is_plain(torch.ones(1).to_sparse()) and not is_plain(torch.ones(1, device="meta"))


def test_batches_that_are_made_in_inference_mode_are_handed_out(moves):
    with torch.inference_mode():
        assert {x.to("meta").device for x, _ in batches()[0]} == {META}


@pytest.mark.parametrize(
    ("arguments", "options", "found"),
    [
        ((), {}, ("cuda", False)),
        ((1,), {}, ("cuda:1", False)),
        (("cuda:2", True), {}, ("cuda:2", True)),
        ((), {"device": torch.device("cuda:3"), "non_blocking": True}, ("cuda:3", True)),
        ((object(),), {}, (None, False)),
    ],
)
def test_the_arguments_of_cuda_are_understood(arguments, options, found):
    device, non_blocking = asked_of_cuda(arguments, options)
    assert (device and str(device), non_blocking) == found


def test_arguments_that_to_refuses_are_left_to_it():
    assert asked_of_to(("nonsense",), {}) == (None, False) and asked_of_to((1, 2, 3, 4, 5), {}) == (None, False)
