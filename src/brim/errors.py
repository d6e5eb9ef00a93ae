"""The few exceptions a user of brim can meet.

Every message is one sentence that says what is wrong, where, and what to do. The command line prints it on stderr and
ends with the exception's ``exit_code``; nothing else of brim decides about exit codes.
"""

import collections.abc
import sys


class BrimError(Exception):
    """Base of everything brim raises on purpose."""

    exit_code = 2


class ConfigError(BrimError):
    """A setting, in a file, an override or a keyword argument, that cannot be used."""


class DataError(BrimError):
    """Data that cannot be read, batched or sliced."""


class RunFolderError(BrimError):
    """A run folder that cannot be written or read."""


class BadNumbers(BrimError):
    """A loss that is NaN or infinite."""


class CannotFit(BrimError):
    """Nothing that brim may choose fits into memory."""

    exit_code = 3


# Ctrl-C, after the checkpoint was written. Python's own class, not one derived from it: CPython ends a script as Ctrl-C
# should end it, with status 130, only where exactly this class comes out of it.
Interrupted = KeyboardInterrupt
INTERRUPTED = 130  # its exit code


class Preempted(BrimError):
    """Asked to stop by the system (SIGTERM, SIGUSR1), after the checkpoint was written: start again to go on."""

    exit_code = 75  # EX_TEMPFAIL: what schedulers take for "try again"


class RanksLost(BrimError):
    """Another rank did not come to an exchange: it has ended, or its machine or network has. Start again to go on."""

    exit_code = 75  # nothing of this run is wrong


class ModelError(BrimError):
    """The user's own code failed: its error, and the line it comes from."""


def first_line(error: BaseException, most: int = 1000) -> str:
    """What an error of other people's says, in one line; its class where it says nothing.

    >>> first_line(ValueError("\\nno such thing\\nat all")), first_line(MemoryError())
    ('no such thing', 'MemoryError')
    """
    return _line(error, most) or type(error).__name__


def said(error: BaseException, most: int = 200) -> str:
    """The same with the error's class.

    >>> said(KeyError("users")), said(StopIteration())
    ("KeyError: 'users'", 'StopIteration')
    """
    return f"{type(error).__name__}: {_line(error, most)}".removesuffix(": ")


def reason(error: BaseException) -> str:
    """Why something failed, in one line: a sentence of brim's says it, and other errors need their class.

    >>> reason(KeyError("users")), reason(ConfigError("lr=0 must be a number above 0"))
    ("KeyError: 'users'", 'lr=0 must be a number above 0')
    """
    return str(error) if isinstance(error, BrimError) else said(error)


def printable(text: str) -> str:
    """A text from anywhere as one line that only shows itself: what moves the cursor or sets colours is written out.

    >>> printable("run\\x1b[2J\\n\\u202eabc"), printable("Läufe 1")
    ('run\\\\x1b[2J\\\\n\\\\u202eabc', 'Läufe 1')
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode()
        for letter in text
    )


def a_type(value: object) -> str:
    """What a value is, in a sentence.

    >>> a_type(1), a_type([]), a_type(collections.UserDict())
    ('an int', 'a list', 'a UserDict')
    """
    name = type(value).__name__
    is_vowel = name[0] in "aeioAEIO" or name == "ndarray"
    return f"{'an' if is_vowel else 'a'} {name}"


def _line(error: BaseException, most: int) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip()[:most] if lines else ""


def some_of(names: collections.abc.Iterable[str], most: int) -> str:
    """The first few names of a sentence, and how many more there are.

    >>> some_of(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def to_stderr(sentence: str) -> None:
    """Tell the user something where there is no run to tell it."""
    print(f"brim: {sentence}", file=sys.stderr, flush=True)
