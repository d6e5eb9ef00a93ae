"""Runs as they are read back, without a folder."""

import json
import re
from typing import Any

from brim.record.run_record import RunRecord


def a_record(**parts: Any) -> RunRecord:
    """A run that has written nothing but these parts."""
    empty: dict[str, Any] = {
        "name": "r", "config": "", "model": {}, "series": {}, "events": [], "machine": {}, "result": {},
    }  # fmt: skip
    return RunRecord(**{**empty, **parts})


def data_of(html: str) -> Any:
    """What a page shows, as it stands in its file."""
    found = re.search(r'<script type="application/json" id="run">(.*?)</script>', html, re.S)
    assert found is not None
    return json.loads(found[1])
