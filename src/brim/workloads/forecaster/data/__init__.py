"""Series: from files, frames and arrays to windows for training and judging, split by time.

In: whatever holds one or many series. Out: ``SeriesDataset``, whose windows are views; and how values were prepared.
"""
