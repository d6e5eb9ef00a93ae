"""State on disk, whole or absent, and going on from it.

In: a training state. Out: a folder, or the state from one, with a clear sentence where the run is another.
"""
