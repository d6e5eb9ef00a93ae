"""The command that would help, by the command that this process was started with."""

import shlex
from collections.abc import Sequence
from pathlib import Path

OWN = ("brim", "__main__.py")  # as which brim train is started
CONFIGURATIONS = (".yaml", ".yml")


def doctor_command(argv: Sequence[str]) -> str:
    """
    >>> doctor_command(["train.py", "--lr", "1e-3"])
    'brim doctor train.py -- --lr 1e-3'
    >>> doctor_command(["/opt/bin/brim", "train", "my.yaml", "trainer.epochs=3", "--ranks", "2"])
    'brim doctor my.yaml trainer.epochs=3'
    >>> doctor_command(["-c"])
    'brim doctor SCRIPT.py'
    """
    configuration = _configuration(argv)
    if configuration:
        return shlex.join(["brim", "doctor", *configuration])
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
    return shlex.join(["brim", "plan", *_configuration(argv)]) if _configuration(argv) else "brim plan MODULE:FUNCTION"


def _configuration(argv: Sequence[str]) -> list[str]:
    """The file and the settings of ``brim train``; empty where something else was started, or without a file."""
    if len(argv) < 3 or Path(argv[0]).name not in OWN or argv[1] != "train":
        return []
    words = [word for word in argv[2:] if not word.startswith("-")]
    files = [word for word in words if Path(word).suffix in CONFIGURATIONS and "=" not in word]
    return [files[0], *(word for word in words if "=" in word)] if files else []
