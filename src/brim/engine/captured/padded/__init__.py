"""Batches that are padded to their longest sequence, padded on to one of a few lengths, so that a few graphs serve all.

In go the batches of the first steps; out come the lengths, what padding is filled with, and batches padded on. That
this changes no gradient is proven, not assumed.
"""
