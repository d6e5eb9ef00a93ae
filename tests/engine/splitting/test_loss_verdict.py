import pytest

from brim.engine.splitting.loss_verdict import ACROSS, LABEL_MEAN, OWN_COUNT, SAMPLE_MEAN, UNKNOWN, LossVerdict


@pytest.mark.parametrize(
    ("kind", "adds_up"),
    [(SAMPLE_MEAN, True), (LABEL_MEAN, True), (OWN_COUNT, True), (ACROSS, False), (UNKNOWN, False)],
)
def test_parts_add_up_where_something_is_counted(kind, adds_up):
    assert LossVerdict(kind).gives_count is adds_up


def test_how_near_it_came_makes_no_other_verdict():
    assert LossVerdict(SAMPLE_MEAN, missed=1e-7) == LossVerdict(SAMPLE_MEAN, missed=1e-9)
