"""Parts of brim for Lightning's own trainer.

In come a trainer of Lightning's and its module; out go forecasts of memory, numbers for its loggers, batches on the
device, and a step that survives running out of memory where the module optimizes by hand.
"""
