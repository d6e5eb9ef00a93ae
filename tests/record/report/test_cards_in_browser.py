"""What the page has of step times, shares, memory, events and plans, and two runs beside each other, in a browser."""

import itertools
import json
import re

import pytest
from helpers.browser import HOSTILE, driven, look_at, needs_browser, on_a_phone

from brim.observe.comparison_page import comparison_page
from brim.record import RunFolder, write_report

pytestmark = needs_browser

GIB = 2**30


def a_whole_run(path, name="", slow=1.0):
    """A run with step times, shares, a forecast, a plan and events; ``name`` goes wherever a text can be."""
    folder = RunFolder.create(path)
    shares = {"share/data_wait": 0.1, "share/copy": 0.1, "share/compute": 0.7, "share/sync": 0.05, "share/launch": 0.05}
    named = {f"share/{name}": 0.0, name: 1.0} if name else {}
    lines = [
        {"time": 100.0 + step / 10, "step": step, "epoch": 1, "loss": slow / step, "memory_reserved": 4 * GIB,
         "step_ms": slow * (80 if step == 77 else 5), "feed/wait_ms": 0.5, **shares, **named}
        for step in range(1, 1_501)
    ]  # fmt: skip
    events = [
        ("device", "on a card"), ("memory", f"out of memory in the backward {name}"), ("resume", f"resuming {name}"),
        ("alert", f"data wait {name}"), ("failed", f"ended with an error: {name}"),
    ]  # fmt: skip
    told = [{"time": 100.0 + 40 * place, "kind": kind, "line": line} for place, (kind, line) in enumerate(events)]
    forecast = {
        "reserved": 5 * GIB, "limit": 6 * GIB, "card": f"H200{name}", "peak_in": f"backward{name}",
        "notes": [f"note {name}"], "parts": {f"activations{name}": 3 * GIB, "parameters": 2 * GIB},
    }  # fmt: skip
    plan = {"micro_batch": 8, "strategy": f"single{name}", "reasons": [f"because {name}"], "advice": [f"or {name}"]}
    folder.write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    folder.write("events.jsonl", "".join(json.dumps(event) + "\n" for event in told))
    folder.write("config.yaml", json.dumps({"trainer": {"lr": slow, f"x{name}": f"{slow}{name}"}}))
    folder.write_json("plan.json", {**plan, "forecast": forecast})
    person = {"who": f"7{name}", "watched": [f"Heat{name}"], "watched_in_all": 40}
    person |= {"recommended": [f"Ran{name}", "Alien"], "found": [1]}
    folder.write_json("recommendations.json", {"people": [person]})
    return folder


def written(page, a, b):
    """The page of two runs, as a file."""
    page.write_text(comparison_page(a.path, b.path))
    return page


CARDS = """
const all = (inside, what) => [...inside.querySelectorAll(what)];
const texts = (found) => found.map((one) => one.textContent);
const card = (name) => all(document, ".card").find((one) => one.querySelector("h2")?.textContent.startsWith(name));
const count = (name, what) => card(name).querySelectorAll(what).length, text = (name) => card(name).textContent;
"""


@pytest.mark.slow
def test_what_some_people_watched_and_would_be_recommended_is_shown(tmp_path):
    script = f"""{CARDS}
      say({{text: text("Recommendations"), found: texts(all(card("Recommendations"), ".found"))}});
    """
    page = driven(write_report(a_whole_run(tmp_path / "run")), script)
    facts = look_at(page, tmp_path / "profile").facts
    assert facts["found"] == ["Alien"]
    assert "7Watched: 1 of 40HeatRecommendedRanAlien" in facts["text"]


def test_step_times_shares_memory_course_and_plan_are_drawn(tmp_path):
    script = f"""{CARDS}
    say({{ bars: count("Step time", "rect.bar"), times: text("Step time"), course: text("Course"), plan: text("Plan"),
          layers: count("Where the time goes", "path.layer"), shares: text("Where the time goes"),
          levels: texts(all(card("Memory"), "text.level")), memory: text("Memory"), marks: count("Course", ".mark"),
          page: document.body.textContent }});"""
    seen = look_at(driven(write_report(a_whole_run(tmp_path / "run")), script), tmp_path / "profile")
    facts = seen.facts
    assert seen.console == [] and seen.requests == set()
    assert facts["bars"] > 5 and "1 step took more than 10 ms, twice the median:step 77: 80 ms" in facts["times"]
    assert facts["layers"] == 5 and "data waitcopysynclaunchcompute" in facts["shares"]
    assert facts["levels"] == ["forecast 5 GiB", "limit 6 GiB"]
    assert "activations 3 GiB" in facts["memory"] and "parameters 2 GiB" in facts["memory"]
    assert facts["marks"] == 5 and "out of memory" in facts["course"] and "alerts and warnings" in facts["course"]
    assert "because" in facts["plan"] and "micro batch8" in facts["plan"]
    assert "Long curves are thinned" in facts["page"]


