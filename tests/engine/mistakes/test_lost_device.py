import gc
import subprocess
import sys
import weakref

import pytest
import torch

from brim.engine.mistakes.lost_device import is_lost
from brim.engine.mistakes.torch_errors import explained_errors
from brim.errors import ModelError

SCRIPT = """
import os
import torch
from brim.engine.mistakes.lost_device import keep_tensors

class Tells(torch.Tensor):
    def __del__(self, write=os.write):  # at the very end there are no modules any more
        write(1, b"freed ")

kept = torch.ones(3).as_subclass(Tells)
keep_tensors()
later = torch.ones(5).as_subclass(Tells)
"""


@pytest.mark.parametrize(
    "said", ["CUDA error: device-side assert triggered", "CUDA error: an illegal memory access was"]
)
def test_a_lost_device_is_known_by_what_torch_says(said):
    assert is_lost(said)
    assert not is_lost("CUDA out of memory")


@pytest.mark.slow
def test_tensors_outlive_the_process():
    ended = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout == "freed "  # the later one


def test_other_errors_keep_nothing():
    @explained_errors
    def fails():
        raise RuntimeError("Found dtype Long but expected Float")

    tensor = torch.ones(1)
    gone = weakref.ref(tensor)
    with pytest.raises((ModelError, RuntimeError)):
        fails()
    del tensor
    gc.collect()
    assert gone() is None
