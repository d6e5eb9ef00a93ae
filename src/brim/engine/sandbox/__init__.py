"""Calls of users' code that leave no trace, whose error an exception is, and who keeps Python state of theirs.

In: a model, a loss, a data set. Out: the same objects as they were before, those who keep state, the class of an error.
"""
