from brim.observe.last_shares import LINES, last_shares, show_shares


def test_the_mean_of_the_last_lines_counts():
    old, new = {"share/data_wait": 1.0, "share/rest": 0.0}, {"share/data_wait": 0.0, "share/rest": 1.0}
    assert last_shares([old] * 50 + [new] * LINES) == {"data_wait": 0.0, "rest": 1.0}


def test_lines_without_shares_and_what_is_no_number_are_passed_over():
    assert last_shares([]) is None and last_shares([{"loss": 1.0}]) is None
    assert last_shares([{"share/data_wait": 0.5, "share/x": "much"}, {"eval/loss": 1.0}]) == {"data_wait": 0.5}


def test_small_shares_are_not_shown():
    assert show_shares({"copy": 0.004, "compute": 0.996}) == "compute 100 %"
