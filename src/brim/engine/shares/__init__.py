"""Where the time of a run's steps goes, recorded while it trains, and alerts where much of it is lost.

In come moments: a batch is asked for, is there, a step is made. Out go shares of the time for each line of
metrics.jsonl, which add up to 1, and one event for each stretch in which something is wrong.
"""
