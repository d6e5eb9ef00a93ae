import multiprocessing
import os
import signal

import pytest
import torch

from brim.workloads.recommender.encoders.kept_encodings import FILE, KeptEncodings, encodings_folder, encodings_key
from brim.workloads.recommender.text_encoder import TextEncoder

KEY, SHAPE = "0" * 32, (3, 2)
TEXTS = ["Movie: Heat.", "Ran", "Toy Story"]


def made():
    return torch.arange(6.0).reshape(SHAPE)


def never():
    raise AssertionError("it is kept")


@pytest.fixture
def said():
    return []


@pytest.fixture
def kept(tmp_path, said):
    return KeptEncodings(tmp_path / "encodings", said.append)


def test_they_are_in_the_cache_folder_wherever_the_user_has_put_it(monkeypatch, tmp_path):
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path))
    assert encodings_folder("auto", "gpt2") == tmp_path / "brim" / "encodings"


def test_what_was_made_once_is_read(kept):
    assert torch.equal(kept.get(KEY, SHAPE, made), made())
    assert torch.equal(kept.get(KEY, SHAPE, never), made())


def test_a_damaged_entry_is_made_again(kept):
    kept.get(KEY, SHAPE, made)
    file = kept.folder / f"{KEY}.brim" / FILE
    content = bytearray(file.read_bytes())
    for damaged in (content[:-3], content[:-1] + b"\x07", b""):
        file.write_bytes(damaged)
        assert torch.equal(kept.get(KEY, SHAPE, made), made())
        assert torch.equal(kept.get(KEY, SHAPE, never), made())


def test_a_folder_that_cannot_be_written_is_told_and_the_run_goes_on(tmp_path, said):
    (tmp_path / "file").write_text("")
    kept = KeptEncodings(tmp_path / "file" / "encodings", said.append)
    assert torch.equal(kept.get(KEY, SHAPE, made), made())
    assert "encodings are not kept on disk" in said[0]


def test_an_encoder_that_fails_leaves_nothing(kept):
    with pytest.raises(ZeroDivisionError):
        kept.get(KEY, SHAPE, lambda: 1 / 0)
    assert not list(kept.folder.iterdir())


def test_what_a_killed_process_left_half_written_is_removed(kept):
    left = kept.folder / f"{KEY}.brim.half-00000000"
    left.mkdir(parents=True)
    kept.get(KEY, SHAPE, made)
    assert [path.name for path in kept.folder.iterdir()] == [f"{KEY}.brim"]


def test_the_name_of_an_entry_says_weights_use_and_texts():
    encoder = TextEncoder()
    tokens = encoder.tokenize(TEXTS)

    def key(how="mean", ids=tokens.ids):
        return encodings_key(encoder.model, how, ids, tokens.lengths)

    first = key()
    assert key() == first
    assert key(how="last") != first
    assert key(ids=tokens.ids + 1) != first
    with torch.no_grad():
        next(encoder.parameters())[0, 0] += 1e-3
    assert key() != first


def test_an_encoder_reads_texts_once_for_all_runs(kept, monkeypatch):
    encoder = TextEncoder()
    tokens = encoder.tokenize(TEXTS)
    first = encoder.encode_once(tokens, kept)
    torch.testing.assert_close(first, encoder.encode_all(tokens))
    monkeypatch.setattr(encoder, "forward", lambda tokens: never())
    assert torch.equal(encoder.encode_once(tokens, kept), first)


def _build_slowly(folder, begun, built):
    def build():
        begun.set()
        built.acquire()
        return made()

    KeptEncodings(folder, lambda sentence: None).get(KEY, SHAPE, build)


@pytest.mark.slow
def test_one_process_builds_and_a_killed_one_leaves_nothing_half(tmp_path, said):
    processes = multiprocessing.get_context("fork")
    begun, built = processes.Event(), processes.Semaphore(0)
    builder = processes.Process(target=_build_slowly, args=(tmp_path, begun, built))
    builder.start()
    begun.wait()
    assert not (tmp_path / f"{KEY}.brim").exists()
    waiter = processes.Process(target=_build_slowly, args=(tmp_path, processes.Event(), processes.Semaphore(1)))
    waiter.start()
    os.kill(builder.pid, signal.SIGKILL)
    builder.join()
    waiter.join()  # the lock went with the killed one, and the other built it
    assert waiter.exitcode == 0
    assert torch.equal(KeptEncodings(tmp_path, said.append).get(KEY, SHAPE, never), made())
    assert {path.name for path in tmp_path.iterdir()} == {f"{KEY}.brim"}
