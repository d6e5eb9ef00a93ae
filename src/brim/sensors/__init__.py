"""What the GPUs and the CPU of this machine are doing at this moment, as the driver and the kernel say.

In come the GPUs and processes that are asked about; out come numbers, as plain data; what cannot be known is None.
Nothing here imports torch: a look takes no seconds.
"""
