"""Whether a batch may be computed in parts: what its loss is a mean over, found out by gradients.

In: a loss and a few samples. Out: a verdict with a count, or a warning that says what differs.
"""
