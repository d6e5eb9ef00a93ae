"""The loop and what surrounds it: callbacks, schedule, messages, interrupts.

In: the parts that a trainer has made. Out: a trained model and its run folder.
"""
