"""What stands in a call of brim's: arguments that it does not know, under the names of other trainers too, and numbers
of other libraries.

Comes in: the names and values of a call. Goes out: the call as it was meant, or one sentence.
"""
