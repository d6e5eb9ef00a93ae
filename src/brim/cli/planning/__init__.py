"""How plans look in a terminal: what ``brim plan`` shows beside the plan itself.

In: a job. Out: the tables of ways to make it fit.
"""
