"""What is easily got wrong, told in one sentence: what is no model, what fit does not take, data that does not fit.

Comes in: an argument, or what torch says. Goes out: nothing, or an error with what to write instead.
"""
