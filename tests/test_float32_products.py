"""TF32 for a while: torch's switches of both generations come back as they were, also after an error."""

import subprocess
import sys

import pytest
import torch

from brim.float32_products import float32_products, tf32_in_cudnn, tf32_in_products


def switches():
    backends = torch.backends
    return (
        torch.get_float32_matmul_precision(), backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32,
        getattr(backends.cuda.matmul, "fp32_precision", None),
    )  # fmt: skip


@pytest.mark.parametrize("tf32", [True, False])
def test_they_are_set_and_put_back_even_after_an_error(tf32):
    before = switches()
    with pytest.raises(ValueError, match="x"), float32_products(tf32):
        assert tf32_in_products() is tf32 and tf32_in_cudnn() is tf32
        assert torch.backends.cuda.matmul.allow_tf32 is tf32  # torch's own code asks this one
        raise ValueError("x")
    assert switches() == before


def test_nothing_is_touched_where_nobody_asked():
    before = switches()
    with float32_products(None):
        assert switches() == before
    assert switches() == before


CPU = """
import torch
from brim.float32_products import float32_products
torch.backends.cuda.matmul.allow_tf32 = True  # which says nothing of the CPU
before = torch.backends.mkldnn.matmul.fp32_precision
for tf32 in (True, False):
    with float32_products(tf32):
        pass
    assert torch.backends.mkldnn.matmul.fp32_precision == before, tf32
    assert torch.backends.cuda.matmul.allow_tf32  # which can still be asked
"""


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="torch has the older switches alone")
def test_the_switch_of_the_cpu_which_moves_with_the_older_one_is_put_back(tmp_path):
    """In a process of its own: once it was set, that it was not cannot be had again by the older ones."""
    subprocess.run([sys.executable, "-c", CPU], check=True, cwd=tmp_path)


@pytest.mark.parametrize("wish", ["high", "medium"])
def test_what_a_program_has_set_before_is_there_again(wish):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(wish)
    try:
        with float32_products(False):
            assert not tf32_in_products()
        assert torch.get_float32_matmul_precision() == wish and tf32_in_products()
    finally:
        torch.set_float32_matmul_precision(before)


NEW = """
import torch
torch.backends.cuda.matmul.fp32_precision = "tf32"  # asking allow_tf32 is an error from here on
import brim
from brim.float32_products import float32_products, tf32_in_products
assert tf32_in_products()
with float32_products(False):
    assert not tf32_in_products()
assert torch.backends.cuda.matmul.fp32_precision == "tf32"
x = torch.randn(64, 3)
for precision in ("32", "tf32"):
    trainer = brim.Trainer(
        torch.nn.Linear(3, 1), [(x, x.sum(1, keepdim=True))] * 4, loss_fn=torch.nn.MSELoss(), device="cpu",
        precision=precision, threads=1, run_dir=f"run-{precision}", micro_batch=16,
    )
    trainer.fit()
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="torch has the older switches alone")
def test_programs_that_use_the_newer_switches_train_as_others_do(tmp_path):
    """In a process of its own: torch does not forget which switches were used."""
    subprocess.run([sys.executable, "-c", NEW], check=True, cwd=tmp_path)
