"""What changes while a run goes on, and can become what it was.

In: model, optimizer, schedule, generators, the place in the data. Out: plain data of one moment, and all of it again.
"""
