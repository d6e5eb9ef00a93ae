"""What a user says about the course of a run: how long it is, what its schedule counts, code of their own in it.

In: settings and objects of the user's. Out: what the loop asks at its moments.
"""
