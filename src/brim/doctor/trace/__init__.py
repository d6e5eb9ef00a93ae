"""Traces of torch's profiler, reduced to numbers.

In come the events of a Chrome trace; out goes a `Profile`: seconds a step by what the device and the host did.
"""
