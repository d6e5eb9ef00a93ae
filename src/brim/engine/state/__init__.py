"""Training state as plain data: generator states, host copies, parts of sharded tensors, extra state.

In: live tensors and generators. Out: copies that can be written down and put back.
"""