@pytest.mark.slow
def test_a_data_wait_that_was_worked_out_says_so(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    lines = [{"time": 1.0, "step": step, "epoch": 1, "step_ms": 10.0, "feed/wait_ms": 2.0} for step in (1, 2, 3)]
    folder.write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    script = f"""{CARDS} say({{ shares: text("Where the time goes"), page: document.body.textContent }});"""
    facts = look_at(driven(write_report(folder), script), tmp_path / "profile").facts
    assert "worked out from feed/wait_ms and step_ms" in facts["shares"] and "everything else" in facts["shares"]
    assert "Long curves are thinned" not in facts["page"].split('{"name"')[0]


@pytest.fixture
def pair(tmp_path):
    runs = [a_whole_run(tmp_path / f"<img src=x onerror=window.hacked=1>{n}", HOSTILE, n) for n in (1, 2)]
    return written(tmp_path / "pair.html", *runs)


def test_two_runs_are_on_the_same_axes_and_hostile_text_stays_text(pair, tmp_path):
    script = f"""{CARDS} setTimeout(() => say({{
        hacked: window.hacked === 1, images: document.images.length, scripts: document.scripts.length,
        shown: document.getElementById("page").textContent.split("<script>window.hacked=1").length - 1,
        loss: count("Loss", ".legend button"), histograms: count("Step time", ".plot > svg"),
        axes: all(card("Step time"), "svg").map((one) => texts(all(one, "text")).filter((t) => t.endsWith(" ms"))),
        shares: texts(all(document, "h2")).filter((text) => text.startsWith("Where the time goes")).length,
        settings: text("Settings"), numbers: text("Numbers"), courses: count("Course", ".plot") }}), 500);"""
    seen = look_at(driven(pair, script), tmp_path / "profile")
    facts = seen.facts
    assert seen.console == [] and seen.requests == set()
    assert (facts["hacked"], facts["images"], facts["scripts"]) == (False, 0, 3)
    assert facts["shown"] >= 15
    assert (facts["loss"], facts["histograms"], facts["shares"], facts["courses"]) == (2, 2, 2, 2)
    ticks = [[text for text in axis if "median" not in text] for axis in facts["axes"]]
    assert ticks[0] == ticks[1] != []
    assert "trainer.lr12" in facts["settings"] and "step ms5102" in facts["numbers"]


def test_the_name_of_a_setting_stays_whole_beside_long_values(tmp_path):
    for name, lr in (("a", 0.1), ("b", 0.2)):
        about = {"optimizer": f"AdamW, lr {lr}, betas (0.9, 0.999), weight decay 0.01, eps 1e-8, amsgrad, maximize"}
        a_whole_run(tmp_path / name, slow=lr).write_json("about.json", about)
    page = written(tmp_path / "pair.html", *(RunFolder.open(tmp_path / name) for name in "ab"))
    script = f"""{CARDS} setTimeout(() => say(all(card("Settings"), "th:first-child").map((name) => {{
        const lines = document.createRange();
        lines.selectNodeContents(name);
        return lines.getClientRects().length;
    }})), 500);"""
    assert set(look_at(driven(page, script), tmp_path / "profile").facts) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "pair"])
def test_pages_with_every_part_fit_a_phone(tmp_path, pair, kind):
    page = pair if kind == "pair" else write_report(a_whole_run(tmp_path / "whole", "x" * 60))
    assert on_a_phone(page, tmp_path / "profile") == [390, 390]


ODD = [
    [], [{"step": 1, "loss": 1.0, "step_ms": 3.0, "memory_process": 2**30, "feed/wait_ms": 1.0}],
    [{"step": step, "step_ms": 0.0, "loss": None, "memory_process": None} for step in (1, 2)],
    [{"step": 1, "share/a": None, "share/x": 1.0, "step_ms": 1e-9}, {"step": 2, "share/x": -1.0, "step_ms": 1e12}],
]  # fmt: skip


@pytest.mark.slow
def test_odd_runs_are_drawn_without_a_word_on_the_console(tmp_path):
    """Nothing, one step, no numbers, and numbers that no step has: each alone and beside another."""
    folders = []
    for place, lines in enumerate(ODD):
        folders.append(RunFolder.create(tmp_path / str(place)))
        folders[-1].write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    pages = [write_report(folder) for folder in folders]
    pages += [written(tmp_path / f"{a.path.name}{b.path.name}.html", a, b) for a, b in itertools.pairwise(folders)]
    for place, page in enumerate(pages):
        seen = look_at(page, tmp_path / f"profile{place}")
        assert seen.console == [] and "data-charts=" in seen.dom, page
        assert "NaN" not in re.sub(r"<script.*?</script>", "", seen.dom, flags=re.S), page
