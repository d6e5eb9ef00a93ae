"""What torch's caching allocator asks the card for, given a trace, and what holds its peak.

In: a trace. Out: reserved and allocated bytes, and their owners.
"""
