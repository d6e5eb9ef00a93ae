"""Losses that compare the samples of all ranks.

In: the rows that a rank has of a batch. Out: those of all ranks, with gradients that flow back to where rows came from.
"""
