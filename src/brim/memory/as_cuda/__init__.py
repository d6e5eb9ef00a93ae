"""Fake CPU tensors that take the ways CUDA tensors would take through torch, on a machine without a GPU.

In: a model and a training step. Out: the operators and kernels that the card would run.
"""
