"""A page as one file: template, style, script and data, and nothing that would have to be fetched."""

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

# In this order: what one of them names is in those before it.
PARTS = ("elements.js", "numbers.js", "chart.js", "histogram.js", "timeline.js", "cards.js")
ONE_RUN, TWO_RUNS = "run.js", "pair.js"


def render(data: dict[str, Any], page: str = ONE_RUN) -> str:
    """The page of ``data``. Only the page's own script may run, and nothing may be fetched: its policy says so."""
    folder = files("brim.record") / "page"
    style = (folder / "page.css").read_text(encoding="utf-8")
    script = "".join((folder / name).read_text(encoding="utf-8") for name in (*PARTS, page))
    parts = {
        "policy": f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}",
        "style": style,
        "script": script,
        # Without a "<" no text of the run can end the block that it stands in, or open another.
        "data": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    }
    # In one pass, so that a run that mentions a placeholder is not filled in.
    template = (folder / "template.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
