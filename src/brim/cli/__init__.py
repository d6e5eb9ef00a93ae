"""The commands: one small file for each.

In: the command line. Out: what is printed, and an exit code: 2 for bad input, 3 for what cannot fit.
"""
