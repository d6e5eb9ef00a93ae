"""Training steps on fake tensors, as sequences of storages that come to life and die.

In: a model, a batch, a loss, an optimizer. Out: a trace of allocations, with the lines that made them.
"""
