import json

import pytest

from brim.errors import ConfigError
from brim.workloads.recommender.comparison import ComparisonSettings


def test_a_quick_look_is_one_short_training_of_each_model():
    quick = ComparisonSettings(seeds=5, epochs=50).quick()
    assert (quick.seeds, quick.temperatures, quick.epochs) == (1, (6.0,), 4)
    assert quick.models == ComparisonSettings().models


def test_settings_are_json():
    assert json.loads(json.dumps(ComparisonSettings().as_json()))["temperatures"] == [5.0, 6.0, 7.0]


@pytest.mark.parametrize("wrong", [{"models": ("bpr",)}, {"models": ()}, {"seeds": 0}, {"temperatures": (0.0,)}])
def test_what_cannot_be_compared_is_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ComparisonSettings(**wrong)
