"""Metrics and predictions: no gradients, the device asked for numbers once at the end.

In: a model and batches. Out: mean metrics, or predictions in the order of the data.
"""
