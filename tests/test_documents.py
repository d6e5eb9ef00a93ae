"""What documents point to is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)(?:#[^)]*)?\)")
ROOMS = "cli|config|doctor|bench|engine|observe|record|data|speed_up|memory|hardware|sensors|tests|benchmarks"
FILE = re.compile(rf"`((?:{ROOMS})/[\w/.]*)`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document):
    broken = [link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()]
    assert broken == []


def test_every_file_of_the_repository_that_a_page_names_is_there():
    named = re.compile(r"`((?:tests|src|benchmarks|examples|docs)/[\w./-]+)`")
    found = [(page.name, path) for page in DOCUMENTS for path in named.findall(page.read_text())]
    assert len(found) > 50
    assert [pair for pair in found if not (ROOT / pair[1]).exists()] == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_file_that_the_map_names_is_there(name):
    named = FILE.findall((ROOT / name).read_text())
    assert len(named) > 10
    assert [path for path in named if not (ROOT / "src/brim" / path).exists() and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("room", sorted({str(path.parent.relative_to(ROOT)) for path in ROOT.glob("src/brim/**/*.py")}))
def test_every_room_says_what_it_is_for_and_is_not_crowded(room):
    folder = ROOT / room
    assert (folder / "__init__.py").read_text().startswith('"""')
    assert len(list(folder.glob("*.py"))) <= 16
