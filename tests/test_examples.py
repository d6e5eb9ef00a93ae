"""What we show people runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command import Command

ROOT = Path(__file__).parents[1]
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]


def code_blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.DOTALL)


def run(script: Path, folder: Path) -> str:
    done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readmes_example_runs_and_learns(tmp_path):
    block, *_ = code_blocks(READMES[0], "python")
    script = tmp_path / "example.py"
    script.write_text(block)
    loss = float(re.search(r"'loss': ([\d.]+)", run(script, tmp_path))[1])
    assert loss < 0.3  # the variance of the targets is about 0.5
    assert (tmp_path / "model.pth").exists()


@pytest.mark.slow
def test_the_readmes_forecast_runs_without_a_gpu(tmp_path):
    _, block, *_ = code_blocks(READMES[0], "python")
    script = tmp_path / "example.py"
    script.write_text(block)
    *_, last = run(script, tmp_path).splitlines()
    largest, micro_batch = map(int, last.split())
    assert 1 < largest < 256
    assert 1 < micro_batch <= 256


@pytest.mark.slow
def test_the_readmes_feed_runs_and_says_how_it_reads(tmp_path):
    _, _, block, _ = code_blocks(READMES[0], "python")
    script = tmp_path / "example.py"
    script.write_text(block)
    assert "data: columns" in run(script, tmp_path)
    assert (tmp_path / "cache").is_dir()


@pytest.mark.slow
def test_the_readmes_recommender_runs_as_it_stands_on_movielens_files(tmp_path):
    """On small files in MovieLens's format, with two epochs in the place of fifty."""
    folder = tmp_path / "path" / "to" / "ml-1m"
    folder.mkdir(parents=True)
    users, movies = range(1, 41), range(1, 61)
    lines = {
        "users.dat": [f"{user}::{'FM'[user % 2]}::25::{user % 21}::12345" for user in users],
        "movies.dat": [f"{movie}::Café {movie} (1990)::Comedy|Drama" for movie in movies],
        "ratings.dat": [f"{u}::{m}::{1 + (u * m) % 5}::978300760" for u in users for m in movies if (u + m) % 3],
    }
    for name, rows in lines.items():
        (folder / name).write_text("\n".join(rows) + "\n", encoding="latin-1")
    script = tmp_path / "example.py"
    *_, block = code_blocks(READMES[0], "python")
    script.write_text(block.replace("epochs=50", "epochs=2"))
    run(script, tmp_path)
    assert (tmp_path / "model.pth").exists()
    assert list((tmp_path / "runs").glob("*/report.html"))


def test_the_readmes_show_the_same_commands_and_code():
    for language in ("python", "sh"):
        assert [strip_comments(b) for b in code_blocks(READMES[0], language)] == [
            strip_comments(b) for b in code_blocks(READMES[1], language)
        ]


def strip_comments(block: str) -> str:
    return re.sub(r"\s*#.*", "", block)


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(script, tmp_path):
    assert run(script, tmp_path).strip()


def test_the_example_configuration_is_valid():
    from brim.config import load_config

    assert load_config(ROOT / "examples" / "recommender.yaml").trainer.lr == 3e-3


@pytest.mark.slow
def test_the_classifiers_example_runs_on_pictures_that_it_draws(tmp_path, monkeypatch, capsys):
    pictures = [sys.executable, str(ROOT / "examples" / "pictures.py"), "pictures", "60"]
    subprocess.run(pictures, cwd=tmp_path, check=True)
    command = Command(monkeypatch, capsys)
    for split in ("train", "valid"):
        packed = command(tmp_path, "data", "pack", f"pictures/{split}", f"shards/{split}", "--labels", "folder")
        assert packed.returncode == 0, packed.stderr
    settings = ("trainer.epochs=1", "trainer.run_dir=run", "trainer.device=cpu", "train_ds.num_workers=0")
    done = command(tmp_path, "train", str(ROOT / "examples" / "classifier.yaml"), *settings)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
