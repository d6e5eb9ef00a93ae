"""What is wrong with a training, told from what was seen of it.

Each rule is a pure function of an `Observation` and its shares; out come `Finding`s with cause, evidence and cure.
"""
