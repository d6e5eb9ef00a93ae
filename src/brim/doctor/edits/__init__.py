"""Cures that need a change of the user's code, as unified diffs of the user's files.

In come findings, what was seen, and the source files; out go `Suggestion`s. Nothing is written: a diff is printed, and
only one whose result is valid Python.
"""
