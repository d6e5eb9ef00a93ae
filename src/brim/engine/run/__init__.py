"""The loop and what surrounds it: what a run is put together of, its evaluations, how it ends.

In: the parts that a trainer has made. Out: a trained model and its run folder.
"""
