"""A real browser that looks at a page: what it draws, says on the console and asks of the network."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-sync", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # Chromium itself would call home
)  # fmt: skip

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


@dataclass(frozen=True)
class Seen:
    """What a page came to: its elements, what it said on the console, what was asked of the network, found facts."""

    dom: str
    console: list[str]
    requests: set[str]

    @property
    def facts(self):
        return json.loads(html.unescape(re.search(r'data-facts="([^"]*)"', self.dom)[1]))


def look_at(page, profile, fragment=""):
    log = profile / "net.json"
    profile.mkdir()
    done = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={profile}", f"--log-net-log={log}", page.as_uri() + fragment],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    # What a page asks for has an origin as its initiator, and what the browser asks for of its own has none.
    asked = [line for line in log.read_text(errors="replace").splitlines() if '"initiator":' in line]
    by_page = "\n".join(line for line in asked if '"initiator":"not an origin"' not in line)
    requests = set(re.findall(r'"url":"((?:https?|wss?)://[^"]+)"', by_page))
    return Seen(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line], requests)


def driven(page, script, name="driven.html"):
    """A copy of ``page`` without its policy, so that it is the page's own care that is tested, and with ``script``."""
    text = re.sub(r"<meta http-equiv[^>]*>", "", page.read_text())
    say = "const say = (facts) => { document.documentElement.dataset.facts = JSON.stringify(facts); };"
    copy = page.with_name(name)
    copy.write_text(text.replace("</body>", f"<script>{{{say}{script}}}</script></body>"))
    return copy


def on_a_phone(page, profile, width=390):
    """How wide the page came out, and its window: a frame, as a headless window is at least 500 wide."""
    driven(page, """parent.postMessage([document.documentElement.scrollWidth, innerWidth], "*");""", "framed.html")
    outer = page.with_name("phone.html")
    outer.write_text(
        f"""<script>
        addEventListener("message", ({{data}}) => document.documentElement.dataset.facts = JSON.stringify(data));
        </script><iframe src="framed.html" style="width: {width}px; height: 800px; border: 0"></iframe>"""
    )
    return look_at(outer, profile).facts
