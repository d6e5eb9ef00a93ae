"""Losses as sums and counts, and the numbers that a pass of a loss says beside the loss.

In: what a user's loss returns or logs. Out: numbers that add up over parts of a batch.
"""
