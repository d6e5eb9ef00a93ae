"""What a recommender would show a few people, for the page of its run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brim.record.json_object import json_object

RECOMMENDATIONS = "recommendations.json"
MOST_PEOPLE, MOST_TITLES, MOST_CHARACTERS, MOST_BYTES = 8, 12, 160, 1 << 20


@dataclass(frozen=True)
class Person:
    """What somebody watched and would be recommended; titles in ``found`` they did watch, in the test data."""

    who: str
    watched: tuple[str, ...]
    watched_in_all: int
    recommended: tuple[str, ...]
    found: frozenset[int] = frozenset()  # places in recommended, from 0

    def as_json(self) -> dict[str, Any]:
        return {
            "who": self.who, "watched": list(self.watched), "watched_in_all": self.watched_in_all,
            "recommended": list(self.recommended), "found": sorted(self.found),
        }  # fmt: skip


def people_in(run: Path) -> tuple[Person, ...]:
    """Those in a run folder; whatever is not such a file is nobody.

    >>> people_in(Path("nowhere"))
    ()
    """
    try:
        path = run / RECOMMENDATIONS
        text = path.read_bytes().decode("utf-8", errors="replace") if path.stat().st_size <= MOST_BYTES else ""
    except OSError:
        return ()
    people = (json_object(text) or {}).get("people")
    read = [_person(one) for one in people[:MOST_PEOPLE] if isinstance(one, dict)] if isinstance(people, list) else []
    return tuple(person for person in read if person.recommended)


def _person(told: dict[str, Any]) -> Person:
    watched, recommended, found = _texts(told.get("watched")), _texts(told.get("recommended")), told.get("found")
    places = found if isinstance(found, list) else []
    count = told.get("watched_in_all")
    is_count = isinstance(count, int) and not isinstance(count, bool) and count >= len(watched)
    return Person(
        str(told.get("who", ""))[:MOST_CHARACTERS],
        watched,
        count if is_count else len(watched),  # type: ignore[arg-type]
        recommended,
        frozenset(place for place in places if type(place) is int and 0 <= place < len(recommended)),
    )


def _texts(told: Any) -> tuple[str, ...]:
    return tuple(str(one)[:MOST_CHARACTERS] for one in told[:MOST_TITLES]) if isinstance(told, list) else ()
