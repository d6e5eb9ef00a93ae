"""The doctor: why a training script is slow, told by running it for a few dozen steps.

In comes the path of an unmodified script with its arguments; out go the shares of its step time, the speed that it
could reach, and findings with their causes, evidence and cures. The script runs in child processes, and its files stay
as they are.
"""
