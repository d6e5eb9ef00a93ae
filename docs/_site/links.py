"""What the site is made of beside docs/*.md: the first screen of the README, and files that pages link to.

Pages link to files of the repository (``../src/brim/engine/trainer.py``) as people read them there. A site has no files
outside its own folder, so each file that is linked to becomes a page of the site, below ``source/``.
"""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(!?\[[^\]]*\]\()((?!https?:|mailto:|#|/)[^)\s#]+)((?:#[^)]*)?\))")
FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
FIRST_SCREEN = "<!-- the first screen of the README -->"
END_OF_FIRST_SCREEN = "<!-- here the first screen ends -->"
SHOWN = "source/"


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every file outside ``docs`` that a page links to, and for those that such a page links to."""
    waiting = [("docs/" + file.src_uri, file.content_string) for file in files if file.src_uri.endswith(".md")]
    seen: set[str] = set()
    while waiting:
        path, text = waiting.pop()
        for linked in _linked(path, _with_first_screen(text)):
            if linked in seen or linked.startswith("docs/") or not (ROOT / linked).is_file():
                continue
            seen.add(linked)
            content = (ROOT / linked).read_text()
            files.append(File.generated(config, _page(linked), content=_as_page(linked, content)))
            if linked.endswith(".md"):
                waiting.append((linked, content))
    return files


def on_page_markdown(markdown: str, page: Any, **rest: Any) -> str:
    """Let links lead to the pages of the site."""
    uri = page.file.src_uri
    path = _path(uri)
    markdown = _with_first_screen(markdown)
    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _relinked(part, path, uri) for part in parts)


def _with_first_screen(text: str) -> str:
    if FIRST_SCREEN not in text:
        return text
    screen = (ROOT / "README.md").read_text().partition(END_OF_FIRST_SCREEN)[0]
    return text.replace(FIRST_SCREEN, LINK.sub(lambda link: link[1] + _from_docs(link[2]) + link[3], screen))


def _from_docs(target: str) -> str:
    """A target of the README as a page in ``docs`` would write it."""
    return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"


def _linked(path: str, text: str) -> list[str]:
    prose = "".join(part for part in FENCE.split(text) if not part.startswith("```"))
    return [_target(path, link[2]) for link in LINK.finditer(prose)]


def _target(path: str, link: str) -> str:
    """The file in the repository that a link of the file at ``path`` leads to."""
    return normpath(str(PurePosixPath(path).parent / link))


def _relinked(text: str, path: str, uri: str) -> str:
    def relinked(link: re.Match[str]) -> str:
        target = _target(path, link[2])
        if target.startswith("docs/"):
            place = target.removeprefix("docs/")
        elif (ROOT / target).is_file():
            place = _page(target)
        elif (ROOT / target).is_dir():  # a folder has no page
            return link[0].partition("](")[0].removeprefix("[")
        else:
            return link[0]  # mkdocs tells of links that lead nowhere
        return link[1] + relpath(place, str(PurePosixPath(uri).parent)) + link[3]

    return LINK.sub(relinked, text)


def _page(path: str) -> str:
    return SHOWN + (path if path.endswith(".md") else f"{path}.md")


def _path(uri: str) -> str:
    """The file in the repository that a page was made of."""
    if not uri.startswith(SHOWN):
        return f"docs/{uri}"
    whole = uri.removeprefix(SHOWN)
    return whole if (ROOT / whole).is_file() else whole.removesuffix(".md")


def _as_page(path: str, content: str) -> str:
    if path.endswith(".md"):
        return content
    kind = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json"}.get(Path(path).suffix, "text")
    fence = "`" * 5
    return (
        f"---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n# {path}\n\n{fence}{kind}\n{content.rstrip()}\n{fence}\n"
    )
