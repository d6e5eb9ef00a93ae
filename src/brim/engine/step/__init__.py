"""One optimizer step: eager, guarded against running out of memory, planned before the first batch.

In: an accumulation window of batches. Out: its mean loss, and weights that have moved once.
"""
