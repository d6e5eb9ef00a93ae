"""A batch as a value: any nesting of tensors, sliced, rebuilt, and moved to the device ahead of time.

In: a batch. Out: its length, a slice, the same on another device.
"""
