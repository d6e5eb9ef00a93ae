"""Cures that feed a GPU: every batch is on it what it is without them, whatever is under way there."""

import gc

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from brim.doctor.cures.applied import apply_cures
from brim.doctor.cures.resident_data import AFTER
from brim.doctor.cures.side_stream import SideStream
from brim.doctor.order import Cures

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("undone")]

RESIDENT = Cures(resident_data=True, batched_access=True, num_workers=0)


class Rows(Dataset):
    """Columns of a class of its own."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(400, 64, generator=generator)
        self.y = torch.randint(10, (400,), generator=generator)

    def __len__(self):
        return 400

    def __getitem__(self, index):
        return {"x": self.x[index], "rest": [self.y[index]]}


def tables():
    rows = Rows()
    return TensorDataset(rows.x, rows.y)


def seen(data, epochs=3, move=None, **settings):
    """What a training sees of its batches on the GPU, and its losses, bit by bit."""
    gc.collect()  # or a worker would, what tests before left: plain loaders fork with it
    torch.manual_seed(0)
    move = move or (lambda tensor: tensor.to("cuda"))
    model = torch.nn.Linear(64, 10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(epochs):
        for batch in DataLoader(data, batch_size=32, shuffle=True, **settings):
            x, y = (batch["x"], batch["rest"][0]) if isinstance(batch, dict) else batch
            x, y = move(x), move(y)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x.float()), y)
            loss.backward()
            optimizer.step()
            found += [x.clone(), y.clone(), loss.detach()]
    return [tensor.cpu() for tensor in found]


def is_same(some, others):
    return len(some) == len(others) and all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("make", [tables, Rows])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "cures",
    [
        Cures(pinned_copies=True),
        Cures(device_prefetch=True),
        Cures(pinned_copies=True, device_prefetch=True),
        RESIDENT,
        RESIDENT.with_others(Cures(pinned_copies=True, device_prefetch=True)),
    ],
    ids=lambda cures: cures.in_words,
)
def test_a_training_is_the_same_bit_by_bit(make, workers, cures):
    plain = seen(make(), num_workers=workers)
    apply_cures(cures)
    assert is_same(seen(make(), num_workers=workers), plain)


@pytest.mark.parametrize(
    "move",
    [
        lambda tensor: tensor.cuda(),
        lambda tensor: tensor.cuda(0, True),
        lambda tensor: tensor.to(0, non_blocking=True),
        lambda tensor: tensor.to(torch.device("cuda:0"), copy=True),
        lambda tensor: tensor.to("cuda", torch.float64) if tensor.is_floating_point() else tensor.to(device="cuda"),
    ],
)
@pytest.mark.parametrize("cures", [Cures(pinned_copies=True, device_prefetch=True), RESIDENT])
def test_every_way_to_copy_is_answered(move, cures):
    plain = seen(tables(), move=move)
    apply_cures(cures)
    assert is_same(seen(tables(), move=move), plain)


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_memory_of_copies_is_not_handed_out_while_it_is_used(pinned, workers):
    apply_cures(Cures(device_prefetch=True, pinned_copies=pinned))
    rows = torch.arange(256 * 4096, dtype=torch.float32).reshape(256, 4096)
    weight = torch.randn(4096, 4096, device="cuda")
    sums = []
    for _ in range(4):
        for (x,) in DataLoader(TensorDataset(rows), batch_size=16, num_workers=workers):
            on_gpu = x.to("cuda")
            for _ in range(20):  # the host runs far ahead
                weight @ weight
            sums.append(on_gpu.double().sum())
            del on_gpu
            torch.empty_like(x, device="cuda").fill_(float("nan"))  # takes memory as soon as it is handed out again
    expected = [part.double().sum().item() for part in rows.split(16)] * 4
    assert torch.stack(sums).tolist() == expected


def test_a_script_that_writes_into_a_batch_after_a_copy_that_waits_is_not_raced():
    apply_cures(Cures(device_prefetch=True))
    rows = torch.ones(128, 1 << 18)
    total = []
    for (x,) in DataLoader(TensorDataset(rows), batch_size=16, pin_memory=True, num_workers=1):
        total.append(x.to("cuda").sum())
        x.zero_()
    assert torch.stack(total).tolist() == [16.0 * (1 << 18)] * 8


def test_a_script_that_writes_into_a_pinned_batch_after_copying_it_is_refused():
    apply_cures(Cures(pinned_copies=True))
    with pytest.raises(RuntimeError, match="writes into batches after"):
        for (x,) in DataLoader(TensorDataset(torch.ones(64, 4)), batch_size=16):
            x.to("cuda")
            x.zero_()


def test_batches_lie_on_the_gpu_once_it_is_known_where_they_go():
    apply_cures(RESIDENT)
    places = []
    for x, y in DataLoader(tables(), batch_size=32, pin_memory=True, num_workers=2):
        places.append((x.device.type, y.device.type))
        x.to("cuda")
    assert places == [("cpu", "cpu")] * AFTER + [("cuda", "cpu")] * (13 - AFTER)


def test_a_copy_can_be_used_on_any_stream():
    side, source = SideStream(), torch.arange(1 << 22).pin_memory()
    begun = side.begin(source, torch.device("cuda", 0))
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        total = side.finish(begun, host_waits=False).sum()
    other.synchronize()
    assert total.item() == sum(range(1 << 22))
