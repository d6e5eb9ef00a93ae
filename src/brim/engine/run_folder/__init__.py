"""What a run leaves in its folder: what it is about, what came of it, and its page.

In: a trainer's parts and its result. Out: files in the run folder, and :class:`Result`.
"""
