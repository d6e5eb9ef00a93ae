import pytest

from brim.engine.components.cadence import Cadence
from brim.errors import ConfigError


def test_a_number_counts_epochs():
    cadence = Cadence.parse(2)
    assert [cadence.after_epoch(n) for n in (1, 2, 3, 4)] == [False, True, False, True]
    assert not cadence.after_step(2)


@pytest.mark.parametrize("text", ["500 steps", "500steps", " 500 step "])
def test_a_text_may_count_steps(text):
    cadence = Cadence.parse(text)
    assert cadence.after_step(1000)
    assert not cadence.after_step(750)
    assert not cadence.after_epoch(500)


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, None, "often", "0 steps", "5 minutes", []])
def test_anything_else_is_refused(wrong):
    with pytest.raises(ConfigError, match="eval_every"):
        Cadence.parse(wrong)
