import os
import subprocess
import sys

import pytest
from helpers.runs import write_run

from brim.cli.observe.reader import until_the_reader_leaves


def test_other_errors_are_not_its_business():
    with pytest.raises(ConnectionResetError), until_the_reader_leaves():
        raise ConnectionResetError


def test_nor_is_a_pipe_to_another_process(capfd):
    reads, writes = os.pipe()
    os.close(reads)
    with pytest.raises(BrokenPipeError), until_the_reader_leaves():
        os.write(writes, b"to a worker")
    os.close(writes)


@pytest.mark.slow
@pytest.mark.parametrize("command", [("runs", "--json"), ("train", "--show-config")])
def test_a_reader_that_leaves_ends_a_command_without_a_word(tmp_path, command):
    write_run(tmp_path / "runs" / "run")
    reads, writes = os.pipe()
    os.close(reads)
    program = [sys.executable, "-m", "brim", *command]
    done = subprocess.run(program, cwd=tmp_path, stdout=writes, stderr=subprocess.PIPE, text=True)
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, "") and not (tmp_path / "brim-error.txt").exists()
