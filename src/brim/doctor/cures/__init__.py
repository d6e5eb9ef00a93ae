"""Cures that need no change of the user's code, applied inside the process that runs it.

In come `Cures`; nothing comes out: loaders, copies to a device, optimizers, threads and modules are made as the cures
say. What is trained stays the same: the samples of every batch, their order, and the random numbers that are drawn.
"""
