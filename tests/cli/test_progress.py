import pytest
from rich.progress import MofNCompleteColumn

from brim.cli.progress import progress_bar, telling


def test_sentences_go_to_a_file_one_after_another_but_for_the_one_that_is_not_said(capsys):
    with telling("stopped", unsaid="reading") as say:
        for sentence in ("reading", "training", "testing"):
            say(sentence)
    assert capsys.readouterr().err.splitlines() == ["training", "testing"]


def test_a_ctrl_c_says_what_was_stopped():
    with pytest.raises(KeyboardInterrupt, match="nothing was written"), telling("nothing was written"):
        raise KeyboardInterrupt


def test_there_is_no_bar_in_a_file(capsys):
    with progress_bar("packing", MofNCompleteColumn()) as show:
        show(1, None)
        show(2, 3)
    assert capsys.readouterr() == ("", "")
