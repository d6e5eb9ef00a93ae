"""The rules of the device prefetcher, on a device. The races are provoked, and a careless twin shows that they would be
seen."""

from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import brim
from brim.data import DevicePrefetcher, Loader

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
Pair = namedtuple("Pair", "x y")
LONG = 20_000_000  # clock cycles: about 10 ms


def numbered(count, rows=4096, pin=False):
    for number in range(count):
        batch = torch.full((rows, 16), float(number))
        yield batch.pin_memory() if pin else batch


def seen_values(prefetcher, batches, busy=LONG):
    """What the device reads in each batch, long after the host has let go of it."""
    sums = []
    for batch in prefetcher(batches):
        torch.cuda._sleep(busy)
        sums.append(batch.double().mean())
        del batch
    return torch.stack(sums).tolist()


class Careless(DevicePrefetcher):
    """Without rule 1: nothing keeps a batch's memory from being filled anew while it is still being read."""

    def send(self, batch):
        sent = super().send(batch)
        sent.copies = []  # so that none of them is recorded
        return sent


@pytest.mark.parametrize("pin", [False, True], ids=["pageable", "pinned"])
def test_a_batch_is_not_overwritten_while_the_device_still_reads_it(pin):
    assert seen_values(DevicePrefetcher("cuda"), numbered(40, pin=pin)) == list(range(40))


def test_that_the_race_would_be_seen():
    assert seen_values(Careless("cuda"), numbered(40)) != list(range(40))


def test_under_pressure_on_the_allocator_every_batch_arrives_whole():
    prefetcher, generator = DevicePrefetcher("cuda", ahead=3), torch.Generator().manual_seed(0)
    sizes = torch.randint(1, 40_000, (150,), generator=generator).tolist()
    expected = [torch.randint(0, 255, (size,), generator=generator, dtype=torch.uint8) for size in sizes]
    sums, litter = [], []
    for number, batch in enumerate(prefetcher(iter(expected))):
        torch.cuda._sleep(1_000_000)
        litter = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes[number % 50 :: 7]]
        for one in litter:
            one.fill_(255)
        sums.append(batch.long().sum())
        if number % 20 == 0:
            torch.cuda.empty_cache()
    assert torch.stack(sums).tolist() == [int(batch.long().sum()) for batch in expected]


@pytest.mark.parametrize("pin", [False, True], ids=["pageable", "pinned"])
def test_a_source_that_fills_one_buffer_again_and_again_is_copied_in_time(pin):
    buffer = torch.empty(1 << 20)
    buffer = buffer.pin_memory() if pin else buffer

    def source():
        for number in range(30):
            yield buffer.fill_(number)

    assert seen_values(DevicePrefetcher("cuda", ahead=2), source(), busy=1000) == list(range(30))


def test_one_stream_serves_all_epochs_and_memory_does_not_grow():
    prefetcher = DevicePrefetcher("cuda")
    seen_values(prefetcher, numbered(5))
    stream, reserved = prefetcher._stream, torch.cuda.memory_reserved()
    for _ in range(40):  # more than the 32 streams of torch's pool
        seen_values(prefetcher, numbered(5), busy=1000)
    assert prefetcher._stream is stream
    assert torch.cuda.memory_reserved() <= reserved + (2 << 20)


def test_the_batch_arrives_with_the_layout_and_types_that_a_plain_move_gives():
    x = torch.randn(2, 3, 4, 5)
    batch = {
        "last": x.to(memory_format=torch.channels_last), "t": x.mT, "gaps": x[:, ::2], "empty": torch.empty(0, 3),
        "pair": Pair(torch.tensor(7), [torch.arange(3), "text", None, 5]), "bool": torch.tensor([True, False]),
        "half": x.half(), "scalar": torch.tensor(2.5, dtype=torch.float64), "wide": torch.zeros(1).expand(4, 3),
    }  # fmt: skip
    (moved,) = DevicePrefetcher("cuda")(iter([batch]))
    for name in ("last", "t", "gaps", "empty", "bool", "half", "scalar", "wide"):
        plain = batch[name].to("cuda")
        assert torch.equal(moved[name], plain) and moved[name].dtype == plain.dtype
        assert moved[name].stride() == plain.stride(), name
    assert isinstance(moved["pair"], Pair) and moved["pair"].y[1:] == ["text", None, 5]
    assert moved["pair"].y[0].device.type == "cuda"


