"""What README and docs show is run as it stands, a page at a time; what cannot be says why."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from helpers.document_code import CodeBlock, brim_arguments, code_blocks, commands, unknown_options, without_comments
from helpers.document_names import ALWAYS, BESIDE

from brim.cli.main import app
from brim.config import load_config

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")])
READMES = sorted(ROOT.glob("README*.md"))  # whose Python is run by test_examples.py
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *PAGES]
TRANSLATED = {"tutorial.zh-CN.md": "tutorial.md", "README.zh-CN.md": "README.md"}
# Blocks that say why they are not run: a change of this number is a decision, not an accident.
NOT_RUN = 6
SLOW = {"notebooks.md", "recommender.md", "transformers.md", "tutorial.md"}


def blocks(document: Path, language: str) -> list[CodeBlock]:
    return [block for block in code_blocks(document) if block.language == language]


def with_python() -> list[Any]:
    pages = [page for page in PAGES if page.name not in TRANSLATED]
    run = [page for page in pages if any(not block.not_run for block in blocks(page, "python"))]
    return [pytest.param(page, marks=pytest.mark.slow if page.name in SLOW else ()) for page in run]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads that share busy cores wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="pages are run on a CPU, as most readers try them")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("page", with_python(), ids=lambda path: path.name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    """In order, in one namespace, from files: brim looks at the source of functions that it is handed."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    prepared = [ALWAYS, BESIDE.get(page.name, "")]
    shown = [block for block in blocks(page, "python") if not block.not_run]
    for number, code in enumerate([*prepared, *("\n" * (block.line - 1) + block.code for block in shown)]):
        file = tmp_path / f"{page.stem}-{number}.py"
        file.write_text(code)
        exec(compile(code, file, "exec"), namespace)


def test_as_many_blocks_as_expected_are_not_run_and_each_says_why():
    left_out = [
        (page.name, block.line, block.not_run)
        for page in DOCUMENTS
        for block in code_blocks(page)
        if block.not_run is not None
    ]
    assert len(left_out) == NOT_RUN, left_out
    assert all(len(why) > 10 for _, _, why in left_out)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_is_in_a_language_that_is_checked(document):
    known = {"python", "sh", "yaml", "diff", "text", ""}  # the last three: what is printed, and diffs
    shown = code_blocks(document)
    assert {block.language for block in shown} <= known
    assert [block for block in shown if not block.language and block.code.startswith(("brim ", "pip ", "make "))] == []


@pytest.mark.parametrize("document", [one for one in DOCUMENTS if blocks(one, "sh")], ids=lambda path: path.name)
def test_commands_and_options_are_there(document):
    program = typer.main.get_command(app)
    targets = (ROOT / "Makefile").read_text()
    for block in blocks(document, "sh"):
        for words in commands(block.code):
            if (arguments := brim_arguments(words)) is not None:
                assert unknown_options(program, arguments) == [], words
            elif words[0] == "make":
                assert f"\n{words[1]}:" in targets or f"\n{words[1]} " in targets, words
            elif words[0].endswith("python") and words[1].startswith("benchmarks/"):
                text = (ROOT / words[1]).read_text()
                assert [word for word in words if word.startswith("--") and f'"{word}"' not in text] == []


def test_an_option_or_a_command_that_is_not_there_would_be_noticed():
    program = typer.main.get_command(app)
    assert unknown_options(program, ["train", "--epochs", "3"]) == ["--epochs"]
    assert unknown_options(program, ["trian"]) == ["trian"]
    assert unknown_options(program, ["runs", "compare", "a", "b", "--jsn"]) == ["--jsn"]
    assert unknown_options(program, ["doctor", "a.py", "--", "--epochs", "3"]) == []


@pytest.mark.parametrize("document", [one for one in DOCUMENTS if blocks(one, "yaml")], ids=lambda path: path.name)
def test_a_configuration_is_valid(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks(document, "yaml"):
        file = tmp_path / "shown.yaml"
        file.write_text(block.code)
        assert load_config(file)


@pytest.mark.parametrize("name", TRANSLATED)
def test_a_translation_shows_the_same_code(name):
    theirs, ours = (ROOT / folder for folder in (name, TRANSLATED[name]))
    if not theirs.exists():
        theirs, ours = ROOT / "docs" / name, ROOT / "docs" / TRANSLATED[name]
    for language in ("python", "sh", "diff", "yaml"):
        assert [without_comments(block.code) for block in blocks(theirs, language)] == [
            without_comments(block.code) for block in blocks(ours, language)
        ]


@pytest.mark.parametrize("document", [*READMES, ROOT / "docs" / "plain-loop.md"], ids=lambda path: path.name)
def test_the_diff_of_a_loop_is_that_of_the_example(document):
    _, _, *expected = (ROOT / "examples" / "plain_loop.diff").read_text().splitlines()
    shown = [line for block in blocks(document, "diff") for line in block.code.splitlines()]
    changed = [line for line in expected if line[:1] in ("+", "-") and len(line) > 1]
    assert [line for line in shown if line[:1] in ("+", "-") and len(line) > 1] == changed
