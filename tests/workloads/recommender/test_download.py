import hashlib
import io
import socket
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from brim.errors import DataError
from brim.workloads.recommender import download
from brim.workloads.recommender.download import SOURCES, check_sum, is_there, obtain, unpack

ML_1M = SOURCES["ml-1m"]
CONTENTS = {name: f"{name} é\n".encode("latin-1") for name in ("README", "users.dat", "movies.dat", "ratings.dat")}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def archive_of(members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


ARCHIVE = archive_of({f"ml-1m/{name}": content for name, content in CONTENTS.items()})


@contextmanager
def serving(body, status=200, length=None, answers=True):
    """A server on this machine; gives its ML-1M source, with the sum of ``body``, and the requests it has seen."""
    requests, over = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            if not answers:
                over.wait()
                return
            self.send_response(status)
            if length != "unknown":
                self.send_header("Content-Length", str(length or len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/ml-1m.zip"
        yield replace(ML_1M, url=url, md5=hashlib.md5(body).hexdigest()), requests
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(source, tmp_path, folder="made/for/it"):
    """Obtain what cannot be obtained; gives the sentence, having seen that the disk is as it was."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError) as error:
        obtain(source, tmp_path / folder)
    assert sorted(tmp_path.rglob("*")) == before
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_known_files_are_downloaded_into_the_folder_and_nothing_else_is_left(tmp_path):
    with serving(ARCHIVE) as (source, requests):
        assert obtain(source, tmp_path / "a" / "b") == "downloaded"
    assert requests == ["/ml-1m.zip"]
    assert files_in(tmp_path) == {f"a/b/{name}": content for name, content in CONTENTS.items()}
    assert [path.name for path in tmp_path.rglob(".*")] == []


def test_a_second_time_nothing_is_requested(tmp_path):
    with serving(ARCHIVE) as (source, requests):
        states = [obtain(source, tmp_path) for _ in range(2)]
    assert (states, len(requests)) == (["downloaded", "there"], 1)


def test_data_without_its_readme_is_there(tmp_path):
    for name in ML_1M.required:
        (tmp_path / name).write_text("mine")
    with serving(ARCHIVE) as (source, requests):
        assert obtain(source, tmp_path) == "there"
    assert requests == []
    assert files_in(tmp_path) == dict.fromkeys(ML_1M.required, b"mine")


def test_other_files_in_the_folder_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with serving(ARCHIVE) as (source, _):
        obtain(source, tmp_path)
    assert files_in(tmp_path) == {**CONTENTS, "notes.txt": b"mine"}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_is_in_the_way_is_not_overwritten_and_nothing_is_requested(name, tmp_path):
    (tmp_path / name).write_text("mine")
    with serving(ARCHIVE) as (source, requests):
        assert f"holds {name} and lacks" in refused(source, tmp_path, ".")
    assert requests == []
    assert files_in(tmp_path) == {name: b"mine"}


def test_the_bytes_that_have_arrived_are_told_with_the_total_where_it_is_known(tmp_path):
    for length, total in ((None, len(ARCHIVE)), ("unknown", None)):
        told = []
        with serving(ARCHIVE, length=length) as (source, _):
            obtain(source, tmp_path / str(total), lambda *bytes_, told=told: told.append(bytes_))
        assert told[-1] == (len(ARCHIVE), total)


def test_members_that_would_leave_the_folder_are_never_written(tmp_path):
    absolute = tmp_path / "absolute-evil"
    evil = {"../evil": b"x", "ml-1m/../../evil": b"x", str(absolute): b"x", "ml-1m/other": b"x"}
    known = {f"ml-1m/{name}": content for name, content in CONTENTS.items()}
    with serving(archive_of({**evil, **known})) as (source, _):
        obtain(source, tmp_path / "here")
    assert files_in(tmp_path) == {f"here/{name}": content for name, content in CONTENTS.items()}


def test_a_member_of_the_right_name_elsewhere_in_the_archive_is_not_taken(tmp_path):
    with serving(archive_of({f"../ml-1m/{name}": b"x" for name in CONTENTS})) as (source, _):
        assert "cannot unpack" in refused(source, tmp_path)


def test_what_is_no_archive_is_refused():
    with pytest.raises(DataError, match=r"cannot unpack .*: File is not a zip file; download it by hand from"):
        unpack(ML_1M, b"a login page")


def test_a_damaged_member_is_refused():
    at = ARCHIVE.index(CONTENTS["users.dat"])
    with pytest.raises(DataError, match=r"cannot unpack .*Bad CRC-32"):
        unpack(ML_1M, ARCHIVE[:at] + b"X" + ARCHIVE[at + 1 :])


def test_a_wrong_sum_names_both_and_keeps_nothing(tmp_path):
    with serving(ARCHIVE) as (source, _):
        sentence = refused(replace(source, md5="0" * 32), tmp_path)
    assert "0" * 32 in sentence
    assert source.md5 in sentence


def test_the_right_sum_passes():
    source = replace(ML_1M, md5="d41d8cd98f00b204e9800998ecf8427e")
    check_sum(source, b"")
    with pytest.raises(DataError):
        check_sum(source, b"one byte more")


def test_a_connection_that_ends_early_keeps_nothing(tmp_path):
    with serving(ARCHIVE, length=len(ARCHIVE) + 1000) as (source, _):
        sentence = refused(source, tmp_path)
    assert f"the connection ended after {len(ARCHIVE):,} of {len(ARCHIVE) + 1000:,} bytes" in sentence


def test_without_the_file_on_the_server_the_way_by_hand_is_told(tmp_path):
    with serving(b"gone", status=404) as (source, _):
        sentence = refused(source, tmp_path)
    assert sentence == (
        f"cannot download {source.url}: HTTP 404 Not Found; download it by hand from "
        "https://grouplens.org/datasets/movielens/1m/, unpack it and name its folder: "
        "brim train data.name=ml-1m data.path=FOLDER"
    )


def test_without_a_network_the_way_by_hand_is_told(tmp_path):
    with socket.socket() as unused:  # bound and not listening: a connection is refused
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/ml-1m.zip"
        sentence = refused(replace(ML_1M, url=url), tmp_path)
    assert f"cannot download {url}: Connection refused; download it by hand from {ML_1M.page}" in sentence


def test_a_server_that_does_not_answer_is_not_waited_for_longer_than_the_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT_S", 0.2)
    with serving(ARCHIVE, answers=False) as (source, _):
        assert "no answer in 0.2 s; download it by hand" in refused(source, tmp_path)


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_folder_that_cannot_be_written_is_known_before_the_download(folder, tmp_path):
    (tmp_path / "file").write_text("mine")
    with serving(ARCHIVE) as (source, requests):
        sentence = refused(source, tmp_path, folder)
    assert sentence.startswith(f"cannot write to {tmp_path / folder}: ")
    assert sentence.endswith("name another folder with --to")
    assert requests == []


@pytest.mark.parametrize("step", ["write_bytes", "rename"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "ctrl-c"])
def test_an_error_half_way_through_the_files_leaves_nothing(step, error, tmp_path, monkeypatch):
    plain, calls = getattr(Path, step), []

    def failing(path, *arguments):
        calls.append(path)
        if len(calls) == 3:
            raise error
        return plain(path, *arguments)

    monkeypatch.setattr(Path, step, failing)
    with serving(ARCHIVE) as (source, _), pytest.raises((DataError, KeyboardInterrupt)) as raised:
        obtain(source, tmp_path / "made" / "for it")
    assert len(calls) == 3
    assert isinstance(raised.value, KeyboardInterrupt) or "No space left on device" in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_bytes_arrive_leaves_nothing(tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with serving(ARCHIVE) as (source, _), pytest.raises(KeyboardInterrupt):
        obtain(source, tmp_path / "made", interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_is_not_the_file(tmp_path):
    for name in ML_1M.required:
        (tmp_path / name).mkdir()
    assert not is_there(ML_1M, tmp_path)
