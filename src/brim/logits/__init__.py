"""The last layer of a model with a large vocabulary and its loss, without logits for all tokens at once.

In come hidden states, the weight of the last layer and targets, or a model of transformers whose last layer is made to
wait for its loss; out comes the loss, whose backward pass has the gradients of the plain one but for rounding.
"""

from brim.logits.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
