"""The next size to try where nothing is known but that this one was too much: in evaluations, and in lockstep."""


def halved_size(size: int) -> int:
    """Half as many samples as have run out of memory, rounded up; 0 where there is nothing smaller than one sample.

    >>> halved_size(7), halved_size(1)
    (4, 0)
    """
    return -(-size // 2) if size > 1 else 0
