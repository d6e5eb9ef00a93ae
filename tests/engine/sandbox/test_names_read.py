"""What code reads, and what it only writes to."""

import pytest

from brim.engine.sandbox.names_read import names_read

LOSSES = []


def appends(self, loss):
    LOSSES.append(loss)
    self.past.extend([loss])


def sums(self, loss):
    LOSSES.append(loss)
    return sum(LOSSES) + self.past[0]


def within(self, loss):
    return [number for number in range(3) if number in LOSSES] and (lambda: self.past)


def by_text(self, loss):
    return getattr(self, "past", LOSSES)


def counts(self, loss):
    global LOSSES
    LOSSES += [loss]
    self.past += 1


@pytest.mark.parametrize("function", [sums, within, by_text, counts])
def test_what_is_read_is_found(function):
    assert {"LOSSES", "past"} <= names_read([function.__code__])


def test_what_is_only_added_to_or_set_is_not():
    assert not {"LOSSES", "past"} & names_read([appends.__code__])
