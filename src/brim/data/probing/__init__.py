"""Trying a data set out before it is read: whether reading changes it, without a trace.

In: a data set and a function that reads from it. Out: what that gave and what changed; the trial runs in a process of
its own, or on a copy.
"""
