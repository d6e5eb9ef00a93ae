"""Commands that look at machines and runs, and change nothing but a page: one small file per command.

In: run folders, scripts, the machine. Out: tables, pages, JSON.
"""
