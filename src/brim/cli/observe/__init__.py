"""Commands that look at machines and runs, and change nothing: one small file per command."""
