import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from helpers.command import brim

from brim import __version__, errors
from brim.cli import main

pytestmark = pytest.mark.usefixtures("own_folder")


def train_ending_with(error, monkeypatch, file=main.__file__):
    """Run ``brim train`` with a training that ends with ``error``, in ``file``; gives the exit code."""
    scope = {"error": error}
    exec(compile("def training(*_):\n    raise error", file, "exec"), scope)
    training = scope["training"]
    monkeypatch.setattr("brim.config.recommender_workload.RecommenderWorkload.run", training)
    return brim(["train", "workload=recommender"], monkeypatch)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BrimError, 2),
        (errors.ConfigError, 2),
        (errors.DataError, 2),
        (errors.RunFolderError, 2),
        (errors.BadNumbers, 2),
        (errors.CannotFit, 3),
        (errors.Interrupted, 130),
    ],
)
def test_an_error_is_one_sentence_on_stderr_and_its_exit_code(error, code, monkeypatch, capsys, tmp_path):
    assert train_ending_with(error("x is wrong; do y"), monkeypatch) == code
    assert capsys.readouterr() == ("", "brim: x is wrong; do y\n")
    assert list(tmp_path.iterdir()) == []


def test_a_sentence_is_shown_as_it_is_in_one_line_however_long(monkeypatch, capsys):
    sentence = "k=[0] in [red]a[/red].yaml: \\[x] " + "word " * 100 + "/end"
    train_ending_with(errors.ConfigError(sentence), monkeypatch)
    assert capsys.readouterr().err == f"brim: {sentence}\n"


def test_a_bug_shows_no_traceback_and_leaves_one_in_a_file(monkeypatch, capsys, tmp_path):
    assert train_ending_with(ZeroDivisionError("by zero"), monkeypatch) == 1
    out, err = capsys.readouterr()
    report = tmp_path / "brim-error.txt"
    assert out == ""
    assert err.startswith("brim: brim did not expect this: ZeroDivisionError: by zero; please report it: ")
    assert err.endswith(f"the details are in {report}\n")
    assert err.count("\n") == 1
    assert report.read_text().startswith("Traceback (most recent call last)")
    assert "ZeroDivisionError: by zero" in report.read_text()


def test_an_error_in_the_users_code_is_told_with_its_line(monkeypatch, capsys, tmp_path):
    error = KeyError("input_ids")
    assert train_ending_with(error, monkeypatch, file="/home/anna/train.py") == 2
    err = capsys.readouterr().err
    assert err.startswith("brim: your code failed at /home/anna/train.py:2: KeyError: 'input_ids'; the details are in ")
    assert "Traceback" in (tmp_path / "brim-error.txt").read_text()


def test_ctrl_c_within_an_import_that_makes_another_error_of_it_is_told_as_such(monkeypatch, capsys):
    def training(*_):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ModuleNotFoundError("Could not import module 'GPT2Model'")

    monkeypatch.setattr("brim.config.recommender_workload.RecommenderWorkload.run", training)
    assert brim(["train", "workload=recommender"], monkeypatch) == errors.INTERRUPTED
    assert capsys.readouterr().err == "brim: stopped by Ctrl-C, without a checkpoint\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_bug_whose_report_cannot_be_written_shows_it_instead(monkeypatch, capsys, tmp_path):
    (tmp_path / "brim-error.txt").mkdir()
    assert train_ending_with(ZeroDivisionError("by zero"), monkeypatch) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_the_version_is_shown(monkeypatch, capsys):
    assert brim(["--version"], monkeypatch) == 0
    assert capsys.readouterr() == (f"brim {__version__}\n", "")


def test_help_names_the_commands(monkeypatch, capsys):
    assert brim(["--help"], monkeypatch) == 0
    assert " train " in capsys.readouterr().out


def test_without_a_command_the_help_is_shown(monkeypatch, capsys):
    brim([], monkeypatch)
    assert "Usage:" in "".join(capsys.readouterr())


def test_version_and_help_do_not_wait_for_torch():
    program = (
        "import sys\n"
        "from brim.cli.main import main\n"
        "for arguments in (['--version'], ['--help'], ['train', '--help']):\n"
        "    sys.argv = ['brim', *arguments]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as exit:\n"
        "        assert exit.code == 0, arguments\n"
        "    assert 'torch' not in sys.modules, arguments\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_commands(shell, monkeypatch, capsys):
    monkeypatch.setattr("shellingham.detect_shell", lambda: (shell, f"/bin/{shell}"))
    assert brim(["--show-completion"], monkeypatch) == 0
    assert f"_BRIM_COMPLETE=complete_{shell}" in capsys.readouterr().out
    words = {"COMP_WORDS": "brim pl", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "brim pl"}
    for name, value in {**words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("_BRIM_COMPLETE", f"complete_{shell}")
    brim([], monkeypatch)
    assert "plan" in capsys.readouterr().out


def test_ctrl_c_while_torch_is_imported_imports_it_no_second_time(tmp_path):
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt\n")  # half imported, torch raises anything, or crashes
    program = "import sys; sys.argv = ['brim', 'plan']; from brim.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "brim: stopped by Ctrl-C, without a checkpoint\n")


def test_ctrl_c_without_a_checkpoint_says_so(monkeypatch, capsys):
    assert train_ending_with(KeyboardInterrupt(), monkeypatch) == 130
    assert capsys.readouterr() == ("", "brim: stopped by Ctrl-C, without a checkpoint\n")


@pytest.mark.parametrize(
    "arguments", [["trian"], ["train", "--epochs", "3"], ["--verbose"], ["train", "--resume"]], ids=str
)
def test_a_command_line_that_is_not_understood_ends_with_2_and_writes_nothing(arguments, monkeypatch, capsys, tmp_path):
    assert brim(arguments, monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert arguments[-1] in err or arguments[1] in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["trian"], ["train", "--epochs", "3"]], ids=str)
def test_a_command_line_that_is_not_understood_is_one_sentence(arguments, monkeypatch, capsys):
    brim(arguments, monkeypatch)
    err = capsys.readouterr().err
    assert err.startswith("brim: ")
    assert err.count("\n") == 1


def test_the_help_that_is_named_is_that_of_the_command(monkeypatch, capsys):
    brim(["train", "--ranks", "0"], monkeypatch)
    assert capsys.readouterr().err.endswith("greater than or equal to 1. Try brim train --help.\n")


def test_a_group_without_a_command_shows_its_help_and_nothing_else(monkeypatch, capsys):
    assert brim(["checkpoint"], monkeypatch) == 2
    shown = capsys.readouterr()
    assert "export" in shown.out + shown.err and "Try brim" not in shown.err
