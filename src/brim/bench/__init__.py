"""How fast a training is, timed while it trains as it does for its user.

In: a trainer. Out: samples a second.
"""
