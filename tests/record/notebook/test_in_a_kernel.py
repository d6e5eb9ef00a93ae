"""A notebook of a few cells in a real kernel: it trains, evaluates, shows the result, is interrupted and goes on."""

import re

import pytest
from helpers.kernel import kernel

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
pytestmark = pytest.mark.slow  # a kernel that imports torch

SETUP = """
import brim, torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(64, 4)
data = brim.Loader((x, x.sum(1, keepdim=True)), batch_size=8)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
def trainer(folder, **settings):
    chosen = {"epochs": 40, "device": "cpu", "threads": 1, "loggers": False, "loss_fn": nn.MSELoss(), **settings}
    return brim.Trainer(model, data, (x, x.sum(1, keepdim=True)), run_dir=folder, **chosen)
"""
LONG = """
class Says(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        if step == 5:
            print("five steps")
stopped = trainer("runs/long", epochs=10**6, callbacks=[Says()])
stopped.fit()
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with kernel(tmp_path_factory.mktemp("notebook")) as running:
        yield running


def test_a_notebook_has_one_output_for_a_training_and_a_card_for_its_result(running):
    cells = [SETUP, "result = trainer('runs/a').fit()", "again = trainer('runs/b', epochs=1).fit()", "result"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(book, km=running.manager, timeout=None)
    client.kc = running.client
    for place, cell in enumerate(book.cells):
        client.execute_cell(cell, place)
    setup, fit, again, shown = (cell.outputs for cell in book.cells)
    assert setup == [] and [len(fit), len(again), len(shown)] == [1, 1, 1]
    text = fit[0].data["text/plain"]
    assert "epoch 40: loss" in text and "done: 320 steps" in text and len(text.splitlines()) == 16
    assert "earlier lines are in log.txt" in text and "warning" not in text
    assert "done: 8 steps" in again[0].data["text/plain"]
    card = shown[0].data["text/html"]
    assert card.count("<svg") == 1 and card.count("<polyline") == 2 and "<td" in card and "<script" not in card
    assert shown[0].data["text/plain"].startswith("Result(run=")


def test_the_bar_is_drawn_within_the_one_output(running):
    running.run(SETUP)
    seen = []
    outputs = running.run(
        "trainer('runs/c', epochs=2).fit();", lambda output: seen.append(output.get("data", {}).get("text/html", ""))
    )
    assert [output["kind"] for output in outputs] == ["display_data"]
    assert any("width:" in html and "/16" in html for html in seen)  # while it went on
    assert "width:" not in outputs[0]["data"]["text/html"] and "done: 16 steps" in outputs[0]["data"]["text/plain"]


def test_an_interrupted_cell_leaves_a_model_that_can_be_used_and_a_run_that_can_go_on(running):
    running.run(SETUP)

    def interrupt_after_five_steps(output):
        if "five steps" in output.get("text", ""):
            running.interrupt()

    outputs = running.run(LONG, interrupt_after_five_steps)
    (error,) = (output for output in outputs if output["kind"] == "error")
    assert error["ename"] == "KeyboardInterrupt"
    made = int(re.match(r"stopped by Ctrl-C after step ([\d,]+);", error["evalue"])[1].replace(",", ""))
    (view,) = (output["data"]["text/plain"] for output in outputs if output["kind"] == "display_data")
    assert "The model has the weights of that step and can be used; fit(resume='runs/long') goes on" in view
    used = running.run(
        "assert stopped.evaluate()['loss'] > 0 and stopped.predict(x).shape == (64, 1)\n"
        f"print(trainer('runs/long', max_steps={made + 3}).fit(resume='runs/long').steps)"
    )
    assert [output["text"] for output in used if output["kind"] == "stream"] == [f"{made + 3}\n"]
    assert not [output for output in used if output["kind"] == "error"]
