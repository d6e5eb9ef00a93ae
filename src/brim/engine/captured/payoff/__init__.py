"""Whether capturing earns its cost back.

In: marks of eager steps, the steps that are left, what attempts have cost. Out: a decision with its reason.
"""
