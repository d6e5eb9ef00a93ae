"""Commands that use what a run has trained: one small file per command."""
