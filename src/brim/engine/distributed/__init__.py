"""Processes, collectives, gradient exchange and recovery.

In: what the launcher says of the ranks. Out: gradients and votes of all ranks, and the rank batch of each.
"""
