"""Data sets whose samples are read one by one: in this process or in workers, many at once, or as a stream.

In: a data set and indices. Out: collated batches, and what reading them costs.
"""
