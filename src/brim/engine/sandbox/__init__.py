"""Calls of users' code that leave no trace, whose error an exception is, and what of its Python state is saved.

In: a model, a loss, a data set. Out: the same objects as they were before, the class of an error, and state as data.
"""
