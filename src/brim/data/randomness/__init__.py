"""Order and random numbers as functions of seed, epoch and position.

In: a seed and a position. Out: indices, negatives, and generators that belong to the data.
"""
