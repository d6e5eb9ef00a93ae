"""Notice, explain and undo running out of memory.

In: an exception, a model, a batch. Out: what held the memory, the state before the step, a smaller micro-batch.
"""
