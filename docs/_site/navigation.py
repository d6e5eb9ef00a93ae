"""A page that mkdocs.yml does not name yet has a place all the same: at the end of the how-to pages."""

from pathlib import Path
from typing import Any

SECTION = "How to"


def on_config(config: Any) -> Any:
    named = set(_named(config.nav))
    pages = sorted(path.name for path in Path(config.docs_dir).glob("*.md") if path.name not in named)
    if pages:
        section = next(part[SECTION] for part in config.nav if SECTION in part)
        section.append({"More": pages})
    return config


def _named(nav: Any) -> list[str]:
    """All pages of a navigation, however deep."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in _named(part)]
