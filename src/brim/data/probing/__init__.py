"""Trying a data set out before it is read: what reading costs, and whether reading changes it.

In come a data set and a way to read it, out comes a :class:`~brim.data.reading.look.Look`. Nothing is left behind: the
trial runs in a process of its own, or on a copy.
"""
