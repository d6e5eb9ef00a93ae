import hashlib
import io
import json
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from helpers.command import brim

from brim.workloads.recommender import download

ML_1M = download.SOURCES["ml-1m"]


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def requests(monkeypatch):
    """ML-1M comes from a server on this machine; gives the requests it has seen."""
    packed, seen = io.BytesIO(), []
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ML_1M.files:
            archive.writestr(f"ml-1m/{name}", name)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            self.send_response(200 if self.path == "/ml-1m.zip" else 404)
            self.end_headers()
            self.wfile.write(packed.getvalue())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/ml-1m.zip"
    come_from(monkeypatch, url=url, md5=hashlib.md5(packed.getvalue()).hexdigest())
    yield seen
    server.shutdown()
    thread.join()
    server.server_close()


def come_from(monkeypatch, **changes):
    monkeypatch.setitem(download.SOURCES, "ml-1m", replace(download.SOURCES["ml-1m"], **changes))


def test_data_is_downloaded_and_its_origin_licence_and_use_are_told(requests, monkeypatch, capsys, tmp_path):
    assert brim(["data", "ml-1m"], monkeypatch) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for fact in ("1,000,209 ratings of 6,040 users on 3,706 movies", download.SOURCES["ml-1m"].url, ML_1M.page,
                 "research only", "Harper and Konstan"):  # fmt: skip
        assert fact in out
    assert out.endswith("Now in data/ml-1m; train on it: brim train data.name=ml-1m data.path=data/ml-1m\n")
    assert sorted(path.name for path in (tmp_path / "data" / "ml-1m").iterdir()) == sorted(ML_1M.files)


def test_the_published_address_and_sum_are_the_ones_used():
    assert ML_1M.url == "https://files.grouplens.org/datasets/movielens/ml-1m.zip"
    assert ML_1M.md5 == "c4d9eecfca2ab87c1945afe126590906"


def test_data_that_is_there_is_not_requested(requests, monkeypatch, capsys, tmp_path):
    for name in ML_1M.required:
        (tmp_path / name).write_text("mine")
    assert brim(["data", "ml-1m", "--to", "."], monkeypatch) == 0
    assert capsys.readouterr().out.endswith("Already in .; train on it: brim train data.name=ml-1m data.path=.\n")
    assert requests == []


def test_json_is_one_object_and_says_whether_it_was_there(requests, monkeypatch, capsys):
    for state in ("downloaded", "there"):
        assert brim(["data", "ml-1m", "--to", "a b", "--json"], monkeypatch) == 0
        out, err = capsys.readouterr()
        assert json.loads(out) == {"name": "ml-1m", "folder": "a b", "url": download.SOURCES["ml-1m"].url,
                                   "licence": ML_1M.licence, "state": state}  # fmt: skip
        assert (out.count("\n"), err) == (1, "")


def test_an_unknown_name_is_answered_with_the_nearest(requests, monkeypatch, capsys, tmp_path):
    assert brim(["data", "ml1m"], monkeypatch) == 2
    assert capsys.readouterr() == ("", "brim: NAME='ml1m' is not known; did you mean 'ml-1m'?\n")
    assert (requests, list(tmp_path.iterdir())) == ([], [])


def test_a_word_that_is_nothing_is_answered_with_the_choices(requests, monkeypatch, capsys):
    assert brim(["data", "nonsense"], monkeypatch) == 2
    assert capsys.readouterr() == ("", "brim: NAME='nonsense' is not known; use 'pack', 'ml-1m'\n")


def test_no_word_is_answered_with_the_choices(requests, monkeypatch, capsys):
    assert brim(["data"], monkeypatch) == 2
    sentence = "brim: Name the data (ml-1m), or a command (pack SOURCE OUT). Try brim data --help.\n"
    assert capsys.readouterr() == ("", sentence)


def test_help_shows_names_and_commands(requests, monkeypatch, capsys):
    assert brim(["data", "--help"], monkeypatch) == 0
    out = capsys.readouterr().out
    for word in ("brim data ml-1m", "download", "pack"):
        assert word in out


def test_options_may_stand_before_the_name(requests, monkeypatch, capsys):
    for arguments in (["--to", "x", "--json", "ml-1m"], ["download", "ml-1m", "--to", "x", "--json"]):
        assert brim(["data", *arguments], monkeypatch) == 0
        assert json.loads(capsys.readouterr().out)["folder"] == "x"


def test_pack_behind_options_is_answered_with_how_to_write_it(requests, monkeypatch, capsys):
    assert brim(["data", "--json", "pack"], monkeypatch) == 2
    assert "write brim data pack SOURCE OUT" in capsys.readouterr().err


def test_a_failed_download_is_one_sentence_and_leaves_nothing(requests, monkeypatch, capsys, tmp_path):
    come_from(monkeypatch, url=download.SOURCES["ml-1m"].url + ".gone")
    assert brim(["data", "ml-1m", "--json"], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("brim: cannot download ")
    assert f"HTTP 404 Not Found; download it by hand from {ML_1M.page}" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_sum_is_one_sentence_and_leaves_nothing(requests, monkeypatch, capsys, tmp_path):
    come_from(monkeypatch, md5=ML_1M.md5)
    assert brim(["data", "ml-1m", "--json"], monkeypatch) == 2
    err = capsys.readouterr().err
    assert ML_1M.md5 in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_written_is_one_sentence(requests, monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert brim(["data", "ml-1m", "--to", "file/x", "--json"], monkeypatch) == 2
    err = capsys.readouterr().err
    assert err == "brim: cannot write to file/x: Not a directory; name another folder with --to\n"
    assert requests == []


def test_ctrl_c_says_that_nothing_was_kept(requests, monkeypatch, capsys, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "unpack", interrupted)
    assert brim(["data", "ml-1m", "--json"], monkeypatch) == 130
    assert capsys.readouterr() == ("", "brim: stopped by Ctrl-C; nothing of ml-1m was kept\n")
    assert list(tmp_path.iterdir()) == []


def test_the_bar_is_on_stderr_of_a_terminal_only(requests, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    assert brim(["data", "ml-1m", "--json"], monkeypatch) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["state"] == "downloaded"
    assert "ml-1m" in err


def test_help_does_not_wait_for_torch():
    program = (
        "import sys\n"
        "from brim.cli.main import main\n"
        "sys.argv = ['brim', 'data', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as exit:\n"
        "    assert exit.code == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
