"""What the GPUs and the CPU of this machine are doing at this moment, as the driver and the kernel say.

Numbers come out, as plain data; what cannot be known is None. Nothing here imports torch: a look takes no seconds.
"""