def test_what_is_there_already_is_handed_on_and_packed_sequences_are_moved():
    there = torch.ones(3, device="cuda")
    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    (moved,) = DevicePrefetcher("cuda")(iter([(there, packed)]))
    assert moved[0] is there
    assert moved[1].data.device.type == "cuda"


def test_errors_come_in_their_turn_and_an_early_break_leaves_the_next_epoch_whole():
    def failing():
        yield from numbered(3)
        raise ValueError("the fourth")

    prefetcher, seen = DevicePrefetcher("cuda", ahead=2), []
    with pytest.raises(ValueError, match="the fourth"):
        for batch in prefetcher(failing()):
            seen.append(float(batch[0, 0]))
    assert seen == [0, 1, 2]
    for batch in prefetcher(numbered(5)):
        assert float(batch[0, 0]) == 0
        break
    assert seen_values(prefetcher, numbered(4), busy=1000) == [0, 1, 2, 3]
    assert list(prefetcher(iter(()))) == []


def test_another_current_stream_waits_for_the_copy_too():
    prefetcher, mine, sums = DevicePrefetcher("cuda"), torch.cuda.Stream(), []
    with torch.cuda.stream(mine):
        for batch in prefetcher(numbered(20)):
            torch.cuda._sleep(1_000_000)
            sums.append(batch.mean())
            del batch
        values = torch.stack(sums).tolist()
    assert values == list(range(20))


def test_nothing_waits_for_the_device_between_batches():
    prefetcher = DevicePrefetcher("cuda")
    seen_values(prefetcher, numbered(3), busy=1000)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        handed_out = [batch.add_(1) for batch in prefetcher(numbered(3))]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [float(batch[0, 0]) for batch in handed_out] == [1, 2, 3]


def test_times_of_pinning_and_copying_are_taken():
    prefetcher = DevicePrefetcher("cuda")
    seen_values(prefetcher, numbered(10), busy=1000)
    torch.cuda.synchronize()
    prefetcher._read_clocks()
    taken = prefetcher.times.take()
    assert 0 < taken["copy"] < 1000 and taken["pin"] > 0


def test_data_kept_on_the_device_gives_the_batches_of_the_host_bit_for_bit():
    data = torch.randn(1003, 5), torch.arange(1003)
    host, device = Loader(data, 64), Loader(data, 64, device="cuda")
    for epoch, start in ((0, 0), (3, 128)):
        for ours, theirs in zip(device.batches(7, epoch, start), host.batches(7, epoch, start), strict=True):
            assert ours[0].device.type == "cuda"
            assert all(torch.equal(one.cpu(), other) for one, other in zip(ours, theirs, strict=True))
    assert "resident on cuda" in device.choice.path


def test_training_is_the_same_whether_the_data_is_kept_on_the_device_or_not(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(500, 8)
    data = (x, x.sum(1, keepdim=True))

    def weights(**settings):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        trainer = brim.Trainer(
            model, Loader(data, 32, **settings), loss_fn=nn.MSELoss(), epochs=3, deterministic=True,
            run_dir=tmp_path / str(len(list(tmp_path.iterdir()))),
        )  # fmt: skip
        trainer.fit()
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).cpu()

    assert torch.equal(weights(), weights(feed="batched"))


def test_a_trainer_keeps_columns_on_the_device_and_says_so(tmp_path):
    x = torch.randn(200, 8)
    brim.Trainer(
        nn.Linear(8, 1), (x, x.sum(1, keepdim=True)), loss_fn=nn.MSELoss(), epochs=2, run_dir=tmp_path / "r"
    ).fit()
    assert "data: resident on cuda" in (tmp_path / "r" / "log.txt").read_text()


def test_floating_point_tensors_are_cast_as_the_cpu_would_wherever_they_are():
    x = torch.randn(1000, 7, generator=torch.Generator().manual_seed(0))
    batches = [(x, torch.arange(1000)), (x.pin_memory(), torch.arange(1000)), (x.cuda(), torch.arange(1000).cuda())]
    for found, numbers in DevicePrefetcher("cuda", floats=torch.bfloat16)(iter(batches)):
        assert torch.equal(found.cpu(), x.bfloat16()) and torch.equal(numbers.cpu(), torch.arange(1000))
