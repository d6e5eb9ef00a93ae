import threading

import torch

from brim.doctor.watching.tensor_hooks import TensorHooks, direction_of


def test_reads_are_counted_by_line_and_the_methods_are_given_back():
    before = {name: getattr(torch.Tensor, name) for name in ("item", "to", "cpu", "__bool__")}
    hooks = TensorHooks()
    hooks.install()
    try:
        values = [torch.tensor(3.0).item() for _ in range(4)]
        assert torch.ones(1).to("cpu").cpu() and values == [3.0] * 4
    finally:
        hooks.remove()
    (seen,) = hooks.seen(steps=2)
    assert (seen.method, seen.per_step, seen.direction) == ("item", 2.0, "none")
    assert seen.line.startswith("test_tensor_hooks.py") and "torch.tensor(3.0).item()" in seen.text
    assert {name: getattr(torch.Tensor, name) for name in before} == before


def test_a_copy_has_a_direction():
    host, device = torch.ones(2), torch.ones(2, device="meta")
    assert direction_of("to", host, device) == "to device" and direction_of("cpu", device, host) == "to host"
    assert direction_of("to", host, host) is None
    assert direction_of("__bool__", device, True) == "to host" and direction_of("__bool__", host, True) is None


def test_what_another_thread_reads_is_not_the_loops():
    hooks = TensorHooks()
    hooks.install()
    try:
        other = threading.Thread(target=lambda: torch.tensor(3.0).item())
        other.start()
        other.join()
    finally:
        hooks.remove()
    assert hooks.seen(steps=1) == ()
