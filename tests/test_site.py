"""The site is built without a warning, and holds what is public."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import brim

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_pages_of_the_reference_show_public_names_once():
    pages = (path.read_text() for path in DOCS.glob("reference/*.md"))
    shown = [name for page in pages for name in re.findall(r"^::: brim\.(\w+)$", page, re.MULTILINE)]
    assert len(set(shown)) == len(shown) > 20
    assert set(shown) <= set(brim.__all__)


def test_the_page_of_commands_has_every_option(monkeypatch):
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(str(DOCS / "_site"))
    import commands

    page = commands.commands_page()
    assert "## brim train\n" in page and "### brim runs compare\n" in page
    assert all(f"`{option}" in page for option in ("--slurm", "--show-config", "--card NAME", "--apply"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as ``make docs`` does it, where a warning is an error: links, anchors, arguments, pages without a place."""
    for package in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page_and_every_argument_of_the_trainer(site):
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.glob("**/*.md")} - {"index"}
    assert [page for page in pages if not (site / page / "index.html").exists()] == []
    trainer = (site / "reference" / "trainer" / "index.html").read_text()
    reference = " ".join(page.read_text() for page in site.glob("reference/**/index.html"))
    assert [name for name in brim.__all__ if f'id="brim.{name}"' not in reference] == []
    arguments = inspect.signature(brim.Trainer).parameters
    assert [name for name in arguments if f"<code>{name}</code>" not in trainer] == []


@pytest.mark.slow
def test_files_that_pages_link_to_are_pages_and_nothing_is_loaded_from_elsewhere(site):
    assert "import argparse" in re.sub("<[^>]+>", "", (site / "source/benchmarks/step.py/index.html").read_text())
    loaded = re.compile(r'(?:<script[^>]*\bsrc|<link[^>]*\bhref)="(https?:[^"]*)"')
    assert [url for page in site.glob("*/index.html") for url in loaded.findall(page.read_text())] == []


@pytest.mark.slow
def test_a_chinese_page_says_so_and_a_page_has_one_place_in_the_navigation(site):
    chinese = {
        page.parent.relative_to(site).as_posix() for page in site.glob("**/index.html") if _language(page) != "en"
    }
    assert chinese == {"tutorial.zh-CN", "source/README.zh-CN"}
    places = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(set(places)) == len(places) > 40


def _language(page: Path) -> str:
    found = re.search(r'<html lang="([^"]*)"', page.read_text())
    assert found is not None, page
    return found[1]
