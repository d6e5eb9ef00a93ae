import re

import pytest

from brim.engine.mistakes.torch_sentences import SENTENCES


@pytest.mark.parametrize(("pattern", "sentence"), SENTENCES, ids=range(len(SENTENCES)))
def test_every_sentence_can_be_filled_in(pattern, sentence):
    filled = sentence.format(*["x"] * 2 * max(1, re.compile(pattern).groups))
    assert filled and "{" not in filled


def test_no_pattern_is_there_twice():
    patterns = [pattern for pattern, _ in SENTENCES]
    assert len(set(patterns)) == len(patterns)
