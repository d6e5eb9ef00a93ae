import torch

from brim.doctor.watching.feed.device_copies import DeviceCopies


def test_a_copy_is_made_once_for_each_way_to_ask_for_it():
    kept, other = torch.ones(3), torch.ones(3)
    plain = torch.Tensor.to
    copies = DeviceCopies()
    copies.install([kept])
    try:
        first = kept.to("meta")
        assert kept.to("meta") is first and first.device.type == "meta"
        assert kept.to("meta", non_blocking=True) is not first
        assert kept.to(torch.float64) is kept.to(torch.float64)
        assert other.to("meta") is not other.to("meta")
    finally:
        copies.remove()
    assert torch.Tensor.to is plain and kept.to("meta") is not first
