"""The command that would help, by the command that this process was started with."""

import shlex
from collections.abc import Sequence
from pathlib import Path

OWN = ("brim", "__main__.py")  # as which brim train is started


def doctor_command(argv: Sequence[str]) -> str:
    """
    >>> doctor_command(["train.py", "--lr", "1e-3"])
    'brim doctor train.py -- --lr 1e-3'
    >>> doctor_command(["/opt/bin/brim", "train", "my.yaml"])
    'brim doctor /opt/bin/brim -- train my.yaml'
    >>> doctor_command(["-c"])
    'brim doctor SCRIPT.py'
    """
    script, arguments = argv[0] if argv else "", list(argv[1:])
    if Path(script).suffix != ".py" and Path(script).name not in OWN:
        return "brim doctor SCRIPT.py"
    return shlex.join(["brim", "doctor", script, *(["--", *arguments] if arguments else [])])


def plan_command(argv: Sequence[str]) -> str:
    """
    >>> plan_command(["/opt/bin/brim", "train", "my.yaml", "trainer.epochs=3", "--ranks", "2"])
    'brim plan my.yaml trainer.epochs=3'
    >>> plan_command(["train.py"])
    'brim plan MODULE:FUNCTION'
    """
    if len(argv) < 2 or Path(argv[0]).name not in OWN or argv[1] != "train":
        return "brim plan MODULE:FUNCTION"
    given = [word for word in argv[2:] if "=" in word or Path(word).suffix in (".yaml", ".yml")]
    return shlex.join(["brim", "plan", *(word for word in given if not word.startswith("-"))])
