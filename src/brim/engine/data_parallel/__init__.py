"""Several GPUs in one process: copies of the model that live for one step.

In: a model, devices, a batch. Out: the loss of the whole batch, with gradients on the first device.
"""
