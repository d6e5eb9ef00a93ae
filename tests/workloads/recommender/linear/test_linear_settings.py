import pytest

from brim.errors import ConfigError
from brim.workloads.recommender.linear import LinearSettings


def test_settings_to_choose_from_begin_with_the_defaults_and_are_the_same_each_time():
    assert LinearSettings.drawn(0) == LinearSettings()
    assert LinearSettings.drawn(3) == LinearSettings.drawn(3)
    assert len({LinearSettings.drawn(number) for number in range(12)}) == 12


@pytest.mark.parametrize("wrong", [{"regularisation": 0.0}, {"discount": -1.0}, {"text_weight": float("nan")}])
def test_settings_that_solve_nothing_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LinearSettings(**wrong)
