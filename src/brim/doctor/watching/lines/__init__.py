"""Where the thread that trains spends its time, line by line: looked at from another thread, weighed by the kernel.

In come looks at its frames; out go lines of the user's code with their seconds.
"""
