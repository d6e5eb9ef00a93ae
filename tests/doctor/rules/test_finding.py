from brim.doctor.order import Cures
from brim.doctor.rules.finding import Finding, gain_of


def test_a_finding_as_json_names_only_the_cures_that_there_are():
    made = Finding("a", "b", "c", "d", 0.5, cures=Cures(num_workers=0, persistent_workers=True)).as_json()
    assert made["cures"] == {"num_workers": 0, "persistent_workers": True}


def test_a_gain_has_an_end():
    assert gain_of(0.0) == 1 and gain_of(1.0) == 100
