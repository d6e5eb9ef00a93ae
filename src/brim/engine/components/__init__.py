"""What a user chooses to train with: loss, precision, optimizer, learning-rate schedule.

In: names, functions or instances. Out: the objects that a step calls.
"""
