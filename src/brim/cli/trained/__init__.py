"""Commands that use what a run has trained: one small file per command.

In: a run folder or a saved model, and new samples. Out: predictions, as a table, a file or JSON.
"""
