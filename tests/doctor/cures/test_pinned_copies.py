import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from brim.doctor.cures.batch_moves import BatchMoves
from brim.doctor.cures.pinned_copies import CopiesWithoutWaiting

pytestmark = pytest.mark.usefixtures("undone")


@pytest.fixture
def copied(monkeypatch):
    """The keywords of all copies to another device, with copies installed that do not wait."""
    plain, seen = Tensor.to, []

    def to(tensor, *arguments, **options):
        seen.append((arguments, options))
        return plain(tensor, *arguments, **options)

    monkeypatch.setattr(Tensor, "to", to)
    moves = BatchMoves("meta")
    CopiesWithoutWaiting(is_pinned=lambda tensor: tensor.dtype != torch.bool).install(moves)
    moves.install()
    return seen


def loader():
    return DataLoader(TensorDataset(torch.arange(6.0), torch.ones(6, dtype=torch.bool)), batch_size=2)


def test_the_host_waits_for_no_copy_of_a_pinned_batch(copied):
    for x, mask in loader():
        x.to("meta")
        x.to(device="meta", dtype=torch.float64)
        mask.to("meta")
        x.to("meta", torch.float64, False)
    each = [
        (("meta",), {"non_blocking": True}),
        ((), {"device": "meta", "dtype": torch.float64, "non_blocking": True}),
        (("meta",), {}),
        (("meta", torch.float64, False), {}),
    ]
    assert copied == each * 3


def test_a_script_that_writes_into_a_batch_after_copying_it_is_refused(copied):
    with pytest.raises(RuntimeError, match="writes into batches after it has copied them"):
        for x, _ in loader():
            x.to("meta")
            x.zero_()


def test_writing_before_copying_or_without_copying_is_fine(copied):
    for x, mask in loader():
        x.add_(1)
        x.to("meta")
        mask.fill_(False)
    assert len(copied) == 3
