"""What a run says and writes down while it goes on: its lines, and the numbers of its steps.

In: losses and numbers on the device, plans, shortages, verdicts. Out: lines of the journal and of ``metrics.jsonl``.
"""
