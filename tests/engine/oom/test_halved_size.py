"""After running out of memory, half as many samples are tried, down to one."""

from itertools import pairwise

import pytest

from brim.engine.oom.halved_size import halved_size


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_every_size_comes_down_to_one_sample_and_then_to_none(size):
    tried = [size]
    while smaller := halved_size(tried[-1]):
        tried.append(smaller)
    assert tried[-1] == 1 and all(other / 2 <= one < other for other, one in pairwise(tried))
