"""A change of a file as a unified diff."""

from difflib import unified_diff

NO_NEWLINE = "\\ No newline at end of file\n"


def diff_of(name: str, before: str, after: str) -> str:
    """What ``patch -p1`` and ``git apply`` take.

    >>> print(diff_of("train.py", "a = 1\\nb = 2\\n", "a = 1\\nb = 3\\n"), end="")
    --- a/train.py
    +++ b/train.py
    @@ -1,2 +1,2 @@
     a = 1
    -b = 2
    +b = 3
    """
    lines = unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines as ``patch`` counts them: Python's own splitting knows more line ends."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]
