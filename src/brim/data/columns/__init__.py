"""Data that consists of columns: gathered many rows at a time.

In: tensors, arrays and their subsets. Out: batches of rows.
"""
