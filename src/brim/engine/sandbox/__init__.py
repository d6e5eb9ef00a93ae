"""Calls of users' code that leave no trace, and whose error an exception is.

In: a model, a loss, a data set. Out: the same objects as they were before, and the class of an error.
"""
