"""How many examples a property test tries where they are cheap, or dear."""

import hypothesis

ALL = 50  # of the profile in which slow tests run too


def examples(most: int) -> hypothesis.settings:
    """``@examples(200)``: so many where slow tests run; fewer by the factor of the profile where they are left out."""
    return hypothesis.settings(max_examples=max(4, most * hypothesis.settings.default.max_examples // ALL))
