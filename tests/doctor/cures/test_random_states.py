import random

import numpy as np
import pytest
import torch

from brim.doctor.cures.random_states import random_states


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: torch.rand(1), torch.randperm])
def test_a_draw_of_any_generator_is_seen(draw):
    before = random_states()
    assert random_states() == before
    draw(3) if draw is torch.randperm else draw()
    assert random_states() != before
