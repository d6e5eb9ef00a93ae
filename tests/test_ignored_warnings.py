"""Warnings that are ignored for a while, in whatever order threads come and go."""

import warnings
from contextlib import ExitStack

import pytest

from brim.ignored_warnings import ignored_warnings


def test_within_nothing_is_shown_and_afterwards_everything():
    with pytest.warns(UserWarning, match="heard"):
        with ignored_warnings():
            warnings.warn("unheard", stacklevel=1)
        warnings.warn("heard", stacklevel=1)


@pytest.mark.parametrize("first_out", [0, 1])
@pytest.mark.parametrize("other", [ignored_warnings, warnings.catch_warnings])
def test_two_that_overlap_leave_the_filters_as_they_were(first_out, other):
    with warnings.catch_warnings():
        before = list(warnings.filters)
        contexts = [ExitStack(), ExitStack()]
        contexts[0].enter_context(ignored_warnings())
        contexts[1].enter_context(other())
        for place in (first_out, 1 - first_out):
            contexts[place].close()
        assert warnings.filters == before


def test_a_filter_of_the_users_own_that_is_alike_stays():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = list(warnings.filters)
        with ignored_warnings():
            pass
        assert warnings.filters == before
