import torch

from brim.engine.mistakes.described import MOST_NAMES, described


def test_it_says_what_a_value_holds():
    assert described(torch.zeros(2, 3)) == "a tensor of shape (2, 3)"
    assert described([1, 2]) == "a list of 2" and described("text") == "a str" and described(None) == "None"


def test_a_large_dict_is_cut():
    assert described(dict.fromkeys(range(MOST_NAMES + 1))).endswith("7 and 1 more")
