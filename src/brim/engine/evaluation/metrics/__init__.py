"""Metrics beside the loss: kept as sums on the device, exact over ragged batches, parts of batches and ranks.

In: what the model returned for a batch, and the batch. Out: numbers by name.
"""
