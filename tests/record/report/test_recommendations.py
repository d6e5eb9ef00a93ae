import json

import pytest

from brim.record.report.recommendations import MOST_PEOPLE, MOST_TITLES, RECOMMENDATIONS, Person, people_in

PERSON = Person("7 · User: woman.", ("Heat", "Ran"), 40, ("Toy Story", "Alien"), frozenset({1}))


def test_what_is_written_is_read(tmp_path):
    (tmp_path / RECOMMENDATIONS).write_text(json.dumps({"people": [PERSON.as_json()]}))
    assert people_in(tmp_path) == (PERSON,)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", '{"people": 3}', '{"people": [3, null, {}]}', '{"people": [{"recommended": "Heat"}]}', "\xff"],
)
def test_a_file_that_is_no_such_thing_is_nobody(tmp_path, content):
    (tmp_path / RECOMMENDATIONS).write_text(content)
    assert people_in(tmp_path) == ()


def test_odd_places_and_counts_are_left_out(tmp_path):
    odd = {**PERSON.as_json(), "found": [1, 2, -1, True, "0", None], "watched_in_all": True}
    (tmp_path / RECOMMENDATIONS).write_text(json.dumps({"people": [odd]}))
    (person,) = people_in(tmp_path)
    assert person.found == {1}
    assert person.watched_in_all == 2


def test_no_more_is_shown_than_a_page_can_hold(tmp_path):
    many = {**PERSON.as_json(), "who": "x" * 10_000, "recommended": ["y" * 10_000] * 100}
    (tmp_path / RECOMMENDATIONS).write_text(json.dumps({"people": [many] * 3 * MOST_PEOPLE}))
    assert people_in(tmp_path) == ()  # larger than such a file can be
    many = {**PERSON.as_json(), "who": "x" * 1000, "recommended": ["y" * 1000] * 20}
    (tmp_path / RECOMMENDATIONS).write_text(json.dumps({"people": [many] * 3 * MOST_PEOPLE}))
    people = people_in(tmp_path)
    assert len(people) == MOST_PEOPLE
    assert len(people[0].recommended) == MOST_TITLES
    assert len(people[0].who) < 200
