"""What the host decides within a step, which a graph cannot see: numbers in Python, globals, hooks, waiting.

In: a model and a loss. Out: marks that change when a replay would no longer be right.
"""
