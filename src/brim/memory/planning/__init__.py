"""From forecasts to settings: the largest batch, micro-batches, remedies, every card.

In: a job and a card. Out: a plan that fills the card and stays within it.
"""
