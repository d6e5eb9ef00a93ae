"""How a script runs where it is watched, and how its end is told; here in the process of the tests."""

import io
import os
import sys

import pytest

from brim.doctor.child import NoInput, run_script
from brim.doctor.order import Order

ASKS = "it asks for input (stdin): give it its values as arguments"


@pytest.fixture(autouse=True)
def own_interpreter(monkeypatch):
    """What a script's process has for itself."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setenv("MPLBACKEND", "Agg")


def ran(tmp_path, text, *arguments, source=""):
    script = tmp_path / "train.py"
    script.write_text(text)
    return run_script(Order(str(script), arguments, source=source))


def test_a_script_runs_as_it_would_by_itself(tmp_path, capsys):
    (tmp_path / "beside.py").write_text("value = 3")
    text = "import sys, beside\nprint(__name__, sys.argv[1:], sys.path[0], beside.value)"
    assert ran(tmp_path, text, "--lr", "0.1") == ("finished", 0, "")
    assert capsys.readouterr().out == f"__main__ ['--lr', '0.1'] {tmp_path} 3\n"
    sys.modules.pop("beside")


def test_an_error_of_a_worker_is_told_with_its_own_message(tmp_path):
    text = """
import torch
class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        raise ValueError("sample 3 is broken")
for _ in torch.utils.data.DataLoader(Broken(), num_workers=1):
    pass
"""
    said = "train.py:8: ValueError: Caught ValueError in DataLoader worker process 0. ValueError: sample 3 is broken"
    assert ran(tmp_path, text) == ("failed", 1, said)


def test_another_text_runs_under_the_name_of_the_script(tmp_path, capsys):
    source = "import sys\nprint(__file__, __name__, sys.modules['__main__'].__file__)"
    assert ran(tmp_path, "raise ValueError", source=source) == ("finished", 0, "")
    assert capsys.readouterr().out == f"{tmp_path}/train.py __main__ {tmp_path}/train.py\n"


@pytest.mark.parametrize(
    ("text", "code", "error"),
    [
        ("x = 1\nraise ValueError('no data')", 1, "ValueError: no data"),
        ("import sys; sys.exit(7)", 7, "it ended with exit code 7"),
        ("import sys; sys.exit('no such file')", 1, "it ended with exit code 1"),
        ("raise KeyboardInterrupt", 130, "it was interrupted"),
        ("import sys; sys.stdin.read()", 1, ASKS),
        ("import sys; sys.stdin.buffer.readline()", 1, ASKS),
        ("import sys; sys.stdin.buffer.read()", 1, ASKS),
        ("try: input('name? ')\nexcept EOFError: pass", 1, ASKS),
        ("import os; os.execlp('true', 'true')", 1, "let it train in the process that it has"),
    ],
)
def test_an_end_that_is_a_failure_is_told_with_its_code(tmp_path, text, code, error, capsys):
    ended, found, said = ran(tmp_path, text)
    assert (ended, found) == ("failed", code) and said.endswith(error)
    assert ("no such file" in text) == ("no such file" in capsys.readouterr().err)


@pytest.mark.parametrize("asked", ["", "0", "None"])
def test_an_exit_without_an_error_is_an_end(tmp_path, asked):
    assert ran(tmp_path, f"import sys; sys.exit({asked})") == ("finished", 0, "")


def test_there_is_no_terminal_to_ask():
    assert isinstance(NoInput(), io.TextIOBase) and NoInput().readable() and not NoInput().isatty()
    assert os.environ["MPLBACKEND"] == "Agg"


def test_a_process_that_a_script_forks_may_become_another_program(tmp_path, capfd):
    text = "import os\nif (child := os.fork()) == 0: os.execlp('echo', 'echo', '7')\nos.waitpid(child, 0)"
    assert ran(tmp_path, text) == ("finished", 0, "")
    assert capfd.readouterr().out == "7\n"
