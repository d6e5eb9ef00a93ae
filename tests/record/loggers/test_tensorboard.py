import sys

import pytest

from brim.record import MetricsFile, RunFolder


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run")


def test_tensorboard_writes_its_file_with_the_first_number(folder):
    metrics = MetricsFile(folder)
    assert not list(folder.path.glob("events.out*"))  # nor is it imported before
    metrics.write(1, 1, loss=0.5)
    metrics.close()
    assert len(list(folder.path.glob("events.out*"))) == 1


def test_a_tensorboard_that_cannot_be_imported_is_left_out_with_a_word(folder, monkeypatch):
    said = []
    metrics = MetricsFile(folder, None, said.append)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    metrics.write(1, 1, loss=0.5)
    metrics.close()
    assert len(said) == 1 and said[0].startswith("TensorBoardLogger failed and gets no more numbers: ")
    assert len((folder.path / "metrics.jsonl").read_text().splitlines()) == 1
