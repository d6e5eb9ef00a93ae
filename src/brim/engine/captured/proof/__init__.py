"""Whether a captured step computes what the eager one does: gradients, losses, and the optimizer's part.

In: an eager and a captured step, and batches. Out: by how much they differ, and what rounding explains.
"""
