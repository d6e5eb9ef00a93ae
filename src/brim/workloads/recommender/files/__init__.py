"""Data sets and splits from files: which formats there are, and how their ids become ids from 0.

In: a folder that somebody downloaded. Out: a data set with its three splits.
"""
