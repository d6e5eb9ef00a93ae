"""The numbers of a run in memory that does not grow with the run.

Lines of jsonl files come in as they are written; out go curves as a chart can show them, and how values are spread.
"""
