"""What goes wrong in code of the user, as an error that says where."""

from typing import Any

from brim.errors import BrimError, ModelError
from brim.memory.trace.trace import Recorder
from brim.user_line import line_of_the_user


class Telling:
    """What goes wrong in the user's code is told as the user's error, with its line."""

    def __init__(self, doing: str, recorder: Recorder | None = None) -> None:
        self.doing, self.recorder = doing, recorder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, BrimError):
            line = line_of_the_user(trace)
            module = self.recorder.failed_in if self.recorder is not None else ""
            where = " ".join(part for part in (f"at {line}" if line else "", f"in {module}" if module else "") if part)
            said = str(error).splitlines()[0] if str(error) else ""
            raise ModelError(
                f"{self.doing} failed{f' {where}' if where else ''}: {type(error).__name__}: {said}"
            ) from error
