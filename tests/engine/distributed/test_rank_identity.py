import pytest

from brim.engine.distributed.rank_identity import VARIABLES, RankIdentity
from brim.errors import ConfigError


@pytest.fixture
def launched(monkeypatch):
    """``launched(RANK=1, WORLD_SIZE=2)``: who this process is by these variables, and no others."""

    def here(**variables):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        return RankIdentity.from_environment()

    return here


@pytest.mark.parametrize("variables", [{}, {"RANK": 0}, {"WORLD_SIZE": 2}, {"LOCAL_RANK": 1}])
def test_without_a_launcher_it_is_alone(launched, variables):
    assert launched(**variables) == RankIdentity() and not RankIdentity().is_launched


def test_it_is_who_the_launcher_says(launched):
    found = launched(RANK=5, WORLD_SIZE=8, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4)
    assert found == RankIdentity(5, 8, 1, 4, is_launched=True) and not found.is_first
    assert launched(RANK=0, WORLD_SIZE=1) == RankIdentity(is_launched=True)


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"RANK": "x", "WORLD_SIZE": 2}, "must be whole numbers"),
        ({"RANK": 2, "WORLD_SIZE": 2}, "RANK=2 is not one of WORLD_SIZE=2 ranks"),
        ({"RANK": -1, "WORLD_SIZE": 2}, "RANK=-1"),
        ({"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1}, "LOCAL_RANK=1 is not one of LOCAL_WORLD_SIZE=1"),
    ],
)
def test_numbers_that_cannot_be_are_refused(launched, variables, told):
    with pytest.raises(ConfigError, match=told):
        launched(**variables)
