"""The report in a real browser: it draws, stays silent, asks nobody, and takes no text of a run for markup."""

import json
import re

import pytest
from helpers.browser import HOSTILE, driven, look_at, needs_browser, on_a_phone

from brim.record import RunFolder, write_report

pytestmark = needs_browser

EVALUATION = {"eval/ndcg@10": 0.1, "eval/ndcg@20": 0.2, "eval/recall@10": 0.3}
MEMORY = {"memory_allocated": 3 * 2**30, "memory_reserved": 4 * 2**30}


def a_run(path, name=""):
    """A run folder with all that a page can show; ``name`` goes wherever a text can be."""
    folder = RunFolder.create(path)
    lines = []
    for step in range(1, 401):
        numbers = {"loss": 2.0 / step, "lr": 1e-3, "samples_per_second": 1e5, **MEMORY}
        lines.append({"time": 100.0 + step, "step": step, "epoch": 1 + step // 100, **numbers})
    lines[200]["loss"] = None
    lines.extend({"time": 600.0, "step": step, "epoch": 4, **EVALUATION} for step in (400, 500))
    if name:
        lines[-1] |= {f"eval/{name}@1": 0.5, name: 1.0, f"memory_{name}": 2**30}
    folder.write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    folder.write("events.jsonl", json.dumps({"time": 100.0, "kind": f"note{name}", "line": f"hello {name}"}) + "\n")
    folder.write("config.yaml", f"workload: 'recommender {name}'\n# verbatim\n")
    folder.write_json("model.json", {"model": f"BPR{name}"})
    folder.write_json("machine.json", {f"cores{name}": f"2{name}"})
    table = {f"BPR{name}": {f"ndcg@10{name}": 0.25}, "popularity": {f"ndcg@10{name}": 0.125}}
    folder.write_json("result.json", {"steps": 500, "epochs": 4, "ended": f"done{name}", "table": table})
    return write_report(folder)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    return look_at(a_run(folder / "run-7"), folder / "profile")


def test_a_page_opens_without_a_word_on_the_console_and_asks_nobody(seen):
    assert seen.console == []
    assert seen.requests == set()


def test_the_browser_tells_when_a_page_does_fetch_or_complain(tmp_path):
    """The two checks above can fail."""
    page = tmp_path / "bad.html"
    page.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.warn('trouble')</script>")
    bad = look_at(page, tmp_path / "profile")
    assert "http://127.0.0.1:9/x.png" in bad.requests
    assert any("trouble" in line for line in bad.console)


def test_a_page_shows_all_that_the_run_has(seen):
    assert 'data-charts="5"' in seen.dom
    assert "<title>run-7 · brim</title>" in seen.dom
    for chart in ("Loss", "Evaluation", "Learning rate", "Samples a second", "Memory"):
        assert f'aria-label="{chart}: a chart' in seen.dom
    body = seen.dom.split('<script type="application/json"')[0]
    assert len(re.findall(r'<path class="curve', body)) >= 8  # two of ndcg, two of memory, the loss in two pieces
    for text in (
        "✓ done",
        "popularity",
        "0.1250",
        '4<span class="unit"> GiB',
        "best 0.1",
        "hello",
        "# verbatim",
        "cores",
    ):
        assert text in body


def test_hostile_text_stays_text(tmp_path):
    folder = tmp_path / "<img src=x onerror=window.hacked=1>"
    script = """setTimeout(() => say({
        hacked: window.hacked === 1, images: document.images.length, scripts: document.scripts.length,
        shown: document.getElementById("page").textContent.split("<script>window.hacked=1").length - 1,
        title: document.title, charts: document.querySelectorAll("svg").length}), 500);"""
    seen = look_at(driven(a_run(folder, HOSTILE), script), tmp_path / "profile")
    assert (seen.facts["hacked"], seen.facts["images"], seen.facts["scripts"]) == (False, 0, 3)
    assert seen.facts["title"] == f"{folder.name} · brim"
    assert seen.facts["charts"] == 6
    assert seen.facts["shown"] >= 10  # ending, model, workload, table, metrics, memory, event, configuration, machine
    assert seen.console == []


@pytest.mark.slow
def test_the_page_of_an_empty_run_says_so(tmp_path):
    seen = look_at(write_report(RunFolder.create(tmp_path / "run")), tmp_path / "profile")
    assert seen.console == []
    assert 'data-charts="0"' in seen.dom
    assert "This run has not written any numbers yet." in seen.dom.split('<script type="application/json"')[0]


@pytest.mark.slow
def test_a_page_answers_keys_buttons_and_its_address(tmp_path):
    script = """
    const all = (selector) => [...document.querySelectorAll(selector)], one = (selector) => all(selector)[0];
    const ticks = () => all("svg")[0].textContent, facts = { theme: document.documentElement.dataset.theme };
    const press = (key) => all("svg")[0].dispatchEvent(new KeyboardEvent("keydown", { key }));
    press("Home"); facts.first = one(".tip").textContent;
    press("ArrowRight"); facts.second = one(".tip").textContent;
    press("Escape"); facts.closed = one(".tip").hidden;
    const box = all("svg")[0].getBoundingClientRect();
    all("svg")[0].dispatchEvent(new PointerEvent("pointermove", { clientX: box.right, clientY: box.top + 9 }));
    facts.hovered = one(".tip").textContent;
    facts.linear = ticks(); one(".log").click(); facts.log = ticks();
    const evaluation = all(".card").find((card) => card.querySelector("h2")?.textContent === "Evaluation");
    facts.ndcg = evaluation.querySelectorAll(".curve").length;
    evaluation.querySelector(".legend button").click(); facts.hidden = evaluation.querySelectorAll(".curve").length;
    [...evaluation.querySelectorAll(".choice button")].find((button) => button.textContent === "recall").click();
    facts.recall = evaluation.querySelectorAll(".curve").length;
    one(".theme").click(); facts.toggled = document.documentElement.dataset.theme;
    say(facts);"""
    seen = look_at(driven(a_run(tmp_path / "run"), script), tmp_path / "profile", "#dark")
    facts = seen.facts
    assert seen.console == []
    assert (facts["theme"], facts["toggled"]) == ("dark", "light")
    assert facts["first"].startswith("step 1 · epoch 1 · 1.0 straining2")
    assert facts["second"].startswith("step 2 · epoch 1 · 2.0 straining1")
    assert facts["closed"] is True
    assert facts["hovered"].startswith("step 400 · epoch 5 · 6 min 40 straining0.005")
    assert "0.01" not in facts["linear"] and "0.01" in facts["log"]
    assert (facts["ndcg"], facts["hidden"], facts["recall"]) == (2, 1, 1)


@pytest.mark.slow
def test_a_page_fits_a_phone(tmp_path):
    assert on_a_phone(a_run(tmp_path / "run"), tmp_path / "profile", 360) == [360, 360]


def test_a_failed_run_says_why_and_how_to_go_on_at_the_top_and_losses_share_a_chart(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    (folder.checkpoints / "step-000000002").mkdir()
    lines = [{"time": 1.0 + step, "step": step, "epoch": 1, "loss": 1.0, "eval/loss": 2.0} for step in (1, 2)]
    folder.write("metrics.jsonl", "".join(json.dumps({**line, "eval/accuracy": 0.5}) + "\n" for line in lines))
    folder.write("events.jsonl", json.dumps({"time": 9.0, "kind": "failed", "line": f"it broke {HOSTILE}"}) + "\n")
    folder.write_json("about.json", {"model": "Net", "command": f"train.py {HOSTILE}"})
    script = """
    const cards = [...document.querySelectorAll(".card")];
    const chart = (name) => cards.find((card) => card.querySelector("h2")?.textContent.startsWith(name));
    say({ first: cards[0].textContent, loss: chart("Loss").querySelectorAll(".legend button").length,
          evaluation: chart("Evaluation").querySelector("h2").textContent, run: chart("Run").textContent,
          keys: document.querySelector(".keys").textContent });"""
    seen = look_at(driven(write_report(folder), script), tmp_path / "profile")
    assert seen.facts["first"].startswith("it broke <") and f'fit(resume="{folder.path}")' in seen.facts["first"]
    assert "Steps2" in seen.facts["keys"] and "an epoch" not in seen.facts["keys"]  # it ended within the first one
    assert seen.facts["loss"] == 2
    assert seen.facts["evaluation"] == "Evaluationaccuracy"
    assert "Net" in seen.facts["run"] and "<script>" in seen.facts["run"]
