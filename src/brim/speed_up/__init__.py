"""What more GPUs would bring: the step time of one batch shared by several of them.

In: a job, a card, a link. Out: forecast or measured step times for 1, 2, 4 and 8 GPUs.
"""
