from brim.engine.distributed.notice import Notice
from brim.errors import RanksLost


def test_it_comes_out_of_the_store_as_it_was_left():
    for notice in (Notice(1, 'ValueError: "no"\nmore'), Notice(0, "out of memory", 0), Notice(3, "größer", 4)):
        assert Notice.from_json(notice.to_json()) == notice


def test_the_error_of_another_rank_names_both_and_what_to_do():
    error = Notice(1, "ValueError: no label 7").error(rank=0, world=2)
    assert isinstance(error, RanksLost)
    assert "rank 0 of 2" in str(error) and "rank 1 ended with ValueError: no label 7" in str(error)
    assert "resume" in str(error)
