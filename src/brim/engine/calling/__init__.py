"""How a user's model, loss function and optimizer are called: with what of a batch, and in which of their forms.

Comes in: a model, a loss function, an optimizer, a batch. Goes out: the call, or the form that was told or tried.
"""
