"""What model code asks of the GPU and of the host beside computing: the card, streams and events, arrays of numpy.

In: calls from code of the job that is forecast. Out: answers as if a card were there.
"""
