"""The loop and what surrounds it: callbacks, cadence, messages, files, interrupts.

In: the parts that a trainer has made. Out: a trained model and its run folder.
"""
