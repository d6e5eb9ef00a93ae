"""What watches a script from inside its process: hooks on loaders, optimizers and tensors, and samples of its lines.

In comes the script, run as ``__main__``; out goes an `Observation`. Every hook leaves the training as it is.
"""
