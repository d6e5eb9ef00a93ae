"""What is wrong with a training, told from what was seen of it.

In come an `Observation` and its shares, of which each rule is a pure function; out come `Finding`s with cause,
evidence and cure.
"""
