"""DataLoaders, watched: what is waited for, what a batch costs to make, and batches that come again.

In come a script's loaders and their batches; out go seconds in `Meters` and a `LoaderSeen` for each loader.
"""
