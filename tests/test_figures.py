"""``benchmarks/figures.py``: the figures of README and docs are those of the results, and a changed one is noticed."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def check(root: Path) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "figures.py"), "--root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the figures are in and come from, to be changed."""
    for readme in ROOT.glob("README*.md"):
        shutil.copy(readme, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "benchmarks" / "results", tmp_path / "benchmarks" / "results")
    for name in ("figures.toml", "page.template.md"):
        shutil.copy(ROOT / "benchmarks" / name, tmp_path / "benchmarks")
    return tmp_path


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_the_figures_of_readme_and_docs_are_those_of_the_results() -> None:
    code, said = check(ROOT)
    assert code == 0, said


def test_a_figure_that_was_changed_by_hand_is_noticed(copy: Path) -> None:
    speed_up = json.loads((copy / "benchmarks" / "results" / "ranks-2-cores.json").read_text())["speed_up"]
    replace(copy / "docs" / "ranks.md", f"were {speed_up:.2f} times as fast", "were 1.99 times as fast")
    code, said = check(copy)
    assert code == 1
    assert "docs/ranks.md: not there" in said and f"were {speed_up:.2f} times as fast" in said


def test_another_result_makes_its_figures_wrong_wherever_they_are(copy: Path) -> None:
    file = copy / "benchmarks" / "results" / "feed-2-cores.json"
    found = json.loads(file.read_text())
    found["columns"]["ratios"]["brim.Loader, a tuple of tensors"] = 1000.0
    file.write_text(json.dumps(found))
    code, said = check(copy)
    assert code == 1
    assert {line.partition(":")[0] for line in said.splitlines() if "1000" in line} == {
        "README.md", "README.zh-CN.md", "docs/feed.md"
    }  # fmt: skip


@pytest.mark.parametrize("figure", ["17x", "1.07", "12,345", "3.4 %", "5 ms", "20 k"])
def test_a_figure_in_a_table_that_comes_from_nowhere_is_noticed(copy: Path, figure: str) -> None:
    with (copy / "docs" / "cache.md").open("a") as page:
        page.write(f"\n| what | how fast |\n|---|---|\n| reading | {figure} |\n")
    code, said = check(copy)
    assert code == 1
    assert f"{figure!r} has no source" in said


def test_names_and_counts_in_tables_are_no_figures(copy: Path) -> None:
    with (copy / "docs" / "cache.md").open("a") as page:
        page.write("\n| what | |\n|---|---|\n| GPT-2 124M, LSTM 64 x 2, 3 ranks, H200 | `timeout=1.5` |\n")
    assert check(copy)[0] == 0


def test_the_chinese_readme_has_the_numbers_of_the_english_one(copy: Path) -> None:
    replace(copy / "README.zh-CN.md", "30 步", "31 步")
    code, said = check(copy)
    assert code == 1
    assert "in README.zh-CN.md" in said


def test_a_result_that_is_not_listed_is_noticed(copy: Path) -> None:
    (copy / "benchmarks" / "results" / "new.json").write_text("{}")
    code, said = check(copy)
    assert code == 1
    assert "does not list new.json" in said and "which code new.json measures" in said


def test_a_page_that_is_not_what_its_template_and_the_results_make_is_noticed(copy: Path) -> None:
    replace(copy / "docs" / "benchmarks.md", "# Benchmarks", "# Our benchmarks")
    assert check(copy) == (1, "docs/benchmarks.md is not what the results make of it: run python benchmarks/page.py\n")


def test_the_page_says_where_and_when_each_of_its_results_was_measured() -> None:
    origins = re.findall(r"`(\S+\.json)`: ([^;\n]*)", (ROOT / "docs" / "benchmarks.md").read_text())
    assert len(origins) > 5
    assert [name for name, origin in origins if not re.search(r"torch \d.*, 20\d\d-\d\d-\d\d", origin)] == []


def test_a_result_that_does_not_say_where_it_was_measured_is_not_named_as_an_origin(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from figure_values import machine

    assert machine("a.json", {"truth": {"card": "L4", "torch": "2.11", "date": "2026-01-02"}}).endswith(
        "L4, torch 2.11, 2026-01-02"
    )
    with pytest.raises(ValueError, match=r"b\.json says neither where nor when"):
        machine("b.json", {"cases": []})


def test_a_result_of_a_commit_that_this_clone_does_not_have_is_told_in_its_row(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)

    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    (results / "lost.json").write_text('{"commit": "0123abc"}')
    (results / "old.json").write_text("{}")
    (tmp_path / "code.py").write_text("one")
    named = '"lost.json" = "code.py"\n"old.json" = "code.py"\n'
    (tmp_path / "benchmarks" / "figures.toml").write_text(f"[values]\n[code]\n{named}")
    git("init")
    for text in ("one", "two"):
        (tmp_path / "code.py").write_text(text)
        git("add", ".")
        git("commit", "-m", text)
    command = [sys.executable, str(ROOT / "benchmarks" / "figures.py"), "--older", "--root", str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    lost, old = done.stdout.splitlines()
    assert lost == "lost.json: of 0123abc, a commit that this clone does not have, so what changed since is not known"
    assert old.startswith("old.json: of ") and old.endswith("; commits to code.py since: 1")


@pytest.mark.parametrize("where", ["ON_CPU", "ON_GPU"])
def test_what_make_bench_runs_is_there_and_takes_its_options(where: str, soaking: None) -> None:
    import run_all

    for benchmark in getattr(run_all, where):
        script, *arguments = benchmark.command.split()
        text = (ROOT / "benchmarks" / script).read_text()
        assert all(f'"{option}"' in text for option in arguments if option.startswith("--")), benchmark.name
