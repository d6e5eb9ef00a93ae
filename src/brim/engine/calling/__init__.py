"""How a user's model and loss function are called: with what of a batch, and in which of their forms.

Comes in: a model, a loss function, a batch. Goes out: the call, or the form that was told or tried.
"""
